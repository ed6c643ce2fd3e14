"""Connections to PostgreSQL for callers without an event loop."""

from __future__ import annotations

import asyncio
import functools
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import unquote

import asyncpg

from remit.ledger.outage import Outage
from remit.ledger.postgres.pipeline import Pipeline, Rows

_T = TypeVar("_T")

ENGINE_ERRORS: tuple[type[Exception], ...] = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    asyncio.TimeoutError,
    asyncio.IncompleteReadError,
)
"""What a statement can raise."""

CONNECTION_ERRORS: tuple[type[Exception], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.exceptions.AdminShutdownError,
    asyncpg.exceptions.CrashShutdownError,
    asyncpg.exceptions.CannotConnectNowError,
    asyncpg.exceptions.TooManyConnectionsError,
    OSError,
    asyncio.TimeoutError,
    asyncio.IncompleteReadError,
)
"""Those after which the connection is lost and another one may work."""

_CONNECT_S = 10.0
_FIRST_RETRY_S = 0.05
_QUOTED_OR_MARK = re.compile(r"'(?:[^']|'')*'|\?")


def is_connection_error(error: BaseException) -> bool:
    """Whether ``error`` means that the connection is lost."""
    return isinstance(error, CONNECTION_ERRORS)


def masked(url: str) -> str:
    """The URL without its password, however oddly that is written."""
    scheme, _, rest = url.partition("://")
    userinfo, at, place = rest.rpartition("@")
    place, question, query = place.partition("?")
    kept = [
        item
        for item in query.partition("#")[0].split("&")
        if "pass" not in unquote(item.partition("=")[0]).casefold()
    ]
    user = userinfo.partition(":")[0]
    return f"{scheme}://{user}{at}{place.partition('#')[0]}" + (
        question + "&".join(kept) if any(kept) else ""
    )


@functools.lru_cache(maxsize=1024)
def numbered(sql: str) -> str:
    """A portable statement with PostgreSQL's placeholders: ``?`` becomes ``$1``, ``$2``, …"""
    count = 0

    def number(match: re.Match[str]) -> str:
        nonlocal count
        if match[0] != "?":
            return match[0]
        count += 1
        return f"${count}"

    return _QUOTED_OR_MARK.sub(number, sql)


async def connect(url: str, statement_s: float | None, **settings: str) -> asyncpg.Connection[Any]:
    """A connection that commits durably, in UTC, and gives up on a silent server."""
    return await asyncpg.connect(
        url,
        timeout=_CONNECT_S,
        command_timeout=statement_s,
        server_settings={
            "application_name": "remit",
            "synchronous_commit": "on",
            "timezone": "UTC",
            **settings,
        },
    )


class Answer:
    """Rows that were asked for; looked at, all that were asked with them are waited for."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.rows: Rows | None = None

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        if self.rows is None:
            self._writer.flush()
        if self.rows is None:
            raise asyncpg.InterfaceError("the connection was lost before the answer came")
        return iter(self.rows)


class Writer:
    """One connection, used by one thread at a time, with an event loop of its own.

    Args:
        url: of the database.
        statement_s: how long one statement may take, in seconds; ``None`` for ever.
        settings: of the session.
    """

    def __init__(self, url: str, *, statement_s: float | None = None, **settings: str) -> None:
        self._url = url
        self._statement_s = statement_s
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._pipeline: Pipeline | None = None
        self._answers: list[tuple[int, Answer]] = []

    def connect(self) -> bool:
        """Connect, where that is not so; a broken connection is dropped first. Whether it did."""
        if self._pipeline is not None and not self._pipeline.is_lost:
            return False
        self._pipeline = self._run(self._connect)
        return True

    def _connect(self) -> Pipeline:
        made = connect(self._url, self._statement_s, bytea_output="hex", **self._settings)
        return Pipeline(self._loop.run_until_complete(made), self._loop, self._statement_s)

    def drop(self) -> None:
        """Drop the connection, and what was put on it."""
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None
            self._answers.clear()

    def put(self, sql: str, *rows: Sequence[Any]) -> int:
        """Have one portable statement done for each of ``rows``, before the next that is waited
        for; returns its place among those that were put."""
        return self._open().put(numbered(sql), rows)

    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> Answer:
        """Rows of one portable statement, in one round trip with all that are asked before any is
        looked at."""
        answer = Answer(self)
        self._answers.append((self.put(sql, parameters), answer))
        return answer

    def fetch(self, sql: str, parameters: Sequence[Any] = ()) -> Rows:
        """Rows of one portable statement, and all that was put and asked before it done."""
        place = self.put(sql, parameters)
        return self.flush()[place]

    def flush(self) -> list[Rows]:
        """Have done what was put and asked, and know that it was."""
        answers, self._answers = self._answers, []
        rows = self._run(self._open().exchange)
        for place, answer in answers:
            answer.rows = rows[place]
        return rows

    def discard(self) -> None:
        """Forget what was put and asked, and not sent."""
        self._answers.clear()
        self._open().discard()

    def script(self, sql: str) -> None:
        """Several statements without parameters, in one go."""
        self._run(lambda: self._open().script(sql))

    def close(self) -> None:
        """Close the connection and the loop."""
        self.drop()
        self._run(lambda: self._loop.run_until_complete(asyncio.sleep(0)))  # lets transports end
        self._loop.close()

    def _open(self) -> Pipeline:
        if self._pipeline is None:
            raise asyncpg.InterfaceError("there is no connection")
        return self._pipeline

    def _run(self, wait: Callable[[], _T]) -> _T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return wait()
        # Opened or closed by a coroutine: its thread may not run a second loop.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(wait).result()


class Pool:
    """Read-only connections for any thread, also one whose event loop is running.

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
        self._closing = False
        self._lock = threading.Lock()  # nothing is put on the loop once it is to stop

    def open(self) -> None:
        """Make the first connection; raises what :func:`connect` raises."""
        self._pool = self._call(self._make)

    def fetch(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of one portable statement; a lost connection is replaced, reading does no harm."""
        end = time.monotonic() + self._retry_s
        delay = _FIRST_RETRY_S
        while True:
            try:
                rows = self._call(lambda: self._fetch(sql, parameters))
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
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _make(self) -> asyncpg.Pool[Any]:
        return await asyncpg.create_pool(
            self._url,
            min_size=0,
            max_size=self._size,
            timeout=_CONNECT_S,
            command_timeout=self._retry_s + _CONNECT_S,
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
