"""``remit tenant``: roots of their own below a host's, and the log that answers for all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.shared import (
    FILE,
    FOLDER,
    common,
    emit,
    note,
    open_ledger,
    open_settings,
    progress,
    reads,
    show_step,
    table,
    whoami,
    write_file,
)

if TYPE_CHECKING:
    from remit.kernel.root import Root
    from remit.ledger import LedgerClient

_COLUMNS = ("name", "entries", "taken", "place", "origin")


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

    place, loaded = open_settings(root)
    with open_ledger(root, signing=True) as ledger:
        made = create_tenant(
            place, ledger, name, host_path=loaded.settings.ledger.path, database=database,
            by=whoami(), step=show_step,
        )  # fmt: skip
        key = str(recorded_key(ledger, name))
    shown = {"name": name, "root": str(made.root.path), "origin": made.file.origin,
             "place": made.place, "verifier_key": key}  # fmt: skip
    lines = [f"{name}: {made.root.path}", f"Its log is checked by {key}"]
    emit(as_json, shown, lines)
    if not as_json:
        note(f"`remit key create --root {made.root.path} --name …` makes its first key.")


@tenant.command("list")
@reads
def list_all(root: Path | None, as_json: bool) -> None:
    """Tenants by name: entries that the host's log answers for, and where their ledgers are."""
    from remit.ledger import entry_id
    from remit.ledger.log_of_logs import latest_head
    from remit.runtime.tenants import list_tenants

    found = []
    with _host(root) as (place, ledger):
        for one in list_tenants(place):
            head = latest_head(ledger, one.name)
            found.append(
                {
                    "name": one.name,
                    "entries": head.checkpoint.size if head else 0,
                    "taken": entry_id(head.seq) if head else "",
                    "place": one.place,
                    "origin": one.file.origin,
                    "root": str(one.root.path),
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
    with _host(root, signing=True) as (place, ledger):
        for one in [find_tenant(place, name) for name in names] or list_tenants(place):
            with open_log(one, signing=True) as log:
                taken[one.name] = take_checkpoint(ledger, one, log)
    emit(as_json, {"taken": taken}, [f"{name}  {entry}" for name, entry in taken.items()])


@tenant.command()
@click.argument("name")
@click.argument("entry_id")
@click.option("--out", type=FILE, help="Write it to a file.")
@common
def prove(root: Path | None, name: str, entry_id: str, out: Path | None) -> None:
    """Prove that an entry of a tenant is on record, from a head of the host."""
    from remit.ledger.entry import parse_entry_id
    from remit.ledger.log_of_logs import latest_head, prove_through
    from remit.runtime.tenants import find_tenant, open_log, take_checkpoint

    with ExitStack() as stack:
        place, ledger = stack.enter_context(_host(root, signing=True))
        one = find_tenant(place, name)
        log = stack.enter_context(open_log(one, signing=True))
        log.read(entry_id, with_content=False)
        head = latest_head(ledger, name)
        if head is None or head.checkpoint.size <= (parse_entry_id(entry_id) or 0):
            take_checkpoint(ledger, one, log)
        text = str(prove_through(ledger, name, log, entry_id))
    if out is None:
        click.echo(text, nl=False)
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
    from remit.runtime.tenants import export_tenant, find_tenant

    with _host(root, signing=True) as (place, ledger):
        done = export_tenant(ledger, find_tenant(place, name), out, progress("exporting"))
    line = f"{done['entries']} entries and {done['packages']} packages written to {out}"
    emit(as_json, {"out": str(out), **done}, [line])


@tenant.command()
@click.argument("name")
@click.option("--to", "to", required=True, metavar="URL|host|DIR",
              help="A PostgreSQL database, the host's own, or a directory for a file.")  # fmt: skip
@click.option("--wait", "wait_s", type=click.FloatRange(min=0), default=60.0, show_default=True,
              help="Seconds for a server's calls of it to end.")  # fmt: skip
@reads
def move(root: Path | None, as_json: bool, name: str, to: str, wait_s: float) -> None:
    """Move a tenant's ledger: record, content, budgets, keys. Its origin and key stay.

    A server lets go of it, and takes its calls again once it is moved. An interrupted move is
    undone, or ended, by the next `remit tenant` command and by the server.
    """
    from remit.runtime.moving import move_tenant

    with _host(root, signing=True) as (place, ledger):
        path = open_settings(root)[1].settings.ledger.path
        done = move_tenant(place, ledger, name, to, host_path=path, wait_s=wait_s, by=whoami(),
                           step=show_step)  # fmt: skip
    shown = {"name": name, "entries": done.entries, "place": done.tenant.place,
             "aside": done.aside}  # fmt: skip
    emit(as_json, shown, [f"{name}: {done.entries} entries are at {done.tenant.place}"])
    if not as_json:
        note(f"The old ledger is kept as {done.aside}, with all its content: remove it when the "
             "new one is in your backups.")  # fmt: skip


@contextmanager
def _host(root: Path | None, *, signing: bool = False) -> Iterator[tuple[Root, LedgerClient]]:
    """The root of the host and its ledger; moves that were interrupted are ended first."""
    from remit.kernel.tenant import TenantFile
    from remit.runtime.moving import recover_moves
    from remit.runtime.tenants import tenant_names

    place, loaded = open_settings(root)
    root_of = place.path / "tenants"
    interrupted = any(TenantFile.moving_path(root_of / name).exists()
                      for name in tenant_names(place))  # fmt: skip
    with open_ledger(root, signing=signing or interrupted) as ledger:
        if interrupted:
            recover_moves(place, ledger, loaded.settings.ledger.path)
        yield place, ledger
