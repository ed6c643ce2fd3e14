"""Moves a tenant's ledger to another database: the old one or the new one is in force, never both.

The old ledger is set aside under another name first, so that no process writes it; then it is
copied, and the copy checked; then ``tenant.json`` names the new place, in one step. What finds the
``moving.json`` of a process that died puts the old one back where ``tenant.json`` names it, and
else finishes.
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
from remit.ledger import (
    KeptHead,
    LedgerClient,
    LedgerEntry,
    LedgerKey,
    copy_ledger,
    remove_ledger_file,
)
from remit.ledger.tlog import VerifierKey
from remit.runtime.installation import Step
from remit.runtime.state import check_state
from remit.runtime.tenants.places import (
    database_of,
    drained,
    is_own,
    is_there,
    location_of,
    locked,
    rename_place,
)
from remit.runtime.tenants.plan import MovePlan, old_plans
from remit.runtime.tenants.tenant import (
    Tenant,
    find_tenant,
    open_log,
    place_of,
    require_recorded,
    root_of,
    save_file,
    schema_of,
)

__all__ = ["Moved", "hold_open", "move_tenant", "recover_move"]

_EXPORT = "moving.jsonl"
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move did.

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
    """Keep a tenant from being moved, as who serves it does.

    Raises:
        RemitError: it is being moved or removed.
    """
    with locked(tenant.root.path / ".open.lock", fcntl.LOCK_SH) as is_held:
        if not is_held or TenantFile.is_held_back(tenant.root.path):
            raise RemitError(f"The tenant {tenant.name} is being moved or removed.")
        yield


def move_tenant(
    host: Root,
    ledger: LedgerClient,
    name: str,
    to: str,
    *,
    host_path: str,
    wait_s: float,
    by: str,
    step: Step = lambda _: None,
) -> Moved:
    """Move a tenant's ledger; if it is there already, only say so.

    Args:
        host: the host's root.
        ledger: of the host, opened with its key.
        name: of the tenant.
        to: URL of a PostgreSQL database; ``host`` for the host's own; or a directory for a file.
        host_path: the host's ``[ledger] path``.
        wait_s: how long to wait for servers to let go of it, seconds.
        by: who acts, for the record.
        step: called with its name before each step.

    Raises:
        RemitError: it cannot be moved there, or a server serves it; it is as it was.
        LedgerError: a database cannot be used; the old ledger is in force again.
    """
    tenant = find_tenant(host, name)
    root = tenant.root
    with locked(root.path / ".move.lock", fcntl.LOCK_EX) as is_held:
        if not is_held:
            raise RemitError(f"The ledger of the tenant {name} is being moved already.")
        _recover(host, ledger, root, host_path)
        before = find_tenant(host, name).file
        require_recorded(ledger, tenant)
        open_log(tenant).close()  # it is there, and this tenant's
        after = _target(before, to)
        if (after.database, after.ledger) == (before.database, before.ledger):
            with open_log(tenant) as log:
                old = [place_of(one.aside) for one in old_plans(root)]
                return Moved(find_tenant(host, name), log.count(), "".join(old[-1:]))
        plan = MovePlan(before, after, secrets.token_hex(4))
        settings = load_settings(root.config).settings.ledger
        _require_free(plan.after, root, host_path)
        step("drain")
        _write(root, plan)
        try:
            with drained(root, name, wait_s):
                step("aside")
                rename_place(before, plan.aside, root, host_path, settings.lock_timeout_s)
                step("copy")
                entries = _copy(plan, root, host_path, settings)
                step("switch")
                save_file(root, plan.after)
        except BaseException:
            _recover(host, ledger, root, host_path)
            raise
        step("finish")
        _finish(ledger, root, plan, by)
    return Moved(Tenant(root, plan.after), entries, place_of(plan.aside))


def recover_move(host: Root, ledger: LedgerClient, host_path: str, name: str) -> None:
    """End what a process that died while it moved a tenant began: see the module."""
    root = root_of(host, name)
    if TenantFile.moving_path(root.path).exists():
        with locked(root.path / ".move.lock", fcntl.LOCK_EX) as is_held:
            if is_held:  # else it is being moved just now
                _recover(host, ledger, root, host_path)


def _recover(host: Root, ledger: LedgerClient, root: Root, host_path: str) -> None:
    """Under the lock of moves: finish, or put back; by a plan that is not taken at its word: all
    that is renamed or removed has to be the tenant's."""
    plan = MovePlan.read(TenantFile.moving_path(root.path))
    if plan is None:
        return
    tenant = find_tenant(host, root.path.name)
    key = require_recorded(ledger, tenant)
    if tenant.file == plan.after:
        _finish(ledger, root, plan, "recovery")
        return
    _drop(plan, root, host_path, key)
    if is_own(plan.aside, root, host_path, key):
        rename_place(plan.aside, plan.before, root, host_path, 30.0)
    _clear(root)


