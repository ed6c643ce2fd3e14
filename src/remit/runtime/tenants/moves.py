"""Moves of tenants, each of which an interruption leaves undone or finished.

A move takes these steps:

1. Write the plan ``moving.json`` in the tenant's root. From then on no process opens the ledger.
2. Wait until servers have closed the tenant, then rename the old ledger, so that a process that
   still has it open cannot write to it.
3. Export the old ledger, import the export at the new place, and verify the copy.
4. Write ``tenant.json`` with the new place. This step decides.
5. Record ``TENANT_MOVED`` in the host's ledger, and rename the plan to ``moved-ID.json``. The old
   ledger stays until :func:`remove_old_places`.

A plan is not trusted: whatever it renames or removes must belong to the tenant's key, as the host
recorded it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.settings import LedgerSettings, load_settings
from remit.kernel.tenant import HOST, TenantFile
from remit.ledger import KeptHead, LedgerClient, LedgerKey, copy_ledger
from remit.ledger.tlog import VerifierKey
from remit.runtime.state_tables import check_state
from remit.runtime.tenants.places import Place, drained, locked
from remit.runtime.tenants.tenant import (
    Tenant,
    TenantHost,
    find_tenant,
    open_log,
    place_of,
    require_recorded,
    save,
    schema_of,
)

OLD_PLACE_REMOVED = "TENANT_OLD_PLACE_REMOVED"

_EXPORT = "moving.jsonl"
_P = TypeVar("_P")
_ID = re.compile("[0-9a-f]{8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class MovePlan:
    """The plan of a move of a tenant.

    The file is ``moving.json`` during the move, and ``moved-ID.json`` until the old ledger is
    removed. Immutable. The properties only derive names; no file is read.

    Attributes:
        before: the tenant's file with the old place.
        after: the tenant's file with the new place.
        move_id: id of the move, eight hexadecimal digits.
    """

    before: TenantFile
    after: TenantFile
    move_id: str

    @classmethod
    def of(cls, value: Any, root: Path) -> Self:
        """Return the plan in a JSON value.

        The tenant's key is not compared.

        Args:
            value: content of the plan's file.
            root: directory of the tenant's root.

        Raises:
            ValueError: the value is not a plan of this root.
            KeyError: a member is missing.
            TypeError: a member has another type.
        """
        if not _ID.fullmatch(value["move_id"]):  # Names of files and schemas contain the id.
            raise ValueError("its move_id is not one")
        before, after = (TenantFile.planned(value[one], root) for one in ("before", "after"))
        return cls(before, after, value["move_id"])

    @property
    def aside(self) -> TenantFile:
        """The tenant's file with the name that the old ledger has from the second step on."""
        end = f"_moved_{self.move_id}" if self.before.database else f".moved-{self.move_id}"
        return replace(self.before, ledger=f"{self.before.ledger}{end}")

    @property
    def mark(self) -> str:
        """The comment of a schema that this move made; an interrupted move finds the schema so."""
        return f"remit tenant {self.after.origin} move {self.move_id}"

    @property
    def kept_as(self) -> str:
        """Name of the file that holds the plan after the move."""
        return f"moved-{self.move_id}.json"

    def places(self, host: TenantHost, root: Root) -> tuple[Place, Place, Place]:
        """Return the old place, the place of the old ledger after its renaming, and the new place.

        Nothing is opened.

        Args:
            host: host of the tenant.
            root: root of the tenant.
        """
        before, aside, after = (
            Place(file, root, host.path) for file in (self.before, self.aside, self.after)
        )
        return before, aside, after


def hold_open(tenant: Tenant) -> contextlib.AbstractContextManager[None]:
    """Return a context manager that keeps a tenant from being moved or removed.

    Several servers of the machine may hold a tenant at once. A move or removal waits for all of
    them, for a limited time, and changes nothing if one still holds the tenant then. The locks are
    of files in the tenant's root; servers of other machines are not seen. The system releases them
    if the process dies.

    Args:
        tenant: the tenant that the server opens.

    Raises:
        RemitError: on entry, if the tenant is being moved or removed.
        OSError: on entry, if the file of the lock cannot be opened.
    """
    return _locked_for(tenant.root, ".open.lock", fcntl.LOCK_SH)


@contextlib.contextmanager
def _locked_for(
    root: Root, name: str, how: int, recover: Callable[[], None] | None = None
) -> Iterator[None]:
    """Hold a lock of a root and call ``recover`` under it; raise RemitError if it is taken."""
    with locked(root.path / name, how) as is_held:
        if is_held and recover is not None:
            recover()
        if not is_held or TenantFile.is_held_back(root.path):
            raise RemitError(
                f"The tenant {root.path.name} is being moved or removed.",
                next_step="Try again when that is done; `remit tenant list` shows its state.",
            )
        yield


