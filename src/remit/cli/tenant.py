"""``remit tenant``: roots of their own below a host's, and the log that answers for all."""

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
    say_text,
    show_step,
    table,
    whoami,
    write_file,
)

if TYPE_CHECKING:
    from remit.ledger import LedgerClient
    from remit.runtime.tenants import Tenant, TenantHost

_COLUMNS = ("name", "entries", "taken", "place", "origin")
_LEFT = (
    "Copies may remain where Remit cannot delete them: backups, snapshots, exports, the "
    "database's write-ahead log, and free disk blocks until they are overwritten."
)


@click.group()
def tenant() -> None:
    """Manage tenants, each with its own ledger, keys, budgets, packages and console.

    A tenant is a root: run any command for a tenant with --root ROOT/tenants/NAME.
    """


@tenant.command()
@click.argument("name")
@click.option(
    "--database", default="", metavar="URL",
    help="PostgreSQL database of the ledger (default: the host's database, or a file if the host "
         "uses one).",
)  # fmt: skip
@reads
def create(root: Path | None, as_json: bool, name: str, database: str) -> None:
    """Create a tenant, or complete an interrupted creation."""
    from remit.runtime.tenants import create_tenant, recorded_key

    with _host(root, signing=True) as host:
        made = create_tenant(host, name, database=database)
        key = str(recorded_key(host.ledger, name))
    shown = {"name": name, "root": str(made.root.path), "origin": made.file.origin,
             "place": made.place, "verifier_key": key}  # fmt: skip
    lines = [f"{name}: {made.root.path}", f"verifier key: {key}"]
    emit(as_json, shown, lines)
    if not as_json:
        note(f"`remit key create --root {made.root.path} --name …` creates the first key.")


@tenant.command("list")
@reads
def list_all(root: Path | None, as_json: bool) -> None:
    """List tenants, their ledgers and their last recorded checkpoints.

    Removed tenants are marked, with the last checkpoint of their logs.
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
    """Sign checkpoints of tenants (default: all) and record them in the host's log."""
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
@click.option("--out", type=FILE, help="Write to this file (default: standard output).")
@common
def prove(root: Path | None, name: str, entry_id: str, out: Path | None) -> None:
    """Prove that an entry of a tenant is recorded, from a checkpoint of the host."""
    from remit.ledger import parse_entry_id
    from remit.ledger.log_of_logs import latest_head, prove_through
    from remit.runtime.tenants import take_checkpoint

    with _of(root, name) as (ledger, one, log):
        log.read(entry_id, with_content=False)
        head = latest_head(ledger, name)
        if head is None or head.checkpoint.size <= (parse_entry_id(entry_id) or 0):
            take_checkpoint(ledger, one, log)
        text = str(prove_through(ledger, name, log, entry_id))
    if out is None:
        say_text(text, nl=False)
        return
    with write_file(out) as file:
        file.write(text.encode())


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
    """Export a tenant: ledger, key, packages, and a proof from the host."""
    from remit.runtime.tenants import export_tenant

    with _of(root, name) as (ledger, one, log):
        done = export_tenant(ledger, one, log, out, progress("exporting"))
    line = f"{done['entries']} entries and {done['packages']} packages written to {out}"
    emit(as_json, {"out": str(out), **done}, [line])


@tenant.command()
@click.argument("name")
@click.option("--to", "to", required=True, metavar="URL|host|DIR",
              help="PostgreSQL database, the host's database, or a directory for a "
                   "file.")  # fmt: skip
@click.option("--wait", "wait_s", type=click.FloatRange(min=0), default=60.0, show_default=True,
              help="Seconds to wait for the tenant's running calls to end.")  # fmt: skip