def _finish(ledger: LedgerClient, root: Root, plan: MovePlan, by: str) -> None:
    """Put on the host's record what was done, once."""
    known = ledger.query(event_type="TENANT_MOVED", submission_id=plan.after.name)
    if plan.move_id not in {entry.metadata["move_id"] for entry in known}:
        key = LedgerKey(root.keys).verifier_key()
        head = KeptHead(LedgerKey(root.keys)).read(key) if key is not None else None
        if head is not None:
            ledger.write(
                LedgerEntry(
                    "TENANT_MOVED", plan.after.name, "MOVED", "The ledger of a tenant was moved",
                    metadata={
                        "tenant": plan.after.name,
                        "origin": head.checkpoint.origin,
                        "size": head.checkpoint.size,
                        "root": head.checkpoint.text.split("\n")[2],
                        "from_place": place_of(plan.before),
                        "place": place_of(plan.after),
                        "move_id": plan.move_id,
                        "by": by,
                    },
                )
            )  # fmt: skip
    (root.path / "ledger.place").unlink(missing_ok=True)  # of the old one; made again
    _clear(root, plan.kept_as)


def _clear(root: Root, kept_as: str = "") -> None:
    """Open the ledger to all again; ``kept_as`` keeps the plan, for the old ledger's removal."""
    (root.path / _EXPORT).unlink(missing_ok=True)
    path = TenantFile.moving_path(root.path)
    if kept_as:
        path.replace(root.path / kept_as)
    else:
        path.unlink(missing_ok=True)


def _write(root: Root, plan: MovePlan) -> None:
    plan.write(TenantFile.moving_path(root.path))


def _target(file: TenantFile, to: str) -> TenantFile:
    if to == HOST or "://" in to:
        return replace(file, database=to, ledger=schema_of(file.name))
    return replace(file, database="", ledger=str(Path(to).absolute() / "ledger.db"))


def _copy(plan: MovePlan, root: Root, host_path: str, settings: LedgerSettings) -> int:
    """Copy what was set aside, and check the copy; how many entries."""
    key = LedgerKey(root.keys, settings.origin)
    signer, kept = key.signer(), KeptHead(key)
    if plan.after.database:
        from remit.ledger import make_schema

        make_schema(database_of(plan.after, host_path), plan.after.ledger, plan.mark)
    else:
        Path(plan.after.ledger).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    source_place = location_of(plan.aside, root, host_path)
    target_place = location_of(plan.after, root, host_path)
    export = root.path / _EXPORT
    export.touch(mode=0o600)
    with (
        LedgerClient(source_place, settings=settings, create=False, signer=signer,
                     kept=kept) as source,
        LedgerClient(target_place, settings=settings) as target,
    ):  # fmt: skip
        signed = copy_ledger(source, target, export)
    with LedgerClient(
        target_place, settings=settings, create=False, signer=signer, kept=kept,
        checks=(check_state,),
    ) as made:  # fmt: skip
        report = made.verify(checkpoint=signed)
        if not report.verified:
            raise RemitError(f"The copy does not verify: {report.problems[0]}.")
        return made.count()


def _require_free(file: TenantFile, root: Root, host_path: str) -> None:
    file.ledger_path(host_path)  # there is such a database
    if is_there(file, root, host_path):
        raise RemitError(
            f"There is something already: {place_of(file)}.",
            next_step="Name another place. Remit never replaces a ledger.",
        )


def _drop(plan: MovePlan, root: Root, host_path: str, owner: VerifierKey) -> None:
    """Remove a copy that was not finished. There was nothing in its place before."""
    if plan.after.database:
        from remit.ledger import drop_schema

        drop_schema(database_of(plan.after, host_path), plan.after.ledger, plan.mark)
    else:
        remove_ledger_file(Path(location_of(plan.after, root, host_path)), owner)
