"""The server store: a PostgreSQL database (extra ``postgres``). Start in ``store``."""

from remit.ledger.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
