"""Removes what moves of a tenant's ledger left behind, once the new one is known to hold it."""

from __future__ import annotations

import fcntl

from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.kernel.tenant import TenantFile
from remit.ledger import LedgerClient, LedgerEntry
from remit.ledger.tlog import VerifierKey
from remit.runtime.installation import Step
from remit.runtime.tenants.places import is_own, locked, open_place, remove_place
from remit.runtime.tenants.plan import MovePlan, old_plans
from remit.runtime.tenants.tenant import find_tenant, open_log, place_of, require_recorded

__all__ = ["EVENT", "remove_old_places"]

EVENT = "TENANT_OLD_PLACE_REMOVED"


def remove_old_places(
    host: Root,
    ledger: LedgerClient,
    name: str,
    *,
    host_path: str,
    by: str,
    step: Step = lambda _: None,
) -> list[str]:
    """Remove the ledgers that a tenant was moved away from, with all their content.

    They go only when the tenant's ledger has all entries of each. One that was removed by hand is
    put on record as well. Killed on the way it is ended by doing it again.

    Args:
        host: the host's root.
        ledger: of the host, opened with its key.
        name: of the tenant.
        host_path: the host's ``[ledger] path``.
        by: who acts, for the record.
        step: called with its name before each step.

    Returns:
        The places that are gone.

    Raises:
        RemitError: the tenant is being moved, or its ledger lacks something of an old one.
        LedgerError: an old ledger is another's, or cannot be removed.
    """
    tenant = find_tenant(host, name)
    removed = []
    with locked(tenant.root.path / ".move.lock", fcntl.LOCK_EX) as is_held:
        if not is_held or TenantFile.is_held_back(tenant.root.path):
            raise RemitError(f"The ledger of the tenant {name} is being moved or removed.")
        key = require_recorded(ledger, tenant)
        plans = old_plans(tenant.root)
        for plan in plans:
            if is_own(plan.aside, tenant.root, host_path, key):
                _require_copied(plan, tenant.root, host_path)
        for plan in plans:
            place = place_of(plan.aside)
            step(f"remove {place}")
            remove_old_place(ledger, tenant.root, plan, key, host_path=host_path, by=by)
            removed.append(place)
    return removed


def remove_old_place(
    ledger: LedgerClient, root: Root, plan: MovePlan, key: VerifierKey, *, host_path: str, by: str
) -> None:
    """Remove one, on record, and forget its plan; the caller knows that it may go, where it is the
    ledger of this key."""
    remove_place(plan.aside, root, host_path, key)
    name = plan.after.name
    known = ledger.query(event_type=EVENT, submission_id=name)
    if plan.move_id not in {entry.metadata["move_id"] for entry in known}:
        ledger.write(
            LedgerEntry(
                EVENT, name, "REMOVED", "The ledger that a tenant was moved away from was removed",
                metadata={"tenant": name, "place": place_of(plan.aside), "move_id": plan.move_id,
                          "by": by},
            )
        )  # fmt: skip
    (root.path / plan.kept_as).unlink(missing_ok=True)


def _require_copied(plan: MovePlan, root: Root, host_path: str) -> None:
    """Raise RemitError if the tenant's ledger lacks an entry of the old one or is damaged."""
    settings = load_settings(root.config).settings.ledger
    tenant = find_tenant(Root(root.path.parent.parent), root.path.name)
    with open_place(plan.aside, root, host_path, settings) as old, open_log(tenant) as log:
        if problem := log.checkpoints.lacks(old.checkpoints.head()):
            raise RemitError(
                f"The old ledger {place_of(plan.aside)} is not removed: {problem}",
                next_step="`remit ledger verify` of the tenant checks its ledger.",
            )
        if problems := log.verify().problems:
            raise RemitError(
                f"The old ledger {place_of(plan.aside)} is not removed: the ledger in force does "
                f"not verify ({problems[0]}).",
                next_step="Keep the old ledger: it may be the only sound copy.",
            )
