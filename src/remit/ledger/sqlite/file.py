"""The file of a ledger, made completely or not at all."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from pathlib import Path

from remit.ledger.errors import LedgerError
from remit.ledger.schema import LAYOUT_VERSION
from remit.ledger.sqlite.schema import APPLICATION_ID, CREATE


def create_if_absent(path: Path) -> None:
    """Make the file atomically, also when several processes try at once."""
    if path.exists() and path.stat().st_size > 0:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        mine, there = os.fstat(handle), path.stat()
        if mine.st_ino != there.st_ino or there.st_size > 0:
            return  # another process was first
        temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
        temporary.unlink(missing_ok=True)
        try:
            _create(temporary)
            os.replace(temporary, path)
        except sqlite3.Error as error:
            raise LedgerError(
                f"The ledger {path} cannot be made: {error}.",
                next_step="Check the free space and the permissions of its directory.",
            ) from error
        finally:
            temporary.unlink(missing_ok=True)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    finally:
        os.close(handle)


def _create(path: Path) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        # Both must be set before the first table: erased bytes leave the file, and it shrinks.
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.executescript(f"BEGIN; {CREATE} PRAGMA user_version={LAYOUT_VERSION}; COMMIT;")
        connection.execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()
