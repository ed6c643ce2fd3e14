"""The clock that writers of a ledger share, set as a test wants it, on both stores."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from unittest import mock

from remit.ledger.postgres.store import PostgresStore
from remit.ledger.postgres.transaction import PostgresBatch
from remit.ledger.sqlite.store import SqliteStore
from remit.ledger.sqlite.transaction import SqliteBatch

__all__ = ["shared_clock"]


def shared_clock(read_s: Callable[[], float]) -> ExitStack:
    """Until it is closed, ``read_s`` says the seconds since 1970 to whoever asks a ledger."""
    stack = ExitStack()
    told = property(lambda _: int(read_s() * 1000))
    for where in (PostgresBatch, PostgresStore, SqliteBatch, SqliteStore):
        for name in ("now_ms", "wall_ms"):
            stack.enter_context(mock.patch.object(where, name, told))
    return stack
