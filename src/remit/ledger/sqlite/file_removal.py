"""Renaming and removal of a ledger's file that other processes may have open."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

from remit.kernel.durable_files import fsync
from remit.ledger.errors import LedgerError
from remit.ledger.log_identity import OWNER_SQL, is_owner
from remit.ledger.tlog import VerifierKey

_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table'"
_ATTEMPTS = 100
_RETRY_S = 0.02


def rename_ledger_file(path: Path, to: Path, timeout_s: float) -> None:
    """Rename a ledger's file between two transactions; open clients fail at their next commit.

    Its ``-wal`` and ``-shm`` files are removed. The log is first copied into the file; up to 100
    attempts are made, 20 ms apart, while others read. The tables are not read.

    Args:
        path: the file.
        to: the new name, in the same directory. An existing file of this name is replaced, so the
            caller checks that there is none.
        timeout_s: time limit of each wait for a writer or readers, in seconds.

    Raises:
        LedgerError: others still read after the last attempt, a writer exceeds the time limit, or
            the file is missing or cannot be renamed. If only syncing the directory failed, it is
            renamed.
        OSError: the ``-wal`` or ``-shm`` file cannot be removed; the ledger is renamed.
    """
    try:
        with contextlib.closing(
            sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw",
                timeout=timeout_s,
                isolation_level=None,
                uri=True,
            )
        ) as file:
            for _ in range(_ATTEMPTS):
                # All that was committed is in the file itself, and nothing is while it is renamed.
                file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                file.execute("BEGIN IMMEDIATE")
                log = path.with_name(f"{path.name}-wal")
                if not log.exists() or not log.stat().st_size:
                    path.rename(to)
                    fsync(path.parent)
                    file.execute("ROLLBACK")
                    break
                file.execute("ROLLBACK")
                time.sleep(_RETRY_S)
            else:
                raise LedgerError(
                    f"Other programs keep reading the ledger {path}.",
                    next_step="End the programs that read it, then try again.",
                )
    except (sqlite3.Error, OSError) as error:
        raise LedgerError(f"The ledger {path} cannot be renamed: {error}.") from error
    _remove_beside(path)


def remove_ledger_file(path: Path, owner: VerifierKey | None) -> None:
    """Remove a ledger's file and log; do nothing if there is none or it has another owner.

    Args:
        path: the SQLite file; its ``-wal`` and ``-shm`` files are removed too.
        owner: verifier key of the ledger, under any origin; a ledger without owner and entries, and
            a database without tables, are removed too. ``None`` removes any file.

    Raises:
        LedgerError: the file cannot be read or removed.
    """
    if not path.exists():
        return
    try:
        if owner is not None and not _is_of(path, owner):
            return
        path.unlink()
        _remove_beside(path)
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"The ledger {path} cannot be removed: {error}.") from error


def _is_of(path: Path, owner: VerifierKey) -> bool:
    """Return True if a ledger names this owner, or has no owner and no entries."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        tables = {name for (name,) in file.execute(_TABLES)}
        if not {"ledger_info", "entries"} <= tables:
            return not tables
        names = [name for (name,) in file.execute(OWNER_SQL)]
        if names:
            return is_owner(owner, names[0])
        return not file.execute("SELECT 1 FROM entries LIMIT 1").fetchone()


def _remove_beside(path: Path) -> None:
    for end in ("-wal", "-shm"):
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)
