"""Opening a connection to a SQLite ledger, whose layout is checked and migrated."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from remit.ledger.errors import AFTER_DAMAGE, LedgerError, LedgerFormatError, LedgerKeyError
from remit.ledger.log_identity import OWNER_SQL
from remit.ledger.schema import LAYOUT_VERSION, refuse_views
from remit.ledger.sqlite.migrations import migrate
from remit.ledger.sqlite.schema import APPLICATION_ID

_LOG_PAGES = 4000  # 16 MB: the ends of tables and indexes, written again and again, are copied once


def connect(
    path: Path, timeout_s: float, require: Callable[[str, str], None] | None
) -> sqlite3.Connection:
    """Open a connection to a ledger's file; an older layout is migrated first.

    A closed ledger on a read-only medium is opened read-only. Commits are durable, and deleted
    content is overwritten with zeros. The owner is checked before a migration. Any thread may use
    the connection, but only one at a time.

    Args:
        path: the file, which must exist: SQLite would make an empty one.
        timeout_s: longest wait for another process's transaction, in seconds.
        require: called with the verifier key in the ledger (empty if there is none) and the path;
            raises LedgerKeyError to refuse the owner. ``None`` accepts any.

    Raises:
        LedgerKeyError: ``require`` refused the owner.
        LedgerFormatError: the file is not a ledger, is damaged, is of a newer version, or has a
            view in place of a table.
        LedgerError: the file cannot be opened or migrated.
    """
    connection = None
    try:
        immutable = is_read_only(path)
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?immutable=1" if immutable else path,
            uri=immutable,
            timeout=timeout_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application == APPLICATION_ID:
            found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'view'")
            refuse_views((str(name) for (name,) in found), str(path))
        if application == APPLICATION_ID and require is not None:
            rows = connection.execute(OWNER_SQL).fetchall()
            require(str(rows[0][0]) if rows else "", str(path))
        if application == APPLICATION_ID and version < LAYOUT_VERSION:
            _migrate(connection, path, version)
    except (LedgerKeyError, LedgerFormatError, sqlite3.Error) as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise _opening_error(path, error) from error
        raise
    problem = ""
    if application != APPLICATION_ID:
        problem = "is a SQLite file, but not a ledger."
    elif version > LAYOUT_VERSION:
        problem = f"was written by a newer Remit (layout {version}, known {LAYOUT_VERSION})."
    if problem:
        connection.close()
        raise LedgerFormatError(
            f"{path} {problem}", next_step="Give another path, or upgrade Remit."
        )
    return connection


def _opening_error(path: Path, error: sqlite3.Error) -> LedgerError:
    if "malformed" in str(error):
        return LedgerFormatError(
            f"The file {path} is damaged: {error}.",
            next_step=f"{AFTER_DAMAGE} `sqlite3 COPY .recover` shows what can still be read.",
        )
    if "not a database" in str(error):
        return LedgerFormatError(
            f"{path} is not a ledger: {error}.",
            next_step="Give the path of a ledger, or of a file that does not exist yet.",
        )
    return LedgerError(
        f"The ledger {path} cannot be opened: {error}.",
        next_step="Check the path, its permissions and the free space. A ledger that was not "
        "closed has a -wal file and opens only in a writable directory: copy both files there.",
    )


def is_read_only(path: Path) -> bool:
    """Return True for a closed ledger that cannot be written, which is then opened unchanged.

    That is so if the file or its directory is not writable, there is no ``-shm`` file, and the
    ``-wal`` file is missing or empty. SQLite needs these files next to an open database.

    Args:
        path: the file.
    """
    if os.access(path.parent, os.W_OK) and os.access(path, os.W_OK):
        return False
    log, shared = (path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm"))
    return not shared.exists() and not (log.exists() and log.stat().st_size)


def _migrate(connection: sqlite3.Connection, path: Path, version: int) -> None:
    try:
        migrate(connection)
    except LedgerFormatError:
        connection.close()
        raise
    except sqlite3.OperationalError as error:
        connection.close()
        raise LedgerError(
            f"The ledger {path} has layout {version} and "
            f"cannot be migrated to layout {LAYOUT_VERSION}: {error}. The ledger is unchanged.",
            next_step="If the file is read-only or the disk is full, copy the file with its "
            "-wal file to a place with free space. Otherwise, first correct the fault that the "
            "message names.",
        ) from error
