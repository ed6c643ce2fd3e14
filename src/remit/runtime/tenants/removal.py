"""Removes a tenant: its last head stays in the host's log, its data is erased.

While ``removing.json`` is in the tenant's root no process opens the ledger. The last head is signed
and taken, then the host's ``TENANT_REMOVED`` decides: a removal that is interrupted before it is
undone, one that is interrupted after it is finished.
"""

from __future__ import annotations

import fcntl
import json
import secrets
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.files import write_over
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.kernel.tenant import TenantFile
from remit.ledger import LedgerClient, LedgerEntry
from remit.ledger.log_of_logs import latest_head
from remit.runtime.installation import Step
from remit.runtime.tenants.export import export_tenant
from remit.runtime.tenants.moving import recover_move
from remit.runtime.tenants.old_places import remove_old_place
from remit.runtime.tenants.places import drained, is_own, locked, open_place, remove_place
from remit.runtime.tenants.plan import old_plans
from remit.runtime.tenants.tenant import (
    REMOVED,
    Tenant,
    find_tenant,
    interrupted_tenants,
    recorded_key,
    removals,
    require_recorded,
    root_of,
    take_checkpoint,
)

__all__ = ["Removed", "recover_tenant", "recover_tenants", "remove_tenant", "removed_before"]


@dataclass(frozen=True, slots=True)
class Removed:
    """What a removal did.

    Attributes:
        entries: under the last head of the tenant's log.
        taken: id of the host's entry that holds that head.
        entry_id: of the host's ``TENANT_REMOVED``.
    """

    entries: int
    taken: str
    entry_id: str


