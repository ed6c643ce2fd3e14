"""Moves a tenant's ledger to another database: the old one or the new one is in force, never both.

The old ledger is set aside under another name first, so that no process writes it; then it is
exported and imported, and the copy checked; then ``tenant.json`` names the new place, in one step.
A process that finds the ``moving.json`` of one that died puts the old ledger back if
``tenant.json`` still names its place, and finishes otherwise.
"""

from __future__ import annotations

import contextlib
import fcntl
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.settings import LedgerSettings, load_settings
from remit.kernel.tenant import HOST, TenantFile
from remit.ledger import KeptHead, LedgerClient, LedgerKey, copy_ledger
from remit.ledger.tlog import VerifierKey
from remit.runtime.state import check_state
from remit.runtime.tenants.places import Place, drained, locked
from remit.runtime.tenants.plan import MovePlan, old_plans, read_plan, save
from remit.runtime.tenants.tenant import (
    Tenant,
    TenantHost,
    find_tenant,
    open_log,
    place_of,
    require_recorded,
    root_of,
    schema_of,
)

__all__ = ["EVENT", "Moved", "changing", "hold_open", "move_tenant", "recover_move",
           "remove_old_place", "remove_old_places"]  # fmt: skip

EVENT = "TENANT_OLD_PLACE_REMOVED"

_EXPORT = "moving.jsonl"


@dataclass(frozen=True, slots=True)
class Moved:
    """A finished move.

    Attributes:
        tenant: where it is now.
        entries: how many were moved.
        aside: where the old ledger is, which is not opened any more.
    """

    tenant: Tenant
    entries: int
    aside: str


@contextlib.contextmanager
def hold_open(tenant: Tenant) -> Iterator[None]:
    """Keep a tenant from being moved, as a server of the tenant does.

    Raises:
        RemitError: it is being moved or removed.
    """
    with locked(tenant.root.path / ".open.lock", fcntl.LOCK_SH) as is_held:
        if not is_held or TenantFile.is_held_back(tenant.root.path):
            raise RemitError(f"The tenant {tenant.name} is being moved or removed.")
        yield


@contextlib.contextmanager
def changing(host: TenantHost, name: str) -> Iterator[tuple[Tenant, VerifierKey]]:
    """Keep other processes from moving or removing a tenant; yield it, with its recorded key.

    Raises:
        RemitError: there is no such tenant, or it is being moved or removed.
    """
    root = find_tenant(host.root, name).root
    with locked(root.path / ".move.lock", fcntl.LOCK_EX) as is_held:
        if is_held:
            _recover(host, root)
        if not is_held or TenantFile.is_held_back(root.path):
            raise RemitError(f"The tenant {name} is being moved or removed.")
        tenant = find_tenant(host.root, name)
        yield tenant, require_recorded(host.ledger, tenant)


def move_tenant(host: TenantHost, name: str, to: str, *, wait_s: float) -> Moved:
    """Move a tenant's ledger; if it is there already, only return where it is.

    Args:
        host: of the tenant.
        name: of the tenant.
        to: URL of a PostgreSQL database; ``host`` for the host's own; or a directory for a file.
        wait_s: how long to wait for servers to let go of it, seconds.

    Raises:
        RemitError: it cannot be moved there, or a server serves it; it is as it was.
        LedgerError: a database cannot be used; the old ledger is in force again.
    """
    with changing(host, name) as (tenant, _):
        root = tenant.root
        with open_log(tenant) as log:  # it is there, and this tenant's
            entries = log.count()
        plan = MovePlan(tenant.file, _target(tenant.file, to), secrets.token_hex(4))
        if (plan.after.database, plan.after.ledger) == (tenant.file.database, tenant.file.ledger):
            old = [place_of(one.aside) for one in old_plans(root)]
            return Moved(tenant, entries, "".join(old[-1:]))
        settings = load_settings(root.config).settings.ledger
        before, aside, after = (
            Place(file, root, host.path) for file in (plan.before, plan.aside, plan.after)
        )
        after.file.ledger_path(host.path)  # there is such a database
        if after.exists():
            raise RemitError(
                f"The target already exists: {place_of(plan.after)}.",
                next_step="Choose another place. Remit never replaces a ledger.",
            )
        host.step("drain")
        save(plan, TenantFile.moving_path(root.path))
        try:
            with drained(root, name, wait_s):
                host.step("aside")
                before.rename(aside, settings.lock_timeout_s)
                host.step("copy")
                after.make(plan.mark)
                entries = _copy(aside, after, settings)
                host.step("switch")
                save(plan.after, TenantFile.path(root.path))
        except BaseException:
            _recover(host, root)
            raise
        host.step("finish")
        _finish(host, root, plan)
    return Moved(Tenant(root, plan.after), entries, place_of(plan.aside))


def recover_move(host: TenantHost, name: str) -> None:
    """End what a process that died while it moved a tenant began: see the module."""
    root = root_of(host.root, name)
    if TenantFile.moving_path(root.path).exists():
        with locked(root.path / ".move.lock", fcntl.LOCK_EX) as is_held:
            if is_held:  # else it is being moved just now
                _recover(host, root)


