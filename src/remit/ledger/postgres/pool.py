"""A pool of connections to PostgreSQL that only read."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import psycopg

from remit.ledger.postgres.connection import CONNECT_S, Rows, Writer, is_connection_error
from remit.ledger.store_outage import Outage

_FIRST_RETRY_S = 0.05


class Pool:
    """A pool of read-only connections for all threads of a process, made as needed until
    :meth:`close`.

    Args:
        url: URL of the database.
        size: maximum number of connections; further callers wait for a free one.
        retry_s: seconds to retry after a connection is lost.
        outage: the state of the store; nothing is retried during a long outage.
    """

    def __init__(self, url: str, *, size: int, retry_s: float, outage: Outage) -> None:
        self._url = url
        self._retry_s = retry_s
        self._outage = outage
        self._turns = threading.Semaphore(size)
        self._lock = threading.Lock()
        self._free: list[Writer] = []
        self._busy: set[Writer] = set()
        self._closing = False

    def fetch(self, sql: str, parameters: Sequence[Any] = ()) -> Rows:
        """Return the rows of one portable query; retry on another connection if one is lost.

        The query runs in a read-only transaction, which is rolled back, and its advisory locks are
        released. Retries sleep 50 ms to 1 s and end after the time limit of the pool, and at once
        during a long outage. If a retry succeeds, the outage's ``ended`` is now.

        Args:
            sql: the query, with ``?`` placeholders.
            parameters: values of the placeholders.

        Raises:
            psycopg.Error, OSError: the query failed, the pool is closed, or the server could not be
                reached until the end of the retries.
            UnicodeEncodeError: a text holds a lone surrogate.
        """
        end = time.monotonic() + self._retry_s
        delay = _FIRST_RETRY_S
        while True:
            try:
                rows = self._once(sql, parameters)
                if delay > _FIRST_RETRY_S:
                    self._outage.ended = time.monotonic()
                return rows
            except Exception as error:
                late = time.monotonic() + delay > end
                if self._closing or self._outage.is_long or late or not is_connection_error(error):
                    raise
            time.sleep(delay)
            delay = min(delay * 2, 1.0)

    def close(self) -> None:
        """Close all connections; running queries fail, and later ones raise psycopg.InterfaceError.

        Threads with a running query are not waited for. Closing twice is harmless.
        """
        with self._lock:
            self._closing = True
            for reader in self._busy:
                reader.interrupt()
            while self._free:
                self._free.pop().drop()

    def _once(self, sql: str, parameters: Sequence[Any]) -> Rows:
        with self._turns:
            reader = self._take()
            try:
                reader.connect()
                # A query may call functions. Their settings end with the transaction, and their
                # advisory locks are released.
                reader.put("BEGIN READ ONLY", ())
                rows = reader.ask(sql, parameters)
                reader.put("ROLLBACK", ())
                reader.put("SELECT pg_advisory_unlock_all()", ())
                return list(rows)
            except BaseException:
                reader.drop()
                raise
            finally:
                self._give(reader)

    def _take(self) -> Writer:
        with self._lock:
            if self._closing:
                raise psycopg.InterfaceError("the pool is closed")
            if self._free:
                reader = self._free.pop()
            else:
                reader = Writer(self._url, statement_s=self._retry_s + CONNECT_S)
            self._busy.add(reader)
            return reader

    def _give(self, reader: Writer) -> None:
        with self._lock:
            self._busy.remove(reader)
            if self._closing:
                reader.drop()
            else:
                self._free.append(reader)
