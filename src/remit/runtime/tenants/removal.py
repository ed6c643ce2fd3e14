"""Removes a tenant: its last head stays in the host's log, its data is erased.

While ``removing.json`` is in the tenant's root no process opens the ledger. The last head is signed
and taken, then the host's ``TENANT_REMOVED`` decides: a removal that is interrupted before it is
undone, one that is interrupted after it is finished.
"""

from __future__ import annotations

import fcntl
import secrets
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.kernel.tenant import TenantFile
from remit.ledger.log_of_logs import latest_head
from remit.runtime.tenants.export import export_tenant
from remit.runtime.tenants.moving import changing, recover_move, remove_old_place
from remit.runtime.tenants.places import Place, drained, locked
from remit.runtime.tenants.plan import RemovalPlan, old_plans, read_plan, save
from remit.runtime.tenants.tenant import (
    REMOVED,
    Tenant,
    TenantHost,
    interrupted_tenants,
    recorded_key,
    removals,
    root_of,
    take_checkpoint,
)

__all__ = ["Removed", "recover_tenant", "recover_tenants", "remove_tenant", "removed_before"]


@dataclass(frozen=True, slots=True)
class Removed:
    """A finished removal.

    Attributes:
        entries: of the tenant's log, under its last head.
        taken: the host's entry that holds that head.
        entry_id: of the host's ``TENANT_REMOVED``.
    """

    entries: int
    taken: str
    entry_id: str


def remove_tenant(
    host: TenantHost, name: str, *, reason: str, wait_s: float, export: Path | None = None
) -> Removed:
    """Remove a tenant: its ledger, where it was moved away from, its root with its keys.

    Args:
        host: of the tenant.
        name: of the tenant, which no other can have from then on.
        reason: for the record.
        wait_s: how long to wait for servers to let go of it, seconds.
        export: a new directory that its data is written to before.

    Raises:
        InvalidInputError: there is no reason.
        RemitError: there is no such tenant, a server serves it, a move's plan is damaged, or the
            export cannot be written; nothing was changed.
        LedgerError: a ledger cannot be used. Where the removal is on the host's record by then, the
            next `remit tenant` command finishes it.
    """
    if not reason.strip():
        raise InvalidInputError("A removal requires a reason, which is recorded.")
    with changing(host, name) as (tenant, key):
        root = tenant.root
        for move in old_plans(root):
            Place(move.aside, root, host.path).is_own(key)  # else it could not be ended
        settings = load_settings(root.config).settings.ledger
        plan = RemovalPlan(tenant.file, secrets.token_hex(4), host.by)
        host.step("drain")
        save(plan, TenantFile.removing_path(root.path))
        try:
            with drained(root, name, wait_s):
                host.step("last head")
                place = Place(tenant.file, root, host.path)
                with place.open(settings, signing=True) as log:
                    take_checkpoint(host.ledger, tenant, log)
                    if export is not None:
                        host.step("export")
                        export_tenant(host.ledger, tenant, log, export)
                host.step("record")
                removed = _record(host, tenant, plan, reason, is_exported=export is not None)
        except BaseException:
            _recover(host, root)
            raise
        host.step("erase")
        _erase(host, root, plan)
    return removed


def removed_before(host: TenantHost, name: str) -> Removed | None:
    """Finish a recorded removal of a tenant and return it; None if none is recorded.

    Raises:
        RemitError: another process removes the tenant now, or its root cannot be removed.
        LedgerError: the tenant's ledger cannot be removed.
    """
    entry = removals(host.ledger).get(name)
    if entry is None:
        return None
    recover_tenant(host, name)
    root = root_of(host.root, name).path
    if TenantFile.removing_path(root).exists():
        raise RemitError(f"The tenant {name} is being removed by another process.")
    if TenantFile.path(root).exists():  # somebody put a copy back
        return None
    _remove_empty(root)
    head = latest_head(host.ledger, name)
    return Removed(entry.metadata["size"], head.entry_id if head is not None else "", entry.id)


def recover_tenants(host: TenantHost) -> dict[str, RemitError]:
    """Recover all tenants whose move or removal was interrupted; return, by name, why one stays as
    it is: the others are none the worse."""
    failed: dict[str, RemitError] = {}
    for name in interrupted_tenants(host.root):
        try:
            recover_tenant(host, name)
        except RemitError as error:
            failed[name] = error
    return failed


def recover_tenant(host: TenantHost, name: str) -> None:
    """Undo or finish what a process that died while it moved or removed a tenant began."""
    recover_move(host, name)
    root = root_of(host.root, name)
    if TenantFile.removing_path(root.path).exists():
        with locked(root.path / ".move.lock", fcntl.LOCK_EX) as is_held:
            if is_held:  # else it is being removed just now
                _recover(host, root)


def _recover(host: TenantHost, root: Root) -> None:
    path = TenantFile.removing_path(root.path)
    if (plan := read_plan(RemovalPlan, path)) is None:
        return
    known = host.ledger.query(event_type=REMOVED, submission_id=plan.file.name)
    if plan.removal_id in {entry.metadata["removal_id"] for entry in known}:
        _erase(host, root, plan)
    else:
        path.unlink(missing_ok=True)


def _record(
    host: TenantHost, tenant: Tenant, plan: RemovalPlan, reason: str, *, is_exported: bool
) -> Removed:
    head = latest_head(host.ledger, tenant.name)
    if head is None:
        raise RemitError(f"The log of the tenant {tenant.name} has no checkpoint.")
    checkpoint = head.checkpoint
    entry_id = host.record(
        REMOVED, tenant.name, reason.strip(), origin=checkpoint.origin, size=checkpoint.size,
        root=checkpoint.text.split("\n")[2], place=tenant.place, exported=is_exported,
        removal_id=plan.removal_id,
    )  # fmt: skip
    return Removed(checkpoint.size, head.entry_id, entry_id)


def _remove_empty(path: Path) -> None:
    """Remove the empty directory that a removal leaves last, with the link that leads to it."""
    if path.exists():
        path.resolve().rmdir()
    if path.is_symlink():
        path.unlink()


def _erase(host: TenantHost, root: Root, plan: RemovalPlan) -> None:
    """Erase all of a tenant; its plan goes last, so that it can be done again from any point."""
    key = recorded_key(host.ledger, plan.file.name)
    assert key is not None  # of one whose removal is on record
    for move in old_plans(root):
        remove_old_place(replace(host, by=plan.by), root, move, key)
    Place(plan.file, root, host.path).remove(key)
    kept = TenantFile.removing_path(root.path)
    try:
        for path in root.path.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path != kept:
                path.unlink()
        kept.unlink()
        _remove_empty(root.path)
    except OSError as error:
        raise RemitError(
            f"{root.path} cannot be removed: {error.strerror or error}.",
            next_step="The removal is recorded. `remit tenant list` completes it.",
        ) from error
