"""Readers: connections to PostgreSQL that any thread may use, and that change nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeVar

import asyncpg

from remit.ledger.outage import Outage
from remit.ledger.postgres.connection import (
    CONNECT_S,
    CONNECTION_ERRORS,
    ENGINE_ERRORS,
    Writer,
    numbered,
)

_T = TypeVar("_T")

_FIRST_RETRY_S = 0.05


class Pool:
    """Read-only connections for any thread, also one whose event loop is running.

    asyncpg reads where it has a session of its own; through a pooler, which gives each transaction
    another, a :class:`Writer` does.

    Args:
        url: of the database.
        size: most connections.
        retry_s: how long a broken connection is retried, in seconds.
        outage: while that is long nothing is retried.
    """

    def __init__(self, url: str, *, size: int, retry_s: float, outage: Outage) -> None:
        self._url = url
        self._size = size
        self._retry_s = retry_s
        self._outage = outage
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="remit-postgres", daemon=True
        )
        self._thread.start()
        self._pool: asyncpg.Pool[Any] | None = None
        self._shared: _Shared | None = None
        self._closing = False
        self._lock = threading.Lock()  # nothing is put on the loop once it is to stop

    def open(self, *, is_pooled: bool) -> None:
        """Make what connections are made by; raises what :func:`connect` raises.

        Args:
            is_pooled: whether a pooler gives each transaction another session.
        """
        if is_pooled:
            self._shared = _Shared(self._url, self._size, self._retry_s + CONNECT_S)
        else:
            self._pool = self._call(self._make)

    def fetch(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of one portable statement; a lost connection is replaced, reading does no harm."""
        end = time.monotonic() + self._retry_s
        delay = _FIRST_RETRY_S
        while True:
            try:
                rows = self._once(sql, parameters)
                if delay > _FIRST_RETRY_S:
                    self._outage.ended = time.monotonic()
                return rows
            except CONNECTION_ERRORS:
                if self._closing or self._outage.is_long or time.monotonic() + delay > end:
                    raise
            time.sleep(delay)
            delay = min(delay * 2, 1.0)

    def close(self) -> None:
        """Close all connections and end the thread; readings that still wait fail."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        if self._shared is not None:
            self._shared.close()
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _once(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        if self._shared is not None:
            return self._shared.fetch(sql, parameters)
        return self._call(lambda: self._fetch(sql, parameters))

    async def _make(self) -> asyncpg.Pool[Any]:
        return await asyncpg.create_pool(
            self._url,
            min_size=0,
            max_size=self._size,
            timeout=CONNECT_S,
            command_timeout=self._retry_s + CONNECT_S,
            target_session_attrs=_target(self._url),
            server_settings={
                "application_name": "remit",
                "default_transaction_read_only": "on",
                "timezone": "UTC",
            },
        )

    async def _fetch(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        if self._pool is None:
            raise asyncpg.InterfaceError("the pool is closed")
        rows = await self._pool.fetch(numbered(sql), *parameters)
        return [tuple(row) for row in rows]

    async def _shut(self) -> None:
        if self._pool is not None:
            try:
                await asyncio.wait_for(self._pool.close(), timeout=2)
            except ENGINE_ERRORS:
                self._pool.terminate()
            self._pool = None
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    def _call(self, make: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        with self._lock:
            if self._closing:
                raise asyncpg.InterfaceError("the pool is closed")
            call = asyncio.run_coroutine_threadsafe(make(), self._loop)
        try:
            return call.result()
        except CancelledError as error:
            raise asyncpg.InterfaceError("the pool is closed") from error


class _Shared:
    """Readers through a pooler: a few connections, each used by one thread at a time."""

    def __init__(self, url: str, size: int, statement_s: float) -> None:
        self._url = url
        self._statement_s = statement_s
        self._turns = threading.Semaphore(size)
        self._free: list[Writer] = []
        self._lock = threading.Lock()
        self._closing = False

    def fetch(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._turns:
            writer = self._take()
            try:
                writer.connect()
                rows = writer.fetch(sql, parameters)
            except BaseException:
                writer.close()
                raise
            self._give(writer)
            return rows

    def close(self) -> None:
        with self._lock:
            self._closing = True
            free, self._free = self._free, []
        for writer in free:
            writer.close()

    def _take(self) -> Writer:
        with self._lock:
            if self._closing:
                raise asyncpg.InterfaceError("the pool is closed")
            if self._free:
                return self._free.pop()
        return Writer(
            self._url, statement_s=self._statement_s, is_pooled=True, transaction_read_only="on"
        )

    def _give(self, writer: Writer) -> None:
        with self._lock:
            if not self._closing:
                self._free.append(writer)
                return
        writer.close()


def _target(url: str) -> Any:
    """Which of several servers readers go to, where the URL does not say it for them too: to one
    that takes writes, their own ``default_transaction_read_only`` looks as if it took none."""
    query = url.partition("?")[2].split("&")
    return "primary" if "target_session_attrs=read-write" in query else None
