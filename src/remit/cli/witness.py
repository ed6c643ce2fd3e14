"""``remit witness``; by hand ``run``, which serves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.operations import add_commands
from remit.cli.options import FOLDER, debuggable
from remit.cli.output import note

if TYPE_CHECKING:
    from remit.ledger.tlog import VerifierKey


@click.group()
def witness() -> None:
    """Run a witness, which cosigns checkpoints of ledgers."""


add_commands(witness)


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
@click.option(
    "--dir",
    "directory",
    required=True,
    metavar="DIR",
    type=FOLDER,
    help="Directory of the witness.",
)
@debuggable
def run(
    directory: Path, logs: tuple[str, ...], files: tuple[Path, ...], host: str, port: int
) -> None:
    """Serve requests until SIGTERM or SIGINT.

    Give the verifier key of at least one log. The directory must have the key of the witness.
    """
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
