"""What the host knows of its tenants, those that were removed among them."""

from __future__ import annotations

from dataclasses import dataclass

from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.tenant import TenantFile
from remit.ledger import LedgerClient, LedgerEntry
from remit.ledger.log_of_logs import TakenHead, latest_head
from remit.runtime.tenants.plan import old_plans
from remit.runtime.tenants.tenant import (
    REMOVED,
    Tenant,
    find_tenant,
    place_of,
    removals,
    root_of,
    tenant_names,
)

__all__ = ["ListedTenant", "list_names", "listed_tenant"]


@dataclass(frozen=True, slots=True)
class ListedTenant:
    """A tenant as the host sees it.

    Attributes:
        name: of the tenant.
        tenant: its root and file; ``None`` where it was removed, or is damaged.
        head: the last that the host took of its log; ``None`` where it took none.
        old_places: ledgers that it was moved away from, and that are still there.
        state: ``served``, ``moving``, ``removing``, ``removed``, ``unfinished``, or ``damaged``.
        removal: the entry of its removal.
    """

    name: str
    tenant: Tenant | None
    head: TakenHead | None
    old_places: tuple[str, ...]
    state: str
    removal: LedgerEntry | None

    @property
    def place(self) -> str:
        """Where its ledger is, for people; empty where that is not known."""
        if self.removal is not None:
            return f"removed {self.removal.timestamp[:10]}"
        return self.tenant.place if self.tenant is not None else ""

    @property
    def origin(self) -> str:
        """Of its log; empty where that is not known."""
        if self.tenant is not None:
            return self.tenant.file.origin
        return self.head.checkpoint.origin if self.head is not None else ""


def list_names(host: Root, ledger: LedgerClient) -> list[str]:
    """Names of the tenants that are there or were removed, in order."""
    return sorted({*tenant_names(host), *removals(ledger)})


def listed_tenant(host: Root, ledger: LedgerClient, name: str) -> ListedTenant:
    """One of them; its own ledger is not opened.

    Args:
        host: the host's root.
        ledger: of the host.
        name: of the tenant.
    """
    removed = ledger.query(event_type=REMOVED, submission_id=name, limit=1)
    removal, head = next(iter(removed), None), latest_head(ledger, name)
    if removal is not None:
        return ListedTenant(name, None, head, (), "removed", removal)
    root = root_of(host, name)
    try:
        file = TenantFile.read(root.path)
        if file is not None and not file.ready:
            return ListedTenant(name, None, head, (), "unfinished", None)
        tenant = find_tenant(host, name)
        old = tuple(place_of(plan.aside) for plan in old_plans(root))
    except RemitError:
        return ListedTenant(name, None, head, (), "damaged", None)
    return ListedTenant(name, tenant, head, old, _state(root), None)


def _state(root: Root) -> str:
    if TenantFile.removing_path(root.path).exists():
        return "removing"
    return "moving" if TenantFile.moving_path(root.path).exists() else "served"
