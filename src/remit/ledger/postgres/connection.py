"""Connections to PostgreSQL: pipelined statements, errors, and URLs.

psycopg's own pipeline costs about five times the processor time for each statement, so the writer
sends statements through ``psycopg.pq``, psycopg's documented layer over libpq.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import select
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, unquote_plus

import psycopg
from psycopg.adapt import AdaptersMap, Dumper, PyFormat, Transformer
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import TextLoader
from typing_extensions import override

if TYPE_CHECKING:
    from psycopg.abc import Buffer
    from psycopg.pq.abc import PGconn, PGresult

Rows = list[tuple[Any, ...]]

ENGINE_ERRORS: tuple[type[Exception], ...] = (psycopg.Error, OSError, UnicodeEncodeError)
"""The classes of all errors that a statement can raise."""

CONNECT_S = 10
_MAX_STATEMENTS = 512
_SETTINGS = {"synchronous_commit": "on", "timezone": "UTC", "bytea_output": "hex"}
_LIBPQ = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
_LIBPQ_NAMES = {"database": "dbname", "ssl": "sslmode"}
_SOCKETS = "/run/postgresql,/var/run/postgresql,/tmp,localhost"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_QUOTED_OR_MARK = re.compile(r"'(?:[^']|'')*'|\?")
_UNAVAILABLE = {
    "57P01",
    "57P02",
    "57P03",
    "53300",
}  # stopped, crashed, starting, no connection is free
# libpq gives no SQLSTATE for a refused connection. Waiting does not help against these errors.
_NOT_ADMITTED = re.compile(
    r"does not exist|authentication failed|not permitted to log in|pg_hba\.conf|no such database"
    r"|permission denied|no password supplied|not currently accepting|missing \"=\"|invalid "
)


def is_connection_error(error: BaseException) -> bool:
    """Return True if the connection is lost or the server unavailable, so another one may work.

    An OSError, class 08 except 08P01, a stopped, starting or full server, FATAL and PANIC give
    True; a refused user, a missing database or a bad URL without an SQLSTATE, and other errors,
    False.

    Args:
        error: the error of a statement or of connecting.
    """
    if not isinstance(error, psycopg.Error):
        return isinstance(error, OSError)
    if state := error.sqlstate:
        is_broken = state in _UNAVAILABLE or (state.startswith("08") and state != "08P01")
        return is_broken or error.diag.severity_nonlocalized in ("FATAL", "PANIC")
    return isinstance(
        error, (psycopg.OperationalError, psycopg.InterfaceError)
    ) and not _NOT_ADMITTED.search(str(error))


def reason(error: BaseException) -> str:
    """Return the message of ``error`` on one line, without a final period; of psycopg the primary.

    Args:
        error: an error of the engine or any other; one without a text gives its type's name.
    """
    said = isinstance(error, psycopg.Error) and error.diag.message_primary
    return " ".join(str(said or error).split()).rstrip(".") or type(error).__name__


def masked(url: str) -> str:
    """Return a database URL for people: without passwords, and without the fragment.

    Query parameters with ``pass`` in their name are left out, all others stay. If the URL is
    ambiguous (``?`` in a password), ``…`` replaces all after the scheme, and any other text.

    Args:
        url: the URL, or any other text.
    """
    scheme = _SCHEME.match(url)
    if not scheme:
        return "…"
    place, _, query = url[scheme.end() :].partition("?")
    userinfo, at, hosts = place.rpartition("@")
    user, hosts = re.split("[:#]", userinfo)[0], hosts.partition("#")[0]
    items = [
        item
        for item in query.partition("#")[0].split("&")
        if item and "pass" not in unquote(item.partition("=")[0]).casefold()
    ]
    # A "?" in a password makes the rest of the password a query, and its beginning a port.
    is_split_password = not at and ":" in hosts and "@" in query
    if (
        is_split_password
        or re.search(r"[\s=]", user + hosts)
        or re.search(r"[\s@]", "".join(items))
    ):
        return f"{scheme[0]}…"
    return f"{scheme[0]}{user}{at}{hosts}" + ("?" + "&".join(items) if items else "")


@functools.lru_cache(maxsize=1024)
def numbered(sql: str) -> str:
    """Return a portable statement with PostgreSQL's placeholders: ``?`` becomes ``$1``, ``$2``…

    Question marks in single quotes stay; comments and double-quoted names are not recognised. The
    last 1,024 results are cached.

    Args:
        sql: a statement with ``?`` placeholders.
    """
    count = 0

    def number(match: re.Match[str]) -> str:
        nonlocal count
        if match[0] != "?":
            return match[0]
        count += 1
        return f"${count}"

    return _QUOTED_OR_MARK.sub(number, sql)


def without_settings(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL that libpq accepts, and the session settings in the given URL's query.

    Parameters unknown to libpq, such as ``search_path``, are settings. If neither URL nor
    environment names a host or service, the usual socket directories and ``localhost`` are added.
    ``database`` and ``ssl`` become ``dbname`` and ``sslmode``. User and password are quoted anew.

    Args:
        url: a PostgreSQL URL.

    Returns:
        The URL, and the unquoted settings by name.
    """
    base, _, query = url.partition("?")
    scheme, _, rest = base.partition("://")
    authority, slash, database = rest.partition("/")
    userinfo, at, hosts = authority.rpartition("@")
    user, colon, password = userinfo.partition(":")  # libpq refuses an "@" or "%" for itself
    items = [item.partition("=") for item in query.split("&") if item]
    named = [(_LIBPQ_NAMES.get(name, name), value) for name, _, value in items]
    kept = [f"{name}={value}" for name, value in named if name in _LIBPQ]
    said = {f"PG{name.upper()}" for name in dict(named)} | os.environ.keys()
    if not hosts and said.isdisjoint(("PGHOST", "PGHOSTADDR", "PGSERVICE")):
        kept.append(f"host={_SOCKETS}")
    userinfo = f"{quote(unquote(user))}{colon}{quote(unquote(password))}"
    libpq = f"{scheme}://{userinfo}{at}{hosts}{slash}{database}"
    settings = {name: unquote_plus(value) for name, value in named if name not in _LIBPQ}
    return f"{libpq}?{'&'.join(kept)}" if kept else libpq, settings