@contextlib.contextmanager
def changing(host: TenantHost, name: str) -> Iterator[tuple[Tenant, VerifierKey]]:
    """Keep other processes from changing a tenant; yield the tenant and its recorded key.

    An interrupted change is recovered first.

    Args:
        host: host of the tenant.
        name: name of the tenant.

    Raises:
        RemitError: there is no such tenant, it is being changed, or its key is not the recorded
            one.
        LedgerError: a ledger cannot be read, or an interrupted change not be recovered.
        OSError: the file of the lock cannot be opened.
    """
    root = find_tenant(host.root, name).root
    with _locked_for(root, ".move.lock", fcntl.LOCK_EX, lambda: recover_move(host, root)):
        tenant = find_tenant(host.root, name)
        yield tenant, require_recorded(host.ledger, tenant)


def move_tenant(host: TenantHost, name: str, to: str, *, wait_s: float) -> tuple[Tenant, int, str]:
    """Move a tenant's ledger; if it is at the new place already, change nothing.

    The old ledger is renamed and stays until :func:`remove_old_places`. The host's ledger records
    ``TENANT_MOVED``. No process can open the tenant during the move. An error before the new place
    is decided undoes the move; after a later one, the next `remit tenant` command finishes it.

    Args:
        host: host of the tenant.
        name: name of the tenant.
        to: URL of a PostgreSQL database; ``host`` for the host's own; or a directory for a file.
        wait_s: longest wait for servers to close the tenant, in seconds.

    Returns:
        The tenant at its new place, the number of entries, and the place of the old ledger, which
        is empty if the tenant was never moved.

    Raises:
        RemitError: there is no such tenant, another process changes it, the ledger cannot be moved
            there, or a server still serves the tenant.
        LedgerError: a ledger or database cannot be used.
        ConfigError: the tenant's ``remit.toml`` is invalid.
        OSError: a file of the tenant's root cannot be made or removed.
    """
    with changing(host, name) as (tenant, _):
        root = tenant.root
        with open_log(tenant) as log:  # Fails if the ledger is missing or another tenant's.
            entries = log.count()
        if to == HOST or "://" in to:
            target = replace(tenant.file, database=to, ledger=schema_of(name))
        else:
            file = str(Path(to).absolute() / "ledger.db")
            target = replace(tenant.file, database="", ledger=file)
        if target == tenant.file:
            old = [place_of(one.aside) for one in old_plans(root)]
            return tenant, entries, "".join(old[-1:])
        plan = MovePlan(tenant.file, target, secrets.token_hex(4))
        before, aside, after = plan.places(host, root)
        target.ledger_path(host.path)  # Fails if the host has no database.
        if after.exists():
            raise RemitError(
                f"{place_of(target)} already exists.",
                next_step="Choose another place. Remit never replaces a ledger.",
            )
        settings = load_settings(root.config).settings.ledger
        host.step("drain")
        save(asdict(plan), TenantFile.moving_path(root.path))
        try:
            with drained(root, name, wait_s):
                host.step("aside")
                before.rename(aside, settings.lock_timeout_s)
                host.step("copy")
                after.make(plan.mark)
                entries = _copy(aside, after, settings)
                host.step("switch")
                save(asdict(target), TenantFile.path(root.path))
        except BaseException:
            recover_move(host, root)
            raise
        host.step("finish")
        _finish_move(host, root, plan)
    return Tenant(root, target), entries, place_of(plan.aside)


def _copy(aside: Place, after: Place, settings: LedgerSettings) -> int:
    """Copy the old ledger by an export and verify the copy; return the number of entries."""
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


def _finish_move(host: TenantHost, root: Root, plan: MovePlan) -> None:
    """Record a move once, delete its files, and let processes open the ledger again."""
    key = LedgerKey(root.keys).verifier_key()
    head = KeptHead(LedgerKey(root.keys)).read(key) if key is not None else None
    if head is not None:
        host.record(
            "TENANT_MOVED", plan.after.name, "The ledger of a tenant was moved", once="move_id",
            origin=head.checkpoint.origin, size=head.checkpoint.size,
            root=head.checkpoint.text.split("\n")[2], from_place=place_of(plan.before),
            place=place_of(plan.after), move_id=plan.move_id,
        )  # fmt: skip
    (root.path / "ledger.place").unlink(missing_ok=True)  # The next process writes the new place.
    (root.path / _EXPORT).unlink(missing_ok=True)
    TenantFile.moving_path(root.path).replace(root.path / plan.kept_as)


