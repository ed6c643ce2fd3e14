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
    "What is left of it is where Remit cannot reach: backups, snapshots, exports, the database's "
    "write-ahead log, and free blocks of the disk until they are written again."
)


@click.group()
def tenant() -> None:
    """Tenants: each with its own ledger, keys, budgets, packages and console.

    A tenant is a root: `remit --root ROOT/tenants/NAME …` is any command for one of them.
    """


@tenant.command()
@click.argument("name")
@click.option(
    "--database", default="", metavar="URL",
    help="PostgreSQL database of its ledger (default: the host's, or a file where that is one).",
)  # fmt: skip
@reads
def create(root: Path | None, as_json: bool, name: str, database: str) -> None:
    """Make a tenant. One whose making was interrupted is made to the end."""
    from remit.runtime.tenants import create_tenant, recorded_key

    with _host(root, signing=True) as host:
        made = create_tenant(host, name, database=database)
        key = str(recorded_key(host.ledger, name))
    shown = {"name": name, "root": str(made.root.path), "origin": made.file.origin,
             "place": made.place, "verifier_key": key}  # fmt: skip
    lines = [f"{name}: {made.root.path}", f"Its log is checked by {key}"]
    emit(as_json, shown, lines)
    if not as_json:
        note(f"`remit key create --root {made.root.path} --name …` makes its first key.")


@tenant.command("list")
@reads
def list_all(root: Path | None, as_json: bool) -> None:
    """Tenants by name: entries that the host's log answers for, and where their ledgers are.

    Those that were removed are shown as such, with the last head of their logs.
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
    """Sign the heads of tenants (default: all) and have the host's log take them."""
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
@click.option("--out", type=FILE, help="Write it to a file.")
@common
def prove(root: Path | None, name: str, entry_id: str, out: Path | None) -> None:
    """Prove that an entry of a tenant is on record, from a head of the host."""
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
    """Check a proof of `remit tenant prove`; no root is needed, the host's key answers for all."""
    from remit.ledger.log_of_logs import TenantProof
    from remit.ledger.tlog import VerifierKey

    read = TenantProof.parse(proof.read_bytes())
    host, log = read.verify(VerifierKey.parse(text))
    shown = {"verified": True, "host": host.origin, "host_entries": host.size,
             "origin": log.origin, "entries": log.size, "index": read.proof.index}  # fmt: skip
    line = f"verified: entry {read.proof.index} of {log.origin}, under a head of {host.origin}"
    emit(as_json, shown, [line])


@tenant.command()
@click.argument("name")
@click.option("--out", required=True, type=FOLDER, help="A new directory.")
@reads
def export(root: Path | None, as_json: bool, name: str, out: Path) -> None:
    """Write a tenant out: ledger, key, a proof from the host, and its packages."""
    from remit.runtime.tenants import export_tenant

    with _of(root, name) as (ledger, one, log):
        done = export_tenant(ledger, one, log, out, progress("exporting"))
    line = f"{done['entries']} entries and {done['packages']} packages written to {out}"
    emit(as_json, {"out": str(out), **done}, [line])


@tenant.command()
@click.argument("name")
@click.option("--to", "to", required=True, metavar="URL|host|DIR",
              help="A PostgreSQL database, the host's own, or a directory for a file.")  # fmt: skip
@click.option("--wait", "wait_s", type=click.FloatRange(min=0), default=60.0, show_default=True,
              help="Seconds for a server's calls of it to end.")  # fmt: skip
@click.option("--remove-old", is_flag=True, help="Remove the old ledger then, with its content.")
@reads
def move(
    root: Path | None, as_json: bool, name: str, to: str, wait_s: float, remove_old: bool
) -> None:
    """Move a tenant's ledger: record, content, budgets, keys. Its origin and key stay.

    A server lets go of it, and takes its calls again once it is moved. An interrupted move is
    undone, or ended, by the next `remit tenant` command and by the server. The old ledger is kept
    beside its old place until `--remove-old`, or `remit tenant clean`.
    """
    from remit.runtime.tenants import move_tenant, remove_old_places

    with _host(root, signing=True) as host:
        done = move_tenant(host, name, to, wait_s=wait_s)
        removed = remove_old_places(host, name) if remove_old else []
    shown = {"name": name, "entries": done.entries, "place": done.tenant.place,
             "aside": "" if removed else done.aside, "removed": removed}  # fmt: skip
    emit(as_json, shown, [f"{name}: {done.entries} entries are at {done.tenant.place}"])
    if not as_json and (removed or done.aside):
        note(_LEFT if removed else f"The old ledger is kept as {done.aside}, with all its content: "
             f"`remit tenant clean {name}` removes it, when the new one is in your "
             "backups.")  # fmt: skip


@tenant.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask in a terminal.")
@reads
def clean(root: Path | None, as_json: bool, name: str, yes: bool) -> None:
    """Remove the ledgers that a tenant was moved away from, with all their content, on record.

    Each goes only when the tenant's ledger has all of its entries.
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
@click.option("--reason", required=True, help="Stays on record; name the request, not a person.")
@click.option("--export", "out", type=FOLDER, help="Write it out to a new directory before.")
@click.option("--wait", "wait_s", type=click.FloatRange(min=0), default=60.0, show_default=True,
              help="Seconds for a server's calls of it to end.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask in a terminal.")
@reads
def remove(
    root: Path | None, as_json: bool, name: str, reason: str, out: Path | None, wait_s: float,
    yes: bool,
) -> None:  # fmt: skip
    """Remove a tenant for good: ledger, content, keys, packages, its root.

    The last signed head of its log stays in the host's, so that what was proved or exported from it
    can be checked. Its name is not used again. An interrupted removal is undone, or finished once
    it is on the host's record, by the next `remit tenant` command and by the server.
    """
    from remit.runtime.tenants import find_tenant, remove_tenant, removed_before

    with _host(root, signing=True) as host:
        done = removed_before(host, name)
        if done is None:
            find_tenant(host.root, name)
            confirm(f"Remove the tenant {name} with all its data, for good?", yes=yes, err=as_json)
            done = remove_tenant(host, name, reason=reason, wait_s=wait_s, export=out)
    shown = {"name": name, "entries": done.entries, "taken": done.taken, "entry": done.entry_id,
             "export": str(out) if out else ""}  # fmt: skip
    line = (
        f"{name} is removed: {done.entries} entries; {done.taken} of the host holds the last head"
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
                note(f"The tenant {name} stays as it is: {error.message}")
        yield host


@contextmanager
def _of(root: Path | None, name: str) -> Iterator[tuple[LedgerClient, Tenant, LedgerClient]]:
    """Open the host's ledger and that of one of its tenants, each with its key."""
    from remit.runtime.tenants import find_tenant, open_log

    with _host(root, signing=True) as host:
        one = find_tenant(host.root, name)
        with open_log(one, signing=True) as log:
            yield host.ledger, one, log
