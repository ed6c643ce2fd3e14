"""Renames and removes a ledger's file, though other processes have it open."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

from remit.kernel.files import fsync
from remit.ledger.errors import LedgerError
from remit.ledger.owner import OWNER_SQL, is_owner
from remit.ledger.tlog import VerifierKey

__all__ = ["remove_ledger_file", "rename_ledger_file"]

_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table'"
_ATTEMPTS = 100
_RETRY_S = 0.02


def rename_ledger_file(path: Path, to: Path, timeout_s: float) -> None:
    """Give a ledger's file another name, between two transactions: who had it open finds it gone
    before the next commit.

    Args:
        path: of the file.
        to: the new one, in the same directory, which is not there.
        timeout_s: how long writers and readers are waited for, seconds.

    Raises:
        LedgerError: it is read all the time, or cannot be renamed.
    """
    try:
        with contextlib.closing(
            sqlite3.connect(path, timeout=timeout_s, isolation_level=None)
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
                    f"The ledger {path} is read all the time.",
                    next_step="End the programs that read it, then try again.",
                )
    except (sqlite3.Error, OSError) as error:
        raise LedgerError(f"The ledger {path} cannot be renamed: {error}.") from error
    _remove_beside(path)


def remove_ledger_file(path: Path, owner: VerifierKey | None) -> None:
    """Remove a ledger's file, where there is one and it is not another's.

    Args:
        path: of the file.
        owner: the verifier key of the ledger; one without entries and owner goes as well.
            ``None`` where the caller knows whose it is.

    Raises:
        LedgerError: it cannot be removed.
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
    """Whether a ledger names this key, or none and has no entries; no other database is one."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        tables = {name for (name,) in file.execute(_TABLES)}
        if not {"ledger_info", "entries"} <= tables:
            return not tables
        names = [name for (name,) in file.execute(OWNER_SQL)]
        return is_owner(owner, names[0]) if names else not _has_entries(file)


def _has_entries(file: sqlite3.Connection) -> bool:
    return bool(file.execute("SELECT 1 FROM entries LIMIT 1").fetchone())


def _remove_beside(path: Path) -> None:
    for end in ("-wal", "-shm"):
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)
