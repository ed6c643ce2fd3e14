"""Moves a tenant's ledger to another database: the old one or the new one is in force, never both.

The old ledger is set aside under another name first, so that nobody writes it; then it is copied,
and the copy checked; then ``tenant.json`` names the new place, in one step. Whoever finds
``moving.json`` of a process that died puts the old one back where ``tenant.json`` names it, and
else finishes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from remit.kernel.root import Root
from remit.kernel.settings import LedgerSettings, load_settings
from remit.kernel.tenant import HOST, TenantError, TenantFile
from remit.ledger import KeptHead, LedgerClient, LedgerEntry, LedgerKey
from remit.ledger.keyfiles import write_over
from remit.ledger.relocation import copy_ledger
from remit.ledger.sqlite.files import remove_file, rename_file
from remit.runtime.installation import Step
from remit.runtime.state import check_state
from remit.runtime.tenants import (
    Tenant,
    find_tenant,
    open_log,
    place_of,
    require_recorded,
    root_of,
    save_file,
    schema_of,
    tenant_names,
)

__all__ = ["Moved", "hold_open", "move_tenant", "recover_move", "recover_moves"]

_EXPORT = "moving.jsonl"
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move did.

    Attributes:
        tenant: where it is now.
        entries: how many were moved.
        aside: where the old ledger is, which nobody opens any more.
    """

    tenant: Tenant
    entries: int
    aside: str


