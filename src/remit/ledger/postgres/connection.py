"""Connections to PostgreSQL for callers without an event loop."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import unquote, unquote_plus

import asyncpg

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

CONNECT_S = 10.0
_SETTINGS = {"synchronous_commit": "on", "timezone": "UTC", "bytea_output": "hex"}
_OF_A_CONNECTION = re.compile(
    "host|port|user|password|dbname|database|passfile|service|servicefile|ssl.*"
    "|target_session_attrs|krbsrvname|gsslib"
)
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
    """A connection with settings of its session, which gives up on a silent server."""
    return await asyncpg.connect(
        url,
        timeout=CONNECT_S,
        command_timeout=statement_s,
        server_settings={"application_name": "remit", **settings},
    )


def without_settings(url: str) -> tuple[str, dict[str, str]]:
    """A URL without the settings of a session in its query (``search_path``), and those."""
    base, _, query = url.partition("?")
    items = [item.partition("=") for item in query.split("&") if item]
    kept = [item for item in items if _OF_A_CONNECTION.fullmatch(item[0])]
    settings = {unquote_plus(item[0]): unquote_plus(item[2]) for item in items if item not in kept}
    rest = "&".join("".join(item) for item in kept)
    return f"{base}?{rest}" if rest else base, settings


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

    It commits durably, in UTC. A pooler that gives each transaction another session is noticed when
    it is connected: it knows no settings, or names another process than the one that answers. Then
    settings are those of each transaction, and no statement stays prepared.

    Args:
        url: of the database.
        statement_s: how long one statement may take, in seconds; ``None`` for ever.
        is_pooled: such a pooler is known to be there.
        settings: of the session.

    Attributes:
        is_pooled: whether there was one when it was connected the last time.
    """

    def __init__(
        self,
        url: str,
        *,
        statement_s: float | None = None,
        is_pooled: bool = False,
        **settings: str,
    ) -> None:
        self._url = url
        self._statement_s = statement_s
        self._settings = _SETTINGS | settings
        self._is_known = self.is_pooled = is_pooled
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
        plain, settings = without_settings(self._url)
        settings |= self._settings
        wait = self._loop.run_until_complete
        self.is_pooled = self._is_known
        if not self.is_pooled:
            try:
                connection = wait(connect(self._url, self._statement_s, **self._settings))
            except asyncpg.ProtocolViolationError:  # of PgBouncer, about settings
                self.is_pooled = True
        if self.is_pooled:
            connection = wait(connect(plain, self._statement_s))
        pipeline = Pipeline(connection, self._loop, self._statement_s, settings)
        if not self.is_pooled:
            try:
                pipeline.is_pooled = True
                pipeline.put("SELECT pg_backend_pid()", ((),))
                ((pid,),) = pipeline.exchange()[-1]
            except BaseException:
                pipeline.close()
                raise
            self.is_pooled = pid != connection.get_server_pid()
        pipeline.is_pooled = self.is_pooled
        return pipeline

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

    def script(self, sql: str, *, is_alone: bool = False) -> None:
        """Several statements without parameters, in one go; or one ``is_alone``, that may stand in
        no transaction, and without the settings of one where there is a pooler."""
        self._run(lambda: self._open().script(sql, is_alone=is_alone))

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
