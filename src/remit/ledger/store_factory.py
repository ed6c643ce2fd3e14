"""The choice of the store for a path or URL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from remit.kernel.settings import LedgerSettings
from remit.ledger.errors import LedgerError
from remit.ledger.sqlite import SqliteStore
from remit.ledger.store import Store

_COMPRESS_ABOVE_BYTES = 8192


def open_store(
    target: str,
    settings: LedgerSettings,
    *,
    create: bool,
    require: Callable[[str, str], None] | None = None,
) -> Store:
    """Open the store at a SQLite path or ``postgresql://…``.

    A ledger of an earlier layout is migrated. A missing PostgreSQL driver, and a URL of another
    scheme, are refused with LedgerError. Any text without ``://`` is a path.

    Args:
        target: the path, or the URL.
        settings: content keys and limits.
        create: True to make the ledger if there is none; else LedgerError is raised.
        require: called with the verifier key in the ledger (empty if there is none) and its
            location, before anything else is read and before a migration; raises LedgerKeyError to
            refuse it. ``None`` accepts any ledger.

    Raises:
        LedgerFormatError: the file or database is not a ledger, is damaged, or is of a newer
            version.
        LedgerKeyError: ``require`` refused the ledger.
        LedgerConnectionError: the server cannot be reached.
        LedgerError: the ledger cannot be opened or made.
    """
    keys = frozenset(settings.content_keys)
    if target.startswith(("postgresql://", "postgres://")):
        try:
            from remit.ledger.postgres import PostgresStore
        except ModuleNotFoundError as error:
            raise LedgerError(
                "The PostgreSQL driver is not installed.",
                next_step="pip install 'remit[postgres]'",
            ) from error
        return PostgresStore(
            target, content_keys=keys, lock_timeout_s=settings.lock_timeout_s, create=create,
            require=require,
        )  # fmt: skip
    if "://" in target:
        raise LedgerError(
            f"A ledger cannot be stored at {target.partition('://')[0]}://….",
            next_step="Give the path of a SQLite file, or postgresql://user@host/database.",
        )
    return SqliteStore(
        Path(target),
        content_keys=keys,
        compress_above=_COMPRESS_ABOVE_BYTES,
        lock_timeout_s=settings.lock_timeout_s,
        create=create,
        require=require,
    )