@click.option(
    "--remove-old", is_flag=True, help="Remove the old ledger with its content after the move."
)
@reads
def move(
    root: Path | None, as_json: bool, name: str, to: str, wait_s: float, remove_old: bool
) -> None:
    """Move a tenant's ledger with content, budgets and keys. Origin and verifier key stay.

    A running server refuses the tenant's calls until the move is complete. The next `remit tenant`
    command, or the server, undoes or completes an interrupted move. The old ledger is kept next to
    its old place; --remove-old or `remit tenant clean` removes it.
    """
    from remit.runtime.tenants import move_tenant, remove_old_places

    with _host(root, signing=True) as host:
        done = move_tenant(host, name, to, wait_s=wait_s)
        removed = remove_old_places(host, name) if remove_old else []
    shown = {"name": name, "entries": done.entries, "place": done.tenant.place,
             "aside": "" if removed else done.aside, "removed": removed}  # fmt: skip
    emit(as_json, shown, [f"{name}: {done.entries} entries moved to {done.tenant.place}"])
    if not as_json and (removed or done.aside):
        note(_LEFT if removed else "The old ledger is kept with all its content as "
                                   f"{done.aside}. Once your backups include the new one, `remit "
                                   f"tenant clean {name}` removes the old one.")  # fmt: skip


@tenant.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@reads
def clean(root: Path | None, as_json: bool, name: str, yes: bool) -> None:
    """Remove the old ledgers of a moved tenant, with all their content.

    An old ledger is removed only if the current ledger contains all of its entries.
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
        note(_LEFT)


@tenant.command()
@click.argument("name")
@click.option(
    "--reason", required=True, help="Reason (recorded permanently): name the request, not a person."
)
@click.option("--export", "out", type=FOLDER, help="Export the tenant to this new directory first.")
@click.option("--wait", "wait_s", type=click.FloatRange(min=0), default=60.0, show_default=True,
              help="Seconds to wait for the tenant's running calls to end.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@reads
def remove(
    root: Path | None, as_json: bool, name: str, reason: str, out: Path | None, wait_s: float,
    yes: bool,
) -> None:  # fmt: skip
    """Remove a tenant permanently: ledger, content, keys, packages and root.

    The host's log keeps the tenant's last signed checkpoint, so that earlier proofs and exports can
    still be verified. The name cannot be used again. The next `remit tenant` command, or the
    server, undoes an interrupted removal, or completes it if the removal is already recorded.
    """
    from remit.runtime.tenants import find_tenant, remove_tenant, removed_before

    with _host(root, signing=True) as host:
        done = removed_before(host, name)
        if done is None:
            find_tenant(host.root, name)
            confirm(
                f"Remove the tenant {name} with all its data permanently?", yes=yes, err=as_json
            )
            done = remove_tenant(host, name, reason=reason, wait_s=wait_s, export=out)
    shown = {"name": name, "entries": done.entries, "taken": done.taken, "entry": done.entry_id,
             "export": str(out) if out else ""}  # fmt: skip
    line = (
        f"{name} was removed with {done.entries} entries; {done.taken} of the host has the last "
        "checkpoint"
    )
    emit(as_json, shown, [line])
    if not as_json:
        note(_LEFT)


@contextmanager
def _host(root: Path | None, *, signing: bool = False) -> Iterator[TenantHost]:
    """Open the host; what was interrupted is undone or finished first."""
    from remit.runtime.tenants import TenantHost, interrupted_tenants, recover_tenants

    place, loaded = open_settings(root)
    interrupted = bool(interrupted_tenants(place))
    with open_ledger(root, signing=signing or interrupted) as ledger:
        host = TenantHost(place, ledger, loaded.settings.ledger.path, whoami(), show_step)
        if interrupted:
            failed = recover_tenants(replace(host, by="recovery", step=lambda _: None))
            for name, error in failed.items():
                note(f"The tenant {name} was not recovered: {error.message}")
        yield host


@contextmanager
def _of(root: Path | None, name: str) -> Iterator[tuple[LedgerClient, Tenant, LedgerClient]]:
    """Open the host's ledger and that of one of its tenants, each with its key."""
    from remit.runtime.tenants import find_tenant, open_log

    with _host(root, signing=True) as host:
        one = find_tenant(host.root, name)
        with open_log(one, signing=True) as log:
            yield host.ledger, one, log
