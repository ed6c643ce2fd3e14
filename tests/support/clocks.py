"""The clock that writers of a ledger share, set as a test wants it, on both stores."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from unittest import mock

from remit.ledger.clock import BootClock
from remit.ledger.postgres.store import PostgresStore
from remit.ledger.postgres.transaction import PostgresBatch
from remit.ledger.sqlite.store import SqliteStore
from remit.ledger.sqlite.transaction import SqliteBatch

__all__ = ["shared_clock"]


def shared_clock(read_s: Callable[[], float]) -> ExitStack:
    """Until it is closed, ``read_s`` says the seconds since 1970 to whoever asks a ledger."""
    stack = ExitStack()

    def read_ms(_: object) -> int:
        return int(read_s() * 1000)

    told = property(read_ms)
    for where in (PostgresBatch, PostgresStore, SqliteBatch, SqliteStore):
        stack.enter_context(mock.patch.object(where, "wall_ms", told))
    for where in (PostgresBatch, PostgresStore):
        stack.enter_context(mock.patch.object(where, "now_ms", told))
    stack.enter_context(mock.patch.object(BootClock, "now_ms", read_ms))
    return stack
