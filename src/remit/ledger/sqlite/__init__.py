"""The embedded store: a SQLite file. Start reading in ``store``."""

from remit.ledger.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