def remove_old_places(host: TenantHost, name: str) -> list[str]:
    """Remove the ledgers that a tenant was moved away from, with all their content.

    They go only when the tenant's ledger has all entries of each. One that was removed by hand is
    put on record as well. Killed on the way it is ended by doing it again.

    Args:
        host: of the tenant.
        name: of the tenant.

    Returns:
        The places that are gone.

    Raises:
        RemitError: the tenant is being moved, or its ledger lacks something of an old one.
        LedgerError: an old ledger is another's, or cannot be removed.
    """
    with changing(host, name) as (tenant, key):
        plans = old_plans(tenant.root)
        for plan in plans:
            if (aside := Place(plan.aside, tenant.root, host.path)).is_own(key):
                _require_copied(aside, tenant)
        for plan in plans:
            host.step(f"remove {place_of(plan.aside)}")
            remove_old_place(host, tenant.root, plan, key)
    return [place_of(plan.aside) for plan in plans]


def remove_old_place(host: TenantHost, root: Root, plan: MovePlan, key: VerifierKey) -> None:
    """Remove one old ledger of a tenant with this key, on record, and forget its plan."""
    Place(plan.aside, root, host.path).remove(key)
    host.record(
        EVENT, plan.after.name, "The ledger that a tenant was moved away from was removed",
        once="move_id", place=place_of(plan.aside), move_id=plan.move_id,
    )  # fmt: skip
    (root.path / plan.kept_as).unlink(missing_ok=True)


def _require_copied(aside: Place, tenant: Tenant) -> None:
    """Raise RemitError if the tenant's ledger lacks an entry of the old one or is damaged."""
    settings = load_settings(tenant.root.config).settings.ledger
    with aside.open(settings) as old, open_log(tenant) as log:
        if problem := log.checkpoints.lacks(old.checkpoints.head()):
            raise RemitError(
                f"The old ledger {place_of(aside.file)} was not removed: {problem}",
                next_step="Check the ledger of the tenant with `remit ledger verify`.",
            )
        if problems := log.verify().problems:
            raise RemitError(
                f"The old ledger {place_of(aside.file)} was not removed: the current ledger does "
                f"not verify ({problems[0]}).",
                next_step="Keep the old ledger: it may be the only intact copy.",
            )


def _recover(host: TenantHost, root: Root) -> None:
    """Finish a move, or put the old ledger back. The plan is not taken at its word: what is
    renamed or removed has to be the tenant's."""
    path = TenantFile.moving_path(root.path)
    if (plan := read_plan(MovePlan, path)) is None:
        return
    tenant = find_tenant(host.root, root.path.name)
    key = require_recorded(host.ledger, tenant)
    if tenant.file == plan.after:
        _finish(replace(host, by="recovery"), root, plan)
        return
    before, aside, after = (
        Place(file, root, host.path) for file in (plan.before, plan.aside, plan.after)
    )
    after.remove_unfinished(plan.mark, key)
    if aside.is_own(key):
        aside.rename(before, 30.0)
    (root.path / _EXPORT).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _finish(host: TenantHost, root: Root, plan: MovePlan) -> None:
    """Put the move on the host's record, once, and open the ledger to all again."""
    key = LedgerKey(root.keys).verifier_key()
    head = KeptHead(LedgerKey(root.keys)).read(key) if key is not None else None
    if head is not None:
        host.record(
            "TENANT_MOVED", plan.after.name, "The ledger of a tenant was moved", once="move_id",
            origin=head.checkpoint.origin, size=head.checkpoint.size,
            root=head.checkpoint.text.split("\n")[2], from_place=place_of(plan.before),
            place=place_of(plan.after), move_id=plan.move_id,
        )  # fmt: skip
    (root.path / "ledger.place").unlink(missing_ok=True)  # of the old one; made again
    (root.path / _EXPORT).unlink(missing_ok=True)
    TenantFile.moving_path(root.path).replace(root.path / plan.kept_as)


def _target(file: TenantFile, to: str) -> TenantFile:
    if to == HOST or "://" in to:
        return replace(file, database=to, ledger=schema_of(file.name))
    return replace(file, database="", ledger=str(Path(to).absolute() / "ledger.db"))


def _copy(aside: Place, after: Place, settings: LedgerSettings) -> int:
    """Export what was set aside, import it, and check the copy; return the number of entries."""
    export = aside.root.path / _EXPORT
    export.touch(mode=0o600)
    with (
        aside.open(settings, signing=True) as source,
        LedgerClient(after.location, settings=settings) as target,
    ):
        signed = copy_ledger(source, target, export)
    key = LedgerKey(aside.root.keys, settings.origin)
    with LedgerClient(
        after.location, settings=settings, create=False, signer=key.signer(), kept=KeptHead(key),
        checks=(check_state,),
    ) as made:  # fmt: skip
        report = made.verify(checkpoint=signed)
        if not report.verified:
            raise RemitError(f"The copy does not verify: {report.problems[0]}.")
        return made.count()
