"""Opening of the root of a command, the name of its person, and the files that it reads."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from remit.cli.output import note, printable
from remit.kernel.errors import InvalidInputError, RemitError

if TYPE_CHECKING:
    from remit.kernel.root import Root
    from remit.kernel.settings import LoadedSettings
    from remit.ledger import LedgerClient


def confirm(question: str, *, yes: bool, err: bool) -> None:
    """Ask before an irreversible change.

    Args:
        question: the question, without its mark for the answers.
        yes: True to ask nothing.
        err: True to ask on standard error, because standard output is JSON.

    Raises:
        click.Abort: the person answers no.
        InvalidInputError: there is no terminal, so nobody can answer.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInputError(
            "Cannot ask for confirmation without a terminal.", next_step="Confirm with --yes."
        )
    click.confirm(printable(question), abort=True, err=err)


def whoami() -> str:
    """Return the name of the user who runs this command, or ``local operator`` if unknown."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user id without a name
        return "local operator"


@contextmanager
def write_file(out: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing; the old content stays until the new content is complete.

    Missing directories are created. An error in the block leaves the old content. The path ``-``
    means standard output.

    Raises:
        RemitError: the file cannot be written.
    """
    from remit.kernel.durable_files import replacing

    if str(out) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        is_device = out.exists() and not out.is_file()  # Behind /dev/stdout may be no path.
        place = out if is_device else out.resolve()
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as file:
            yield file
    except OSError as error:
        raise RemitError(
            f"{out} cannot be written: {error.strerror or error}.",
            next_step="Choose a file in a writable directory.",
        ) from error


def open_settings(root: Path | None) -> tuple[Root, LoadedSettings]:
    """Return the meant root and its settings.

    Args:
        root: the value of ``--root``, or None for the default root.

    Raises:
        RemitError: no root exists, or the settings are invalid.
    """
    from remit.kernel.root import find_root
    from remit.kernel.settings import load_settings

    place = find_root(root).require()
    return place, load_settings(place.config)


def open_root(root: Path | None) -> tuple[Root, LoadedSettings, LedgerClient]:
    """Return a root, its settings and its ledger, for repairs.

    If installed defaults were changed, a note is printed and the shipped defaults apply.

    Raises:
        RemitError: no root exists, the settings are invalid, or the ledger cannot be opened.
    """
    from remit.kernel.installed_files import ChangedFileError
    from remit.kernel.root import find_root
    from remit.kernel.settings import load_settings
    from remit.ledger import open_root_ledger

    try:
        place, loaded = open_settings(root)
    except ChangedFileError as error:
        place = find_root(root)
        loaded = load_settings(place.config, installed=False)
        note(f"{error.message} The shipped settings are used instead.")
    return place, loaded, open_root_ledger(place, loaded.settings.ledger, checks=(_check_state,))


def open_ledger(root: Path | None, *, signing: bool = False) -> LedgerClient:
    """Open the ledger of a root; commands that write need ``signing``."""
    from remit.ledger import open_root_ledger

    place, loaded = open_settings(root)
    return open_root_ledger(place, loaded.settings.ledger, signing=signing, checks=(_check_state,))


def _check_state(ledger: LedgerClient, since_mark: bool) -> Iterable[tuple[int | None, str]]:
    from remit.runtime.state_tables import check_state  # much to import, for few commands

    return check_state(ledger, since_mark)
