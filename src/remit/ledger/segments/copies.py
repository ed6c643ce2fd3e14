"""Copies: the files that runs write before they rename them to segments.

``segment_copy PATH`` in ``ledger_info`` names each copy before its file is made, and the machine
that makes it. So an erasure and the next run remove the copy of a run that was killed. All entries
of a copy are in the database or in the archive from which the copy is made.
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

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient
    from remit.ledger.client_erasure import LedgerErasures

_NAME = re.compile(r"\d{12}-\d{12}\.new-[0-9a-f]{8}")
_COPIES = f"SELECT name, value FROM ledger_info WHERE name LIKE '{COPY}%' ORDER BY name"


def new_copy(ledger: LedgerClient, path: Path) -> Path:
    """Return the path of a new copy of a segment, after the ledger has durably stored the path.

    Args:
        ledger: the ledger whose entries are copied.
        path: path of the segment.

    Raises:
        LedgerWriteError: the ledger cannot be written.
    """
    copy = path.with_name(f"{path.stem}.new-{secrets.token_hex(4)}").absolute()
    ledger.transact(lambda tx: tx.execute(PUT_INFO, (f"{COPY}{copy}", socket.gethostname())))
    return copy


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


def remove_copies(ledger: LedgerErasures, directory: Path | None = None) -> str:
    """Remove the copies whose paths the ledger stores; return a sentence about the others.

    A run that is writing a copy then fails, and its next run starts again. The text names copies
    that cannot be removed here: those of another machine, and of a directory that is missing.

    Args:
        ledger: the ledger.
        directory: the directory of a run, which has no copies; ``None`` outside of a run.

    Raises:
        LedgerError: the ledger cannot be read or written.
    """
    remaining = []
    for name, machine in ledger.select(_COPIES):
        copy = Path(str(name).removeprefix(COPY))
        if not _NAME.fullmatch(copy.name):  # A changed row must not remove another file.
            continue
        is_ours = os.path.lexists(copy) or copy.parent == directory
        is_ours |= machine == socket.gethostname() and copy.parent.is_dir()
        discard(copy)
        if is_ours and not os.path.lexists(copy):
            ledger.transact(functools.partial(_forget, name))
        else:
            remaining.append(f"{copy} on {machine}")
    if not remaining:
        return ""
    return (
        "Copies of interrupted runs of `remit ledger segment` may contain erased content: "
        f"{', '.join(remaining)}. Run `remit ledger compact` there."
    )


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
