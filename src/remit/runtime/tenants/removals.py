"""Removals of tenants, each of which an interruption leaves undone or finished.

A removal writes ``removing.json``, waits for servers, signs and records the last head, and records
``TENANT_REMOVED`` in the host's ledger. That entry decides. Then all data is erased, the plan last.
"""

from __future__ import annotations

import secrets
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.kernel.tenant import TenantFile
from remit.ledger.log_of_logs import latest_head
from remit.runtime.tenants.moves import changing, old_plans, read_plan, remove_old_place
from remit.runtime.tenants.places import Place, drained
from remit.runtime.tenants.tenant import (
    REMOVED,
    TenantHost,
    export_tenant,
    recorded_key,
    save,
    take_checkpoint,
)


def remove_tenant(
    host: TenantHost, name: str, *, reason: str, wait_s: float, export: Path | None = None
) -> tuple[int, str, str]:
    """Remove a tenant: its ledger, its old ledgers, and its root with its keys.

    The name is recorded for ever. Servers of this machine are waited for.

    Args:
        host: host of the tenant.
        name: name of the tenant, which no other tenant can have afterwards.
        reason: reason, for the record.
        wait_s: longest wait for servers to close the tenant, in seconds.
        export: a new directory to which the tenant's data is written first.

    Returns:
        The entries under the last head of the tenant's log, the id of the host's entry with that
        head, and the id of ``TENANT_REMOVED``.

    Raises:
        InvalidInputError: there is no reason.
        RemitError: there is no such tenant, a server serves it, the plan of a move is damaged, or
            the export cannot be written; the tenant stays, and so do a recorded head and files of
            the export. Once the removal is recorded: the root cannot be deleted yet.
        ConfigError: the tenant's ``remit.toml`` is invalid; nothing was changed.
        LedgerError: a ledger cannot be used. If the removal is recorded by then, the next
            `remit tenant` command finishes it.
        OSError: a file of the tenant's root cannot be made or deleted.
    """
    if not reason.strip():
        raise InvalidInputError("A removal requires a reason, which is recorded.")
    with changing(host, name) as (tenant, key):
        root = tenant.root
        for move in old_plans(root):  # Fails now if an old ledger could not be removed later.
            Place(move.aside, root, host.path).is_own(key)
        settings = load_settings(root.config).settings.ledger
        removal_id = secrets.token_hex(4)
        host.step("drain")
        save(
            {"file": asdict(tenant.file), "removal_id": removal_id, "by": host.by},
            TenantFile.removing_path(root.path),
        )
        try:
            with drained(root, name, wait_s):
                host.step("last head")
                with Place(tenant.file, root, host.path).open(settings, signing=True) as log:
                    take_checkpoint(host.ledger, tenant, log)
                    if export is not None:
                        host.step("export")
                        export_tenant(host.ledger, tenant, log, export)
                host.step("record")
                if (head := latest_head(host.ledger, name)) is None:
                    raise RemitError(f"The log of the tenant {name} has no head.")
                entry_id = host.record(
                    REMOVED, name, reason.strip(), origin=head.checkpoint.origin,
                    size=head.checkpoint.size, root=head.checkpoint.text.split("\n")[2],
                    place=tenant.place, exported=export is not None, removal_id=removal_id,
                )  # fmt: skip
        except BaseException:
            recover_removal(host, root)
            raise
        host.step("erase")
        _erase(host, root, tenant.file)
    return head.checkpoint.size, head.entry_id, entry_id


def _removal_in(value: Any, root: Path) -> tuple[TenantFile, str, str]:
    """Return the file, id and person of the removal in a JSON value.

    Raises ValueError if the removal is not one of this root.
    """
    file = TenantFile.planned(value["file"], root)
    return file, str(value["removal_id"]), str(value["by"])


def recover_removal(host: TenantHost, root: Root) -> None:
    """Finish a removal that is recorded; otherwise delete its plan.

    The caller holds the tenant's lock. Nothing is done without a plan.

    Args:
        host: host of the tenant.
        root: root of the tenant.

    Raises:
        LedgerError: the ledger cannot be read or written.
        RemitError: the plan is damaged, or the root cannot be deleted; the next recovery tries
            again.
        OSError: the plan cannot be deleted.
    """
    path = TenantFile.removing_path(root.path)
    if (plan := read_plan(_removal_in, path)) is None:
        return
    file, removal_id, by = plan
    known = host.ledger.query(event_type=REMOVED, submission_id=file.name)
    if removal_id in {entry.metadata["removal_id"] for entry in known}:
        _erase(replace(host, by=by), root, file)
    else:
        path.unlink(missing_ok=True)


def _erase(host: TenantHost, root: Root, file: TenantFile) -> None:
    """Erase all data of a tenant, the plan last; may be repeated from any point."""
    key = recorded_key(host.ledger, file.name)
    assert key is not None
    for move in old_plans(root):
        remove_old_place(host, root, move, key)
    Place(file, root, host.path).remove(key)
    kept = TenantFile.removing_path(root.path)
    try:
        for path in root.path.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path != kept:
                path.unlink()
        kept.unlink()
        remove_empty(root.path)
    except OSError as error:
        raise RemitError(
            f"{root.path} cannot be deleted: {error.strerror or error}.",
            next_step="The removal is recorded. `remit tenant list` tries again.",
        ) from error


def remove_empty(path: Path) -> None:
    """Delete the empty directory of a removed tenant, and a link to the directory.

    A path that does not exist is no error.

    Args:
        path: the directory, or a link to it.

    Raises:
        OSError: the directory is not empty, or cannot be deleted.
    """
    if path.exists():
        path.resolve().rmdir()
    if path.is_symlink():
        path.unlink()
