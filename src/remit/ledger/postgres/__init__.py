"""The server store: one PostgreSQL database (extra ``postgres``)."""

from remit.ledger.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