def recover_move(host: TenantHost, root: Root) -> None:
    """Finish a move that was decided; otherwise delete the copy and restore the old ledger.

    The caller holds the tenant's lock. A finished move is recorded as ``TENANT_MOVED`` by
    ``recovery``, once. Nothing is done without a plan.

    Args:
        host: host of the tenant.
        root: root of the tenant.

    Raises:
        LedgerError: a ledger cannot be read, written, renamed or deleted.
        RemitError: the plan or the tenant's file is damaged, or the tenant's key is not the
            recorded one.
        OSError: a file of the tenant's root cannot be renamed or deleted.
    """
    path = TenantFile.moving_path(root.path)
    if (plan := read_plan(MovePlan.of, path)) is None:
        return
    tenant = find_tenant(host.root, root.path.name)
    key = require_recorded(host.ledger, tenant)
    if tenant.file == plan.after:
        _finish_move(replace(host, by="recovery"), root, plan)
        return
    before, aside, after = plan.places(host, root)
    after.remove_unfinished(plan.mark, key)
    if aside.is_own(key):
        aside.rename(before, 30.0)
    (root.path / _EXPORT).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def remove_old_places(host: TenantHost, name: str) -> list[str]:
    """Remove the ledgers that a tenant was moved away from, with all their content.

    Each removal is recorded in the host's ledger. A ledger that was deleted by hand is recorded as
    well. If the process is killed, a repetition finishes the rest.

    Args:
        host: host of the tenant.
        name: name of the tenant.

    Returns:
        The places that were removed, in order of the ids of their moves.

    Raises:
        RemitError: the tenant does not exist or is being changed, its key is not the recorded one,
            or its ledger does not verify or lacks an entry of an old one; nothing was removed.
        LedgerError: an old ledger belongs to another tenant, or cannot be removed.
        OSError: the plan of a move cannot be deleted.
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
    """Remove the old ledger of a move, record that with the host, and delete the plan.

    The call can be repeated. A ledger that does not exist is recorded as removed. The caller holds
    the tenant's lock.

    Args:
        host: host of the tenant.
        root: root of the tenant.
        plan: the move.
        key: the tenant's key, as the host recorded it, to which the ledger must belong.

    Raises:
        LedgerError: the old ledger cannot be read or removed, or, after that, the host's ledger
            cannot be written.
        LedgerKeyError: the ledger belongs to another key, or to none; nothing was deleted.
        OSError: the plan cannot be deleted.
    """
    Place(plan.aside, root, host.path).remove(key)
    host.record(
        OLD_PLACE_REMOVED, plan.after.name,
        "The ledger that a tenant was moved away from was removed", once="move_id",
        place=place_of(plan.aside), move_id=plan.move_id,
    )  # fmt: skip
    (root.path / plan.kept_as).unlink(missing_ok=True)


def _require_copied(aside: Place, tenant: Tenant) -> None:
    """Raise RemitError if the tenant's ledger lacks an entry of the old one or does not verify."""
    settings = load_settings(tenant.root.config).settings.ledger
    kept = f"The old ledger {place_of(aside.file)} is not removed"
    with aside.open(settings) as old, open_log(tenant) as log:
        if problem := log.checkpoints.lacks(old.checkpoints.head()):
            raise RemitError(
                f"{kept}: {problem}", next_step="Run `remit ledger verify` for the tenant."
            )
        if problems := log.verify().problems:
            raise RemitError(
                f"{kept}: the ledger in use does not verify ({problems[0]}).",
                next_step="Keep the old ledger: it may be the only undamaged copy.",
            )


def old_plans(root: Root) -> list[MovePlan]:
    """Return the moves of a tenant whose old ledgers were not removed, in order of their ids.

    A move that runs is left out.

    Args:
        root: root of the tenant.

    Raises:
        RemitError: a plan is damaged.
    """
    plans = []
    for path in sorted(root.path.glob("moved-*.json")):
        if (plan := read_plan(MovePlan.of, path)) is None:
            continue
        if plan.kept_as != path.name:
            raise RemitError(f"{path} cannot be read: it is the plan of another move.")
        plans.append(plan)
    return plans


def read_plan(parse: Callable[[Any, Path], _P], path: Path) -> _P | None:
    """Return the plan in a file of a tenant's root; ``None`` if there is no such file.

    Args:
        parse: returns the plan in a JSON value; takes the value and the directory of the root. Its
            ValueError, KeyError and TypeError become the RemitError.
        path: the file.

    Raises:
        RemitError: the file cannot be read, is damaged, or is of another tenant.
    """
    try:
        return parse(json.loads(path.read_text("utf-8")), path.parent)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RemitError(f"{path} cannot be read: {error}.") from error