@dataclass(frozen=True, slots=True)
class _Plan:
    """A removal, as ``removing.json`` holds it."""

    file: TenantFile
    removal_id: str
    by: str

    @classmethod
    def read(cls, root: Root) -> Self | None:
        path = TenantFile.removing_path(root.path)
        try:
            plan = json.loads(path.read_text("utf-8"))
            file = TenantFile.planned(plan["file"], root.path)
            return cls(file, str(plan["removal_id"]), str(plan["by"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RemitError(f"{path} cannot be read: {error}.") from error

    def write(self, root: Root) -> None:
        path = TenantFile.removing_path(root.path)
        try:
            write_over(path, json.dumps(asdict(self), indent=1).encode() + b"\n", 0o600)
        except OSError as error:
            raise RemitError(f"{path} cannot be written: {error.strerror or error}.") from error


def remove_tenant(
    host: Root,
    ledger: LedgerClient,
    name: str,
    *,
    reason: str,
    host_path: str,
    wait_s: float,
    by: str,
    export: Path | None = None,
    step: Step = lambda _: None,
) -> Removed:
    """Remove a tenant: its ledger, where it was moved away from, its root with its keys.

    Args:
        host: the host's root.
        ledger: of the host, opened with its key.
        name: of the tenant, which no other can have from then on.
        reason: for the record.
        host_path: the host's ``[ledger] path``.
        wait_s: how long to wait for servers to let go of it, seconds.
        by: who acts, for the record.
        export: a new directory that its data is written to before.
        step: called with its name before each step.

    Raises:
        InvalidInputError: there is no reason.
        RemitError: there is no such tenant, a server serves it, a move's plan is damaged, or the
            export cannot be written; nothing was changed.
        LedgerError: a ledger cannot be used. Where the removal is on the host's record by then, the
            next `remit tenant` command finishes it.
    """
    if not reason.strip():
        raise InvalidInputError("A removal needs a reason, for the record.")
    tenant = find_tenant(host, name)
    root = tenant.root
    with locked(root.path / ".move.lock", fcntl.LOCK_EX) as is_held:
        if not is_held or TenantFile.is_held_back(root.path):
            raise RemitError(f"The tenant {name} is being moved or removed.")
        key = require_recorded(ledger, tenant)
        for move in old_plans(root):
            is_own(move.aside, root, host_path, key)  # else it could not be ended
        settings = load_settings(root.config).settings.ledger
        plan = _Plan(tenant.file, secrets.token_hex(4), by)
        step("drain")
        plan.write(root)
        try:
            with drained(root, name, wait_s):
                step("last head")
                with open_place(tenant.file, root, host_path, settings, signing=True) as log:
                    take_checkpoint(ledger, tenant, log)
                    if export is not None:
                        step("export")
                        export_tenant(ledger, tenant, log, export)
                step("record")
                removed = _record(ledger, tenant, plan, reason, is_exported=export is not None)
        except BaseException:
            _recover(ledger, root, host_path)
            raise
        step("erase")
        _erase(ledger, root, plan, host_path)
    return removed


def removed_before(host: Root, ledger: LedgerClient, host_path: str, name: str) -> Removed | None:
    """Finish a recorded removal of a tenant and return what it did; None if none is recorded.

    Args:
        host: the host's root.
        ledger: the host's ledger, opened with its key.
        host_path: the host's ``[ledger] path``.
        name: the tenant.

    Raises:
        RemitError: another process removes the tenant now, or its root cannot be removed.
        LedgerError: the tenant's ledger cannot be removed.
    """
    entry = removals(ledger).get(name)
    if entry is None:
        return None
    recover_tenant(host, ledger, host_path, name)
    root = root_of(host, name).path
    if TenantFile.removing_path(root).exists():
        raise RemitError(f"The tenant {name} is being removed by another process.")
    if TenantFile.path(root).exists():  # somebody put a copy back
        return None
    _remove_empty(root)
    head = latest_head(ledger, name)
    return Removed(entry.metadata["size"], head.entry_id if head is not None else "", entry.id)


def recover_tenants(host: Root, ledger: LedgerClient, host_path: str) -> dict[str, RemitError]:
    """:func:`recover_tenant` of all whose move or removal was interrupted; by name why one stays
    as it is: the others are none the worse."""
    failed: dict[str, RemitError] = {}
    for name in interrupted_tenants(host):
        try:
            recover_tenant(host, ledger, host_path, name)
        except RemitError as error:
            failed[name] = error
    return failed


def recover_tenant(host: Root, ledger: LedgerClient, host_path: str, name: str) -> None:
    """Undo or finish what a process that died while it moved or removed a tenant began.

    Args:
        host: the host's root.
        ledger: of the host, opened with its key.
        host_path: the host's ``[ledger] path``.
        name: of the tenant.
    """
    recover_move(host, ledger, host_path, name)
    root = root_of(host, name)
    if TenantFile.removing_path(root.path).exists():
        with locked(root.path / ".move.lock", fcntl.LOCK_EX) as is_held:
            if is_held:  # else it is being removed just now
                _recover(ledger, root, host_path)


def _recover(ledger: LedgerClient, root: Root, host_path: str) -> None:
    plan = _Plan.read(root)
    if plan is None:
        return
    known = ledger.query(event_type=REMOVED, submission_id=plan.file.name)
    if plan.removal_id in {entry.metadata["removal_id"] for entry in known}:
        _erase(ledger, root, plan, host_path)
    else:
        TenantFile.removing_path(root.path).unlink(missing_ok=True)


def _record(
    ledger: LedgerClient, tenant: Tenant, plan: _Plan, reason: str, *, is_exported: bool
) -> Removed:
    head = latest_head(ledger, tenant.name)
    if head is None:
        raise RemitError(f"The log of the tenant {tenant.name} has no head.")
    checkpoint = head.checkpoint
    entry = LedgerEntry(
        REMOVED, tenant.name, "REMOVED", reason.strip(),
        metadata={
            "tenant": tenant.name,
            "origin": checkpoint.origin,
            "size": checkpoint.size,
            "root": checkpoint.text.split("\n")[2],
            "place": tenant.place,
            "exported": is_exported,
            "removal_id": plan.removal_id,
            "by": plan.by,
        },
    )  # fmt: skip
    return Removed(checkpoint.size, head.entry_id, ledger.write(entry))


def _remove_empty(path: Path) -> None:
    """Remove the empty directory that a removal leaves last, with the link that leads to it."""
    if path.exists():
        path.resolve().rmdir()
    if path.is_symlink():
        path.unlink()


def _erase(ledger: LedgerClient, root: Root, plan: _Plan, host_path: str) -> None:
    """Erase all of a tenant; its plan goes last, so that it can be done again from any point."""
    key = recorded_key(ledger, plan.file.name)
    assert key is not None  # of one whose removal is on record
    for move in old_plans(root):
        remove_old_place(ledger, root, move, key, host_path=host_path, by=plan.by)
    remove_place(plan.file, root, host_path, key)
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
            next_step="The tenant is removed on record. `remit tenant list` goes on with it.",
        ) from error
