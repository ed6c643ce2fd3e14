"""The embedded store: one SQLite file."""

from remit.ledger.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