@dataclass(frozen=True, slots=True)
class _Plan:
    """A move, as ``moving.json`` holds it."""

    before: TenantFile
    after: TenantFile
    move_id: str

    @property
    def aside(self) -> TenantFile:
        """The old ledger, while it is moved and from then on."""
        end = f"_moved_{self.move_id}" if self.before.database else f".moved-{self.move_id}"
        return replace(self.before, ledger=f"{self.before.ledger}{end}")

    @property
    def mark(self) -> str:
        return f"remit tenant {self.after.origin} move {self.move_id}"

    @classmethod
    def read(cls, root: Root) -> Self | None:
        path = TenantFile.moving_path(root.path)
        try:
            told = json.loads(path.read_text("utf-8"))
            return cls(TenantFile(**told["before"]), TenantFile(**told["after"]), told["move_id"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TenantError(f"{path} cannot be read: {error}.") from error


@contextlib.contextmanager
def hold_open(tenant: Tenant) -> Iterator[None]:
    """Keep a tenant from being moved, as who serves it does.

    Raises:
        TenantError: it is being moved.
    """
    with _locked(tenant.root.path / ".open.lock", fcntl.LOCK_SH) as is_held:
        if not is_held or TenantFile.moving_path(tenant.root.path).exists():
            raise TenantError(f"The ledger of the tenant {tenant.name} is being moved.")
        yield


@contextlib.contextmanager
def _locked(path: Path, how: int, wait_s: float = 0.0) -> Iterator[bool]:
    """A lock that ends with this process; whether it was got in time."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        end = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(handle, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    yield False
                    return
                time.sleep(_LOOK_S)
            else:
                yield True
                return
    finally:
        os.close(handle)


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
    """Move a tenant's ledger.

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
        TenantError: it cannot be moved there, or a server serves it; it is as it was.
        LedgerError: a database cannot be used; the old ledger is in force again.
    """
    tenant = find_tenant(host, name)
    root = tenant.root
    with _locked(root.path / ".move.lock", fcntl.LOCK_EX) as is_held:
        if not is_held:
            raise TenantError(f"The ledger of the tenant {name} is being moved already.")
        _recover(ledger, root, host_path)
        before = find_tenant(host, name).file
        require_recorded(ledger, tenant)
        open_log(tenant).close()  # it is there, and this tenant's
        plan = _Plan(before, _target(before, to), secrets.token_hex(4))
        settings = load_settings(root.config).settings.ledger
        _require_free(plan.after, root, host_path)
        step("drain")
        _write(root, plan)
        try:
            with _locked(root.path / ".open.lock", fcntl.LOCK_EX, wait_s) as is_free:
                if not is_free:
                    raise TenantError(
                        f"A server still serves the tenant {name}, and its calls did not end.",
                        next_step="Nothing was changed. Try again, or with a longer --wait.",
                    )
                step("aside")
                _rename(before, plan.aside, root, host_path, settings.lock_timeout_s)
                step("copy")
                entries = _copy(plan, root, host_path, settings)
                step("switch")
                save_file(root, plan.after)
        except BaseException:
            _recover(ledger, root, host_path)
            raise
        step("finish")
        _finish(ledger, root, plan, by)
    return Moved(Tenant(root, plan.after), entries, place_of(plan.aside))


def recover_moves(host: Root, ledger: LedgerClient, host_path: str) -> None:
    """:func:`recover_move` of all tenants."""
    for name in tenant_names(host):
        recover_move(host, ledger, host_path, name)


def recover_move(host: Root, ledger: LedgerClient, host_path: str, name: str) -> None:
    """End what a process that died while it moved a tenant began: see the module."""
    root = root_of(host, name)
    if TenantFile.moving_path(root.path).exists():
        with _locked(root.path / ".move.lock", fcntl.LOCK_EX) as is_held:
            if is_held:  # else it is being moved just now
                _recover(ledger, root, host_path)


def _recover(ledger: LedgerClient, root: Root, host_path: str) -> None:
    """Under the lock of moves: finish, or put back."""
    plan = _Plan.read(root)
    if plan is None:
        return
    if TenantFile.read(root.path) == plan.after:
        _finish(ledger, root, plan, "recovery")
        return
    _drop(plan, root, host_path)
    if _is_there(plan.aside, root, host_path):
        _rename(plan.aside, plan.before, root, host_path, 30.0)
    _clear(root)


def _finish(ledger: LedgerClient, root: Root, plan: _Plan, by: str) -> None:
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
    _clear(root)


def _clear(root: Root) -> None:
    (root.path / _EXPORT).unlink(missing_ok=True)
    TenantFile.moving_path(root.path).unlink(missing_ok=True)


def _write(root: Root, plan: _Plan) -> None:
    data = {"before": asdict(plan.before), "after": asdict(plan.after), "move_id": plan.move_id}
    path = TenantFile.moving_path(root.path)
    try:
        write_over(path, json.dumps(data, indent=1).encode() + b"\n", 0o600)
    except OSError as error:
        raise TenantError(f"{path} cannot be written: {error.strerror or error}.") from error


def _target(file: TenantFile, to: str) -> TenantFile:
    if to == HOST or "://" in to:
        after = replace(file, database=to, ledger=schema_of(file.name))
    else:
        after = replace(file, database="", ledger=str(Path(to).absolute() / "ledger.db"))
    if (after.database, after.ledger) == (file.database, file.ledger):
        raise TenantError(f"The ledger of the tenant {file.name} is there already.")
    return after


def _copy(plan: _Plan, root: Root, host_path: str, settings: LedgerSettings) -> int:
    """Copy what was set aside, and check the copy; how many entries."""
    key = LedgerKey(root.keys, settings.origin)
    signer, kept = key.signer(), KeptHead(key)
    if plan.after.database:
        from remit.ledger.postgres.schemas import make_schema

        make_schema(_database(plan.after, host_path), plan.after.ledger, plan.mark)
    else:
        Path(plan.after.ledger).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    source_place = _place(plan.aside, root, host_path)
    target_place = _place(plan.after, root, host_path)
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
            raise TenantError(f"The copy does not verify: {report.problems[0]}.")
        return made.count()


def _database(file: TenantFile, host_path: str) -> str:
    return host_path if file.database == HOST else file.database


def _place(file: TenantFile, root: Root, host_path: str) -> str:
    """A ledger, as a client opens it."""
    place = file.ledger_path(host_path)
    return place if file.database else str(root.path / place)


def _is_there(file: TenantFile, root: Root, host_path: str) -> bool:
    if file.database:
        from remit.ledger.postgres.schemas import has_schema

        return has_schema(_database(file, host_path), file.ledger)
    return Path(_place(file, root, host_path)).exists()


def _require_free(file: TenantFile, root: Root, host_path: str) -> None:
    file.ledger_path(host_path)  # there is such a database
    if _is_there(file, root, host_path):
        raise TenantError(
            f"There is something already: {place_of(file)}.",
            next_step="Name another place, or remove it, where nobody needs it.",
        )


def _drop(plan: _Plan, root: Root, host_path: str) -> None:
    """Remove a copy that was not finished. There was nothing in its place before."""
    if plan.after.database:
        from remit.ledger.postgres.schemas import drop_schema

        drop_schema(_database(plan.after, host_path), plan.after.ledger, plan.mark)
    else:
        owner = LedgerKey(root.keys).verifier_key()
        remove_file(Path(_place(plan.after, root, host_path)), str(owner))


def _rename(file: TenantFile, to: TenantFile, root: Root, host_path: str, timeout_s: float) -> None:
    if file.database:
        from remit.ledger.postgres.schemas import rename_schema

        rename_schema(_database(file, host_path), file.ledger, to.ledger)
    else:
        old, new = (Path(_place(one, root, host_path)) for one in (file, to))
        rename_file(old, new, timeout_s)
