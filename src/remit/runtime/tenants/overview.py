"""The state of each tenant of a host, removed ones included, without opening its ledger."""

from __future__ import annotations

from dataclasses import dataclass

from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.tenant import TenantFile
from remit.ledger import LedgerClient, LedgerEntry
from remit.ledger.log_of_logs import TakenHead, latest_head
from remit.runtime.tenants.moves import old_plans
from remit.runtime.tenants.tenant import (
    REMOVED,
    Tenant,
    find_tenant,
    place_of,
    removals,
    root_of,
    tenant_names,
)


@dataclass(frozen=True, slots=True)
class ListedTenant:
    """A tenant in the view of its host.

    Immutable.

    Attributes:
        name: name of the tenant.
        head: last head of its log that the host recorded; ``None`` if it recorded none.
        state: ``served``, ``moving``, ``removing``, ``removed``, ``unfinished`` (its creation was
            interrupted), or ``damaged``.
        tenant: its root and file; ``None`` if it is removed, unfinished or damaged.
        old_places: old ledgers of moves that Remit did not remove yet, as text for people; not
            looked for, so one that was deleted by hand is named too.
        removal: the entry of its removal; ``None`` without one.
    """

    name: str
    head: TakenHead | None
    state: str
    tenant: Tenant | None = None
    old_places: tuple[str, ...] = ()
    removal: LedgerEntry | None = None

    @property
    def place(self) -> str:
        """Place of its ledger, for people; empty if unknown.

        Of a removed tenant, ``removed`` and the date.
        """
        if self.removal is not None:
            return f"removed {self.removal.timestamp[:10]}"
        return self.tenant.place if self.tenant is not None else ""

    @property
    def origin(self) -> str:
        """Origin of its log; empty if it is unknown."""
        if self.tenant is not None:
            return self.tenant.file.origin
        return self.head.checkpoint.origin if self.head is not None else ""


def list_names(host: Root, ledger: LedgerClient) -> list[str]:
    """Return the names of present and removed tenants, in order.

    Args:
        host: root of the host.
        ledger: ledger of the host, which records removals.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    return sorted({*tenant_names(host), *removals(ledger)})


def listed_tenant(host: Root, ledger: LedgerClient, name: str) -> ListedTenant:
    """Return a tenant with its state, which is a value of :attr:`ListedTenant.state`.

    A tenant whose creation was interrupted is ``unfinished``. A tenant whose files cannot be used,
    or with neither root nor removal, is ``damaged``; neither raises an error. Nothing is changed:
    an interrupted move or removal stays so.

    Args:
        host: root of the host.
        ledger: ledger of the host.
        name: name of the tenant.

    Raises:
        LedgerError: the ledger cannot be read.
        RemitError: the name is invalid.
        TlogError: a recorded head is malformed.
    """
    removed = ledger.query(event_type=REMOVED, submission_id=name, limit=1)
    removal, head = next(iter(removed), None), latest_head(ledger, name)
    if removal is not None:
        return ListedTenant(name, head, "removed", removal=removal)
    root = root_of(host, name)
    try:
        file = TenantFile.read(root.path)
        if file is not None and not file.ready:
            return ListedTenant(name, head, "unfinished")
        tenant = find_tenant(host, name)
        old = tuple(place_of(plan.aside) for plan in old_plans(root))
    except RemitError:
        return ListedTenant(name, head, "damaged")
    state = "served"
    if TenantFile.removing_path(root.path).exists():
        state = "removing"
    elif TenantFile.moving_path(root.path).exists():
        state = "moving"
    return ListedTenant(name, head, state, tenant, old)
