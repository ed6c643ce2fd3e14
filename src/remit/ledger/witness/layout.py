"""The file that a witness keeps its record in, and making it."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from pathlib import Path

from remit.ledger.witness.errors import WitnessError

__all__ = ["LAYOUT_VERSION", "create_state", "write_new"]

LAYOUT_VERSION = 1
"""In the file's ``user_version``."""

_CREATE = f"""
    CREATE TABLE seen(
        origin TEXT PRIMARY KEY,
        size INTEGER NOT NULL CHECK (size >= 0),
        root BLOB NOT NULL CHECK (length(root) = 32),
        note TEXT NOT NULL,
        updated TEXT NOT NULL) STRICT;
    CREATE TABLE evidence(
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        origin TEXT NOT NULL,
        received TEXT NOT NULL,
        reason TEXT NOT NULL,
        body BLOB NOT NULL,
        held TEXT NOT NULL,
        digest BLOB NOT NULL,
        UNIQUE (origin, reason, digest)) STRICT;
    PRAGMA user_version={LAYOUT_VERSION};
"""


def create_state(path: Path) -> None:
    """Make an empty record for :class:`~remit.ledger.witness.state.WitnessState`, mode 0600.

    Raises:
        WitnessError: there is one, or it cannot be written.
    """
    temporary = _beside(path)
    try:
        os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with contextlib.closing(sqlite3.connect(temporary, isolation_level=None)) as made:
            made.execute("PRAGMA synchronous=FULL")
            made.executescript(f"BEGIN; {_CREATE} COMMIT;")
            made.execute("PRAGMA journal_mode=WAL")
        _publish(temporary, path)
    except (OSError, sqlite3.Error) as error:
        raise _failed(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_new(path: Path, data: bytes, mode: int) -> None:
    """Make a file whole and durable, or not at all; it never replaces one.

    Raises:
        WitnessError: there is one, or it cannot be written.
    """
    temporary = _beside(path)
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _publish(temporary, path)
    except OSError as error:
        raise _failed(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")


def _publish(temporary: Path, path: Path) -> None:
    os.link(temporary, path)  # unlike a rename, it never replaces what is there
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _failed(path: Path, error: Exception) -> WitnessError:
    if isinstance(error, FileExistsError):
        return WitnessError(f"{path} is there already.", next_step="Use another directory.")
    return WitnessError(
        f"{path} cannot be made: {error}.",
        next_step="Check the free space and the permissions of its directory.",
    )