class _Number(Dumper):
    """A dumper of numbers and booleans as text whose type the server infers."""

    @override
    def dump(self, obj: Any) -> bytes:
        return str(+obj).encode()


_ADAPTERS = AdaptersMap(psycopg.adapters)
_ADAPTERS.register_dumper(int, Int8BinaryDumper)  # Elements of lists use this one.
_ADAPTERS.register_dumper(list, ListBinaryDumper)
for _kind in (int, bool, float):
    _ADAPTERS.register_dumper(_kind, _Number)
for _name in ("json", "jsonb"):
    _ADAPTERS.register_loader(_name, TextLoader)


class Answer:
    """A queued statement and its rows. The first iteration sends the writer's queue.

    Iterating raises psycopg.Error or OSError if a statement of the queue failed, or the connection
    was lost.

    Args:
        writer: the writer that sends the statement.

    Attributes:
        sql: the statement with PostgreSQL's placeholders.
        values: for each execution, the encoded parameters and their formats.
        rows: the rows of the last execution; ``None`` until the server has answered.
    """

    def __init__(
        self,
        writer: Writer,
        sql: str,
        values: Sequence[tuple[Sequence[Buffer | None], Sequence[int]]],
    ) -> None:
        self._writer = writer
        self.sql = sql
        self.values = values
        self.rows: Rows | None = None

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        if self.rows is None:
            self._writer.flush()
        if self.rows is None:
            raise psycopg.InterfaceError("the connection was lost before the answer came")
        return iter(self.rows)


