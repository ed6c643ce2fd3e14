"""The commands of ``remit witness``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from remit.cli.shared import FOLDER, debuggable, emit, note, say_text
from remit.kernel.words import count

if TYPE_CHECKING:
    from remit.ledger.tlog import VerifierKey


_F = TypeVar("_F", bound=Callable[..., Any])


def _common(function: _F) -> _F:
    """Add ``--dir`` and ``--debug`` to a command.

    A witness is a separate party and has no root.
    """
    option = click.option(
        "--dir", "directory", required=True, metavar="DIR", type=FOLDER,
        help="Directory of the witness.",
    )  # fmt: skip
    return option(debuggable(function))


@click.group()
def witness() -> None:
    """Run a witness, which cosigns checkpoints of ledgers that only grow."""


@witness.command()
@click.option(
    "--name", required=True, help="Name of the witness, a URL without scheme: witness.example/w1."
)
@_common
def init(directory: Path, name: str) -> None:
    """Create a witness with a key and an empty state, and print the verifier key."""
    from remit.ledger.witness import WitnessDirectory

    made = WitnessDirectory(directory).create(name)
    say_text(str(made))
    note(
        f"{directory} was created. Give this key to the logs. Never restore the directory from "
        "an older copy."
    )


@witness.command()
@_common
def key(directory: Path) -> None:
    """Print the verifier key of the witness, for the logs."""
    from remit.ledger.witness import WitnessDirectory

    say_text(str(WitnessDirectory(directory).verifier_key()))


@witness.command()
@click.option("--log", "logs", multiple=True, metavar="VKEY", help="Verifier key of a log.")
@click.option(
    "--log-file", "files", multiple=True, metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File of verifier keys, one per line; # starts a comment.",
)  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port; 0 chooses a free one.",
)
@_common
def run(
    directory: Path, logs: tuple[str, ...], files: tuple[Path, ...], host: str, port: int
) -> None:
    """Serve requests until SIGTERM or SIGINT."""
    import asyncio
    import signal

    from remit.ledger.witness import Witness, WitnessDirectory, WitnessState, serve

    keys = _log_keys(logs, files)
    place = WitnessDirectory(directory)
    signer = place.signer()

    async def until_stopped(answering: Witness) -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await serve(
            answering,
            stop=stop,
            host=host,
            port=port,
            on_listening=lambda url: note(f"witness {signer.name} listens on {url}"),
        )

    state = WitnessState(place.state)
    try:
        asyncio.run(until_stopped(Witness(signer, keys, state)))
    finally:
        state.close()


@witness.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_common
def status(directory: Path, as_json: bool) -> None:
    """Show the cosigned size of each log, and the recorded evidence of misbehaviour."""
    from remit.ledger.witness import FORK, UNPROVEN, WitnessDirectory, WitnessState

    place = WitnessDirectory(directory)
    own = place.verifier_key()
    state = WitnessState(place.state)
    try:
        seen = {item.origin: item for item in state.all_seen()}
        evidence = state.evidence_counts()
    finally:
        state.close()
    rows = [
        {
            "origin": origin,
            "size": seen[origin].size if origin in seen else 0,
            "root": seen[origin].root.hex() if origin in seen else None,
            "updated": seen[origin].updated if origin in seen else None,
            "forks": evidence.get((origin, FORK), 0),
            "unproven": evidence.get((origin, UNPROVEN), 0),
        }
        for origin in sorted({*seen, *(origin for origin, _ in evidence)})
    ]
    lines = [f"{own.name}: {count(len(rows), 'log')}", *map(_line, rows)]
    emit(as_json, {"name": own.name, "key": str(own), "logs": rows}, lines)


def _line(row: Mapping[str, Any]) -> str:
    line = f"  {row['origin']}  {count(row['size'], 'entry')}"
    if row["updated"]:
        line += f"  since {row['updated']}"
    if row["forks"]:
        line += f"  FORKED: {row['forks']} checkpoints kept as evidence"
    if row["unproven"]:
        line += f"  {row['unproven']} requests refused for lack of a valid proof"
    return line


def _log_keys(logs: tuple[str, ...], files: tuple[Path, ...]) -> list[VerifierKey]:
    from remit.ledger.tlog import TlogError, VerifierKey

    texts = [(text, "--log") for text in logs]
    for path in files:
        try:
            lines = path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise click.UsageError(f"{path} cannot be read: {error}") from error
        texts += [(line, str(path)) for line in lines if line.strip() and line.strip()[0] != "#"]
    found: dict[VerifierKey, None] = {}
    for text, where in texts:
        try:
            found[VerifierKey.parse(text)] = None
        except TlogError as error:
            raise click.UsageError(f"{where}: {error}") from error
    if not found:
        raise click.UsageError("Give at least one log with --log or --log-file.")
    return list(found)
