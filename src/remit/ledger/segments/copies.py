"""Copies: the files that runs write before they rename them to segments.

``segment_copy PATH`` in ``ledger_info`` names each copy before its file is made, with the machine,
the directory (device and inode) and the database of the run. So an erasure and the next run remove
the copy of a run that was killed. A missing file counts as removed only in that directory on that
machine: the disk may not be mounted. A clone of a database also has the row, and leaves the file of
the original alone. All entries of a copy are in the database or in the archive from which the copy
is made.

A run writes no content before a transaction finds the row of its new, empty file. The transaction
that deletes the row finds no file. So no copy with content lacks its row.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from remit.kernel.durable_files import fsync
from remit.ledger.archived_ranges import COPY
from remit.ledger.entry_reader import PUT_INFO
from remit.ledger.errors import LedgerError
from remit.ledger.store import Transaction
from remit.ledger.store_factory import open_store

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient
    from remit.ledger.client_erasure import LedgerErasures

_NAME = re.compile(r"\d{12}-\d{12}\.new-[0-9a-f]{8}")
_IS_NAMED = "SELECT 1 FROM ledger_info WHERE name = ?"
_COPIES = f"SELECT name, value FROM ledger_info WHERE name LIKE '{COPY}%' ORDER BY name"


def new_copy(ledger: LedgerClient, path: Path) -> Path:
    """Return the path of a new copy of a segment: an empty ledger that the ledger's row names.

    Args:
        ledger: the ledger whose entries are copied.
        path: path of the segment.

    Raises:
        LedgerError: the ledger cannot be written, the copy cannot be made, or an erasure removed
            it.
        OSError: the directory of the segment is missing.
    """
    copy = path.with_name(f"{path.stem}.new-{secrets.token_hex(4)}").absolute()
    name, value = f"{COPY}{copy}", f"{_directory(copy)} {_database(ledger)}"
    ledger.transact(lambda tx: tx.execute(PUT_INFO, (name, value)))
    open_store(str(copy), ledger._settings, create=True).close()
    if not ledger.transact(lambda tx: tx.execute(_IS_NAMED, (name,))):
        discard(copy)
        raise LedgerError(f"An erasure removed the copy {copy}.")
    return copy


def _directory(copy: Path) -> str:
    """Return the machine and the device and inode of a copy's directory; OSError if missing."""
    found = copy.parent.stat()
    return f"{socket.gethostname()} {found.st_dev} {found.st_ino}"


def _database(ledger: LedgerErasures) -> str:
    return os.path.realpath(ledger.location) if ledger.is_of_one_machine else ledger.location


def publish_copy(ledger: LedgerClient, copy: Path, path: Path) -> None:
    """Give a complete copy the name of a segment, durably.

    Args:
        ledger: the ledger that stores the path of the copy.
        copy: path of the copy.
        path: path of the segment.

    Raises:
        LedgerError: there is a file of that name, or the ledger cannot be written.
        OSError: the copy cannot be renamed; an erasure may have removed it.
    """
    if os.path.lexists(path):
        raise LedgerError(f"{path} exists, and this ledger recorded no such segment.")
    copy.rename(path)
    fsync(path.parent)
    ledger.transact(functools.partial(_forget, f"{COPY}{copy}"))


def remove_copies(ledger: LedgerErasures) -> str:
    """Remove the copies whose paths the ledger stores; return a sentence about the others.

    A run that is writing a copy then fails, and its next run starts again. The text names copies
    that cannot be removed here: those of another machine, of a directory that is missing or not
    mounted, and of the database that this one is a clone of.

    Args:
        ledger: the ledger.

    Raises:
        LedgerError: the ledger cannot be read or written.
    """
    remaining = []
    for name, value in ledger.select(_COPIES):
        copy = Path(str(name).removeprefix(COPY))
        if not _NAME.fullmatch(copy.name):  # A changed row must not remove another file.
            continue
        directory, database = _parsed(str(value))
        is_ours = database in ("", _database(ledger))
        is_here = is_ours and os.path.lexists(copy)
        if is_ours:
            discard(copy)
        with contextlib.suppress(OSError):
            is_here |= _directory(copy) == directory
        if not (is_here and ledger.transact(functools.partial(_forget_missing, copy))):
            of = "" if is_ours else f" of {database}"
            remaining.append(f"{copy}{of} on {directory.partition(' ')[0]}")
    if not remaining:
        return ""
    return (
        "Copies of interrupted runs of `remit ledger segment` may contain erased content: "
        f"{', '.join(remaining)}. Run `remit ledger compact` there."
    )


def _parsed(value: str) -> tuple[str, str]:
    """Return the directory and the database of a row; an early row names only the machine."""
    parts = value.split(" ", 3)
    return " ".join(parts[:3]), "".join(parts[3:])


def _forget_missing(copy: Path, tx: Transaction) -> bool:
    """Delete the row of a copy; return False, and leave the row, if there is a file."""
    if is_missing := not os.path.lexists(copy):
        _forget(f"{COPY}{copy}", tx)
    return is_missing


def _forget(name: str, tx: Transaction) -> None:
    tx.execute("DELETE FROM ledger_info WHERE name = ?", (name,))


def interrupted_copies(directory: Path) -> list[Path]:
    """Return the files of runs that are writing a segment, or were interrupted, sorted.

    Logs of the files (``-wal``, ``-shm``) are left out. A missing directory gives an empty list.

    Args:
        directory: a directory of segments.
    """
    return sorted(
        path
        for path in directory.glob("????????????-????????????.new-*")
        if not path.name.endswith(("-wal", "-shm"))
    )


def discard(path: Path) -> None:
    """Remove an incomplete segment with its log files; errors, such as a missing file, are ignored.

    Args:
        path: path of the file.
    """
    for end in ("", "-wal", "-shm"):
        with contextlib.suppress(OSError):
            path.with_name(f"{path.name}{end}").unlink(missing_ok=True)
