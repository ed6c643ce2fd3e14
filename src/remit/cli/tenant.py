"""``remit tenant``: makes, moves, exports and removes tenants, and proves entries of their logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.shared import (
    FILE,
    FOLDER,
    common,
    confirm,
    emit,
    note,
    open_ledger,
    open_settings,
    progress,
    reads,
    show_step,
    table,
    whoami,
    write_text,
)
from remit.kernel.words import count

if TYPE_CHECKING:
    from remit.ledger import LedgerClient
    from remit.runtime.tenants import Tenant, TenantHost

_COLUMNS = ("name", "entries", "taken", "place", "origin")
_REMAINING_COPIES = (
    "Copies may remain where Remit cannot delete them: in backups, snapshots and exports, in the "
    "database's write-ahead log, and in free blocks of the disk until they are overwritten."
)
_WAIT = click.option(
    "--wait", "wait_s", type=click.FloatRange(min=0), default=60.0, show_default=True,
    help="Seconds to wait for calls of the tenant to end.",
)  # fmt: skip


@click.group()
def tenant() -> None:
    """Manage tenants: each has its own ledger, keys, budgets, packages and console.

    A tenant is a root. `remit --root ROOT/tenants/NAME …` runs any command for it.
    """


@tenant.command()
@click.argument("name")
@click.option(
    "--database", default="", metavar="URL",
    help="PostgreSQL database of its ledger (default: the host's, or a file if the host's is one).",
)  # fmt: skip
@reads
def create(root: Path | None, as_json: bool, name: str, database: str) -> None:
    """Make a tenant. A repetition completes an interrupted one."""
    from remit.runtime.tenants import create_tenant, recorded_key

    with _host(root, signing=True) as host:
        made = create_tenant(host, name, database=database)
        key = str(recorded_key(host.ledger, name))
    shown = {"name": name, "root": str(made.root.path), "origin": made.file.origin,
             "place": made.place, "verifier_key": key}  # fmt: skip
    lines = [f"{name}: {made.root.path}", f"Key that verifies its log: {key}"]
    emit(as_json, shown, lines)
    if not as_json:
        note(f"Make its first key with `remit key create --root {made.root.path} --name …`.")


@tenant.command("list")
@reads
def list_all(root: Path | None, as_json: bool) -> None:
    """List tenants by name, with the recorded size and the place of each ledger.

    Removed tenants are listed with the last head of their log.
    """
    from remit.runtime.tenants import list_names, listed_tenant

    found = []
    with _host(root) as host:
        for name in list_names(host.root, host.ledger):
            one = listed_tenant(host.root, host.ledger, name)
            found.append(
                {
                    "name": name,
                    "entries": one.head.checkpoint.size if one.head else 0,
                    "taken": one.head.entry_id if one.head else "",
                    "place": one.place or one.state,
                    "origin": one.origin,
                    "root": str(one.tenant.root.path) if one.tenant else "",
                    "state": one.state,
                    "old_places": one.old_places,
                    "removed": one.removal.timestamp if one.removal else "",
                    "reason": one.removal.reason if one.removal else "",
                }
            )
    rows = [[str(one[column]) or "-" for column in _COLUMNS] for one in found]
    emit(as_json, {"tenants": found}, table(_COLUMNS, rows))


@tenant.command()
@click.argument("names", nargs=-1)
@reads
def checkpoint(root: Path | None, as_json: bool, names: tuple[str, ...]) -> None:
    """Sign the heads of tenants (default: all) and record them in the host's ledger."""
    from remit.runtime.tenants import find_tenant, list_tenants, open_log, take_checkpoint

    taken = {}
    with _host(root, signing=True) as host:
        for one in [find_tenant(host.root, name) for name in names] or list_tenants(host.root):
            with open_log(one, signing=True) as log:
                taken[one.name] = take_checkpoint(host.ledger, one, log)
    emit(as_json, {"taken": taken}, [f"{name}  {entry}" for name, entry in taken.items()])


@tenant.command()
@click.argument("name")
@click.argument("entry_id")
@click.option("--out", type=FILE, help="Write the proof to a file.")
@common
def prove(root: Path | None, name: str, entry_id: str, out: Path | None) -> None:
    """Prove from a head of the host that an entry is in a tenant's log."""
    from remit.ledger import parse_entry_id
    from remit.ledger.log_of_logs import latest_head, prove_through
    from remit.runtime.tenants import take_checkpoint

    with _of(root, name) as (ledger, one, log):
        log.read(entry_id, with_content=False)
        head = latest_head(ledger, name)
        if head is None or head.checkpoint.size <= (parse_entry_id(entry_id) or 0):
            take_checkpoint(ledger, one, log)
        text = str(prove_through(ledger, name, log, entry_id))
    write_text(out, text)


