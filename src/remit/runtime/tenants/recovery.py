"""Recovery of tenants whose move or removal was interrupted.

A change that was interrupted before its deciding step is undone; a later one is finished.
"""

from __future__ import annotations

import fcntl

from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.tenant import TenantFile
from remit.ledger.log_of_logs import latest_head
from remit.runtime.tenants.moves import recover_move
from remit.runtime.tenants.places import locked
from remit.runtime.tenants.removals import recover_removal, remove_empty
from remit.runtime.tenants.tenant import TenantHost, removals, root_of, tenants_with


def interrupted_tenants(host: Root) -> list[str]:
    """Return the names of tenants with a move or removal that runs or was interrupted, in order.

    Only directories are read.

    Args:
        host: root of the host.
    """
    found = (tenants_with(host, of) for of in (TenantFile.moving_path, TenantFile.removing_path))
    return sorted({name for names in found for name in names})


def recover_tenants(host: TenantHost) -> dict[str, RemitError]:
    """Recover all interrupted tenants, as :func:`recover_tenant`.

    Those with a running change are left alone.

    Args:
        host: the host, whose ledger records what was finished.

    Returns:
        The errors of tenants that could not be recovered, keyed by name.

    Raises:
        OSError: a file of a tenant's root cannot be opened or deleted.
    """
    failed: dict[str, RemitError] = {}
    for name in interrupted_tenants(host.root):
        try:
            recover_tenant(host, name)
        except RemitError as error:
            failed[name] = error
    return failed


def recover_tenant(host: TenantHost, name: str) -> None:
    """Undo or finish an interrupted move or removal; do nothing if another process runs it.

    A change is finished if it was decided (see the module), else undone. Ledgers are renamed or
    deleted, and the finish is recorded.

    Args:
        host: host of the tenant.
        name: name of the tenant.

    Raises:
        RemitError: the name is invalid, a plan is damaged or of another tenant, the tenant's key is
            not the recorded one, or a ledger or root cannot be changed.
        LedgerError: a ledger cannot be used.
        OSError: a file of the tenant's root cannot be opened or deleted.
    """
    root = root_of(host.root, name)
    for path, recover in (
        (TenantFile.moving_path(root.path), recover_move),
        (TenantFile.removing_path(root.path), recover_removal),
    ):
        if path.exists():
            with locked(root.path / ".move.lock", fcntl.LOCK_EX) as is_held:
                if is_held:
                    recover(host, root)


def removed_before(host: TenantHost, name: str) -> tuple[int, str, str] | None:
    """Finish a recorded removal: delete the rest of the tenant's root and its ledgers.

    Args:
        host: host of the tenant.
        name: name of the removed tenant.

    Returns:
        The entries under the last head of the tenant's log, the id of the host's entry with that
        head (empty without one), and the id of ``TENANT_REMOVED``. ``None`` if no removal is
        recorded, or if a copy of the tenant's root was restored.

    Raises:
        RemitError: another process is removing the tenant, a plan in its root is damaged, or its
            root cannot be deleted.
        LedgerError: the tenant's ledger cannot be removed.
        OSError: a file of the tenant's root cannot be opened or deleted.
    """
    entry = removals(host.ledger).get(name)
    if entry is None:
        return None
    recover_tenant(host, name)
    root = root_of(host.root, name).path
    if TenantFile.removing_path(root).exists():
        raise RemitError(f"The tenant {name} is being removed by another process.")
    if TenantFile.path(root).exists():
        return None
    remove_empty(root)
    head = latest_head(host.ledger, name)
    return entry.metadata["size"], head.entry_id if head is not None else "", entry.id