class Writer:
    """A connection to PostgreSQL, used by a single thread at a time.

    The object connects with :meth:`connect` and ends with :meth:`drop`, after which it may connect
    again. Statements are queued, and sent with the next :meth:`fetch`, :meth:`flush`,
    :meth:`script` or iteration of an answer.

    Commits are durable and times are in UTC. A pooler in transaction mode gives each transaction
    another session, and reports another process id than the session that answers. Behind such a
    pooler each transaction begins with the settings, and no statement stays prepared.

    Args:
        url: URL of the database.
        statement_s: time limit of a round trip in seconds; ``None`` for no limit.
        settings: settings of the session, which override those of the URL.
    """

    def __init__(self, url: str, *, statement_s: float | None = None, **settings: str) -> None:
        self._url, of_url = without_settings(url)
        self._statement_s = statement_s
        self._settings = of_url | _SETTINGS | settings
        self._connection: psycopg.Connection[Any] | None = None
        self._is_pooled = False
        self._queue: list[Answer] = []
        self._prepared: dict[str, bytes] = {}
        self._names = itertools.count()
        self._types = Transformer(_ADAPTERS)

    def connect(self) -> bool:
        """Connect unless a connection is believed open; return True if this call connected.

        A new connection drops queued and prepared statements and gets the settings; behind a
        pooler, each transaction gets them instead. Connecting ends after 10 s for each host.

        Raises:
            psycopg.Error, OSError: the server cannot be reached, or refused the user or a setting.
        """
        if self._connection is not None and not self._connection.closed:
            return False
        self.drop()
        self._connection = psycopg.connect(
            self._url,
            autocommit=True,
            connect_timeout=CONNECT_S,
            application_name="remit",
            client_encoding="UTF8",
        )
        self._is_pooled = True
        try:
            ((pid,),) = self.fetch("SELECT pg_backend_pid()")
            self._is_pooled = pid != self._connection.info.backend_pid
            if not self._is_pooled:
                self.fetch(*self._set("false"))
        except BaseException:
            self.drop()
            raise
        return True

    def drop(self) -> None:
        """Close the connection and forget the queued statements.

        Does not wait for an answer; an open transaction is rolled back by the server.
        """
        self._queue.clear()
        self._prepared.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def put(self, sql: str, *rows: Sequence[Any]) -> None:
        """Queue a portable statement, to be run once for each of ``rows``; nothing is sent.

        Args:
            sql: the statement, with ``?`` placeholders.
            rows: parameters of each execution; ``()`` for a statement without parameters.

        Raises:
            psycopg.Error, UnicodeEncodeError: a value cannot be sent; nothing was queued.
        """
        self._queue.append(self._queued(sql, rows))

    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> Answer:
        """Queue a portable statement and return its answer.

        Iterating any answer sends the whole queue in one round trip.

        Args:
            sql: the statement, with ``?`` placeholders.
            parameters: values of the placeholders.

        Raises:
            psycopg.Error, UnicodeEncodeError: a value cannot be sent; nothing was queued.
        """
        answer = self._queued(sql, (parameters,))
        self._queue.append(answer)
        return answer

    def fetch(self, sql: str, parameters: Sequence[Any] = ()) -> Rows:
        """Run the queued statements and another in a single round trip; return the latter's rows.

        Args:
            sql: the last statement, with ``?`` placeholders.
            parameters: values of the placeholders.

        Raises:
            psycopg.Error, OSError: a statement failed, a value cannot be sent, there is no
                connection, or it was lost.
            UnicodeEncodeError: a text holds a lone surrogate.
        """
        return list(self.ask(sql, parameters))

    def flush(self) -> None:
        """Send the queued statements, if any, in a single round trip and read their answers.

        The queue is empty afterwards, also after an error; its answers then have no rows.

        Raises:
            psycopg.Error: a statement failed, and the server skipped those after it; or there is no
                connection, or it was lost, or closed after it did not answer in time.
            OSError: the connection broke.
        """
        queue, self._queue = self._queue, []
        connection = self._open()
        if not queue:
            return
        pgconn = connection.pgconn
        is_idle = pgconn.transaction_status == TransactionStatus.IDLE
        if self._is_pooled and is_idle:
            # The settings follow "BEGIN", whose isolation level must come before any query.
            settings, texts = self._set("true")
            queue.insert(int(queue[0].sql.startswith("BEGIN")), self._queued(settings, (texts,)))
        if len(self._prepared) >= _MAX_STATEMENTS and is_idle:
            self.script("DEALLOCATE ALL")
            self._prepared.clear()
        answers: list[Answer | None] = []
        prepared: dict[str, bytes] = {}
        pgconn.enter_pipeline_mode()
        for statement in queue:
            sql = statement.sql
            name = self._prepared.get(sql) or prepared.get(sql)
            if name is None:
                name = b"" if self._is_pooled else b"s%d" % next(self._names)
                pgconn.send_prepare(name, sql.encode())
                answers.append(None)
                if name:
                    prepared[sql] = name
            for values, formats in statement.values:
                pgconn.send_query_prepared(name, values, formats)
                answers.append(statement)
        pgconn.pipeline_sync()
        try:
            results = self._wait(len(answers) + 1)
        finally:
            if not connection.closed:
                pgconn.exit_pipeline_mode()
        self._prepared |= prepared
        for answer, result in zip(answers, results, strict=False):
            if answer is not None:
                self._types.set_pgresult(result)
                answer.rows = self._types.load_rows(0, result.ntuples, tuple)

    def discard(self) -> None:
        """Forget the queued statements."""
        self._queue.clear()

    def script(self, sql: str) -> None:
        """Run several statements as one query, after the queued statements; rows are discarded.

        Outside a transaction they take effect together or not at all, unless they begin one
        themselves, and a pooler may give them a session without the settings.

        Args:
            sql: the statements, separated by semicolons, without ``?`` placeholders.

        Raises:
            psycopg.Error, OSError: a statement failed, or there is no connection or it was lost.
        """
        if self._queue:
            self.flush()
        self._open().pgconn.send_query(sql.encode())
        self._wait(1)

    def interrupt(self) -> None:
        """Break the connection, so that a thread waiting for its answer gets an error.

        Any thread may call this. Without a connection nothing happens; errors are ignored. The
        connection object stays until :meth:`drop`.
        """
        connection = self._connection
        if connection is not None:
            with (
                contextlib.suppress(*ENGINE_ERRORS),
                socket.socket(fileno=os.dup(connection.fileno())) as wire,
            ):
                wire.shutdown(socket.SHUT_RDWR)

    def _wait(self, count: int) -> list[PGresult]:
        """Send libpq's buffer and return the last result of each of ``count`` statements.

        Raises:
            psycopg.Error: the first error. A connection that was lost, or did not answer in time,
                is closed.
        """
        connection = self._open()
        pgconn = connection.pgconn
        wire = select.poll()
        wire.register(pgconn.socket, select.POLLIN)
        results: list[PGresult] = []
        error: psycopg.Error | None = None
        limit = self._statement_s
        end = None if limit is None else time.monotonic() + limit
        try:
            # While the server does not read, its answers are read, so that neither side blocks.
            while pgconn.flush():
                wire.modify(pgconn.socket, select.POLLIN | select.POLLOUT)
                _pause(wire, pgconn, end)
            wire.modify(pgconn.socket, select.POLLIN)
            while len(results) < count:
                last = None
                while True:
                    while pgconn.is_busy():
                        _pause(wire, pgconn, end)
                    if (result := pgconn.get_result()) is None:
                        break
                    last = result
                    if result.status == ExecStatus.PIPELINE_SYNC:  # no None follows this one
                        break
                if last is None:
                    raise psycopg.OperationalError("the connection was lost")
                results.append(last)
                if error is None and last.status == ExecStatus.FATAL_ERROR:
                    error = psycopg.errors.error_from_result(last)
        except BaseException as lost:
            connection.close()  # A late answer would be read as that of the next statement.
            if error is not None and isinstance(lost, psycopg.Error):
                raise error from None
            raise
        if error is not None:
            raise error
        return results

    def _set(self, is_local: str) -> tuple[str, list[str]]:
        """Return the statement that makes the settings, and its parameters.

        Args:
            is_local: SQL for the end of the settings: ``true`` with the transaction.
        """
        calls = (
            f"set_config(${2 * place + 1}, ${2 * place + 2}, {is_local})"
            for place in range(len(self._settings))
        )
        values = [text for setting in self._settings.items() for text in setting]
        return f"SELECT {', '.join(calls)}", values

    def _queued(self, sql: str, rows: Iterable[Sequence[Any]]) -> Answer:
        dump = self._types.dump_sequence
        values = [
            (dump(row, [PyFormat.AUTO] * len(row)), self._types.formats or ()) for row in rows
        ]
        return Answer(self, numbered(sql), values)

    def _open(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            raise psycopg.InterfaceError("there is no connection")
        return self._connection


def _pause(wire: select.poll, pgconn: PGconn, end: float | None) -> None:
    """Wait until the connection can be read or written, and read the bytes that arrived.

    Raises:
        psycopg.OperationalError: the server did not answer until ``end`` on the monotonic clock.
    """
    events = wire.poll(None if end is None else max(0.0, end - time.monotonic()) * 1000)
    if not events:
        raise psycopg.OperationalError("the server did not answer in time")
    if events[0][1] & ~select.POLLOUT:
        pgconn.consume_input()