@tenant.command("verify")
@click.argument("proof", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--key", "text", required=True, metavar="VKEY", help="Verifier key of the host.")
@reads
def verify_proof(root: Path | None, as_json: bool, proof: Path, text: str) -> None:
    """Verify a proof of `remit tenant prove` with the host's key; no root is needed."""
    from remit.ledger.log_of_logs import TenantProof
    from remit.ledger.tlog import VerifierKey

    read = TenantProof.parse(proof.read_bytes())
    host, log = read.verify(VerifierKey.parse(text))
    shown = {"verified": True, "host": host.origin, "host_entries": host.size,
             "origin": log.origin, "entries": log.size, "index": read.proof.index}  # fmt: skip
    line = f"verified: entry {read.proof.index} of {log.origin}, by a checkpoint of {host.origin}"
    emit(as_json, shown, [line])


@tenant.command()
@click.argument("name")
@click.option("--out", required=True, type=FOLDER, help="Directory to create.")
@reads
def export(root: Path | None, as_json: bool, name: str, out: Path) -> None:
    """Export a tenant: ledger, key, a proof from the host, and its packages."""
    from remit.runtime.tenants import export_tenant

    with _of(root, name) as (ledger, one, log):
        done = export_tenant(ledger, one, log, out, progress("exporting"))
    entries, packages = count(done["entries"], "entry"), count(done["packages"], "package")
    line = f"{entries} and {packages} written to {out}"
    emit(as_json, {"out": str(out), **done}, [line])


@tenant.command()
@click.argument("name")
@click.option("--to", "to", required=True, metavar="URL|host|DIR",
              help="A PostgreSQL database, the host's own, or a directory for a file.")  # fmt: skip
@_WAIT
@click.option("--remove-old", is_flag=True, help="Remove the old ledger afterwards.")
@reads
def move(
    root: Path | None, as_json: bool, name: str, to: str, wait_s: float, remove_old: bool
) -> None:
    """Move a tenant's ledger: record, content, budgets, keys. Origin and key stay the same.

    A server closes the tenant, and takes its calls again after the move. The next `remit tenant`
    command or the server undoes or finishes an interrupted move. The old ledger stays next to its
    old place until `--remove-old` or `remit tenant clean`.
    """
    from remit.runtime.tenants import move_tenant, remove_old_places

    with _host(root, signing=True) as host:
        moved, entries, aside = move_tenant(host, name, to, wait_s=wait_s)
        removed = remove_old_places(host, name) if remove_old else []
    shown = {"name": name, "entries": entries, "place": moved.place,
             "aside": "" if removed else aside, "removed": removed}  # fmt: skip
    emit(as_json, shown, [f"{name}: {count(entries, 'entry')} at {moved.place}"])
    if not as_json and (removed or aside):
        note(_REMAINING_COPIES if removed else f"The old ledger, with its content, is now {aside}. "
             f"When your backups hold a copy of the new one, `remit tenant clean {name}` removes "
             "the old one.")  # fmt: skip


@tenant.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@reads
def clean(root: Path | None, as_json: bool, name: str, yes: bool) -> None:
    """Remove the old ledgers of a moved tenant with their content, and record that.

    An old ledger is removed only if the ledger in use verifies and contains all of its entries.
    """
    from remit.runtime.tenants import find_tenant, old_plans, place_of, remove_old_places

    with _host(root, signing=True) as host:
        old = [place_of(plan.aside) for plan in old_plans(find_tenant(host.root, name).root)]
        if old:
            confirm(f"Remove {', '.join(old)}?", yes=yes, err=as_json)
        removed = remove_old_places(host, name)
    lines = [f"removed: {one}" for one in removed] or [f"{name} has no old ledger."]
    emit(as_json, {"name": name, "removed": removed}, lines)
    if removed and not as_json:
        note(_REMAINING_COPIES)


@tenant.command()
@click.argument("name")
@click.option("--reason", required=True, help="Recorded permanently; do not name a person.")
@click.option("--export", "out", type=FOLDER, help="Export the tenant to a new directory first.")
@_WAIT
@click.option("--yes", is_flag=True, help="Do not ask in a terminal.")
@reads
def remove(
    root: Path | None, as_json: bool, name: str, reason: str, out: Path | None, wait_s: float,
    yes: bool,
) -> None:  # fmt: skip
    """Remove a tenant permanently: ledger, content, keys, packages and root.

    The host's ledger keeps the last signed head of its log, so that proofs and exports can still be
    verified. The name cannot be used again. The next `remit tenant` command or the server undoes an
    interrupted removal, or finishes it if the host has recorded it.
    """
    from remit.runtime.tenants import find_tenant, remove_tenant, removed_before

    with _host(root, signing=True) as host:
        done = removed_before(host, name)
        if done is None:
            find_tenant(host.root, name)
            confirm(f"Remove the tenant {name} and all its data permanently?", yes=yes, err=as_json)
            done = remove_tenant(host, name, reason=reason, wait_s=wait_s, export=out)
    entries, taken, entry_id = done
    shown = {"name": name, "entries": entries, "taken": taken, "entry": entry_id,
             "export": str(out) if out else ""}  # fmt: skip
    number = count(entries, "entry")
    line = f"{name} is removed: {number}; entry {taken} of the host holds the last head"
    emit(as_json, shown, [line])
    if not as_json:
        note(_REMAINING_COPIES)


@contextmanager
def _host(root: Path | None, *, signing: bool = False) -> Iterator[TenantHost]:
    """Open the host; undo or finish interrupted moves and removals first."""
    from remit.runtime.tenants import TenantHost, interrupted_tenants, recover_tenants

    place, loaded = open_settings(root)
    interrupted = bool(interrupted_tenants(place))
    with open_ledger(root, signing=signing or interrupted) as ledger:
        host = TenantHost(place, ledger, loaded.settings.ledger.path, whoami(), show_step)
        if interrupted:
            failed = recover_tenants(replace(host, by="recovery", step=lambda _: None))
            for name, error in failed.items():
                note(f"The tenant {name} cannot be recovered: {error.message}")
        yield host


@contextmanager
def _of(root: Path | None, name: str) -> Iterator[tuple[LedgerClient, Tenant, LedgerClient]]:
    """Open a tenant's ledger and the host's ledger for writing.

    Interrupted moves and removals are undone or finished first.
    """
    from remit.runtime.tenants import find_tenant, open_log

    with _host(root, signing=True) as host:
        one = find_tenant(host.root, name)
        with open_log(one, signing=True) as log:
            yield host.ledger, one, log
