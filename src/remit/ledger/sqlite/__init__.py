"""The embedded store: one SQLite file. Start reading in ``store``."""

from remit.ledger.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
