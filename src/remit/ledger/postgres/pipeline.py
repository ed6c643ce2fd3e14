"""Statements that go out together on one connection and are answered together.

asyncpg makes the connection (addresses, passwords, TLS, a choice of servers), but waits for each
statement's answer before it sends the next. What is here speaks the extended query protocol on that
connection: any number of statements, then a message that asks for their answers. The server does
them in order, each in a snapshot of its own, and after an error none of the rest.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import asyncpg
from typing_extensions import override

from remit.ledger.postgres.values import readers_of, row_of, to_bind

_MOST_PREPARED = 512
_SYNC = b"S\x00\x00\x00\x04"
_EXECUTE = b"E\x00\x00\x00\x09\x00\x00\x00\x00\x00"  # all rows
_NOTHING = (b"\x00\x00",) * 3  # a Bind's formats, parameters and formats of rows
_int32 = struct.Struct("!i").pack
_read_int32 = struct.Struct("!i").unpack_from

Rows = list[tuple[Any, ...]]


class _Statement:
    """A prepared statement; ``readers`` of its rows' columns are known when it is described."""

    __slots__ = ("name", "readers")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.readers: list[Callable[[str], Any]] = []


class Pipeline(asyncio.Protocol):
    """What is spoken on a connection that asyncpg made.

    Args:
        connection: idle; nothing else uses it from now on.
        loop: the connection's, which runs only while answers are waited for.
        timeout_s: how long answers may take, in seconds; ``None`` for ever.
        settings: of each transaction, where ``is_pooled``.

    Attributes:
        is_pooled: whether each transaction may be in another session, of a pooler's. Then nothing
            is prepared for the next one, and each begins with the settings.
        is_lost: whether the connection is.
    """

    def __init__(
        self,
        connection: asyncpg.Connection[Any],
        loop: asyncio.AbstractEventLoop,
        timeout_s: float | None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.is_pooled = False
        self._settings = _set(settings or {})
        self._connection = connection
        self._loop = loop
        self._timeout_s = timeout_s
        self._transport: asyncio.Transport = connection._transport  # type: ignore[attr-defined]
        self._transport.set_protocol(self)
        self._names = 0
        self._prepared: dict[str, _Statement] = {}
        self._preparing: list[tuple[str, _Statement]] = []  # not known to the server yet
        self._out: list[bytes] = []
        self._asked: list[_Statement] = []
        self._in = bytearray()
        self._answered: list[Rows] = []
        self._rows: Rows = []
        self._described: list[_Statement] = []
        self._error: Exception | None = None
        self._answer: asyncio.Future[list[Rows]] | None = None
        self._is_idle = True  # outside a transaction
        self.is_lost = False

    # -- sending -----------------------------------------------------------------------

    def put(self, sql: str, rows: Sequence[Sequence[Any]]) -> int:
        """Have one statement done for each of ``rows``; the next :meth:`exchange` sends it.

        Returns:
            Where that gives the rows of the first of them.

        Raises:
            asyncpg.DataError, asyncpg.PostgresError: a parameter cannot be sent; nothing was put.
        """
        bound = [to_bind(parameters) for parameters in rows]
        if len(self._prepared) >= _MOST_PREPARED and self._is_idle and not self._out:
            self._prepared.clear()
            self.put("DEALLOCATE ALL", ((),))
        is_first = self.is_pooled and self._is_idle and not self._out
        begins = sql.startswith("BEGIN")
        if is_first and not begins:  # all up to the next Sync is one transaction
            self._put(self._settings, [_NOTHING])
        place = self._put(sql, bound)
        if is_first and begins:  # which may say of what kind: before anything is read
            self._put(self._settings, [_NOTHING])
        return place

    def _put(self, sql: str, bound: Sequence[Sequence[bytes]]) -> int:
        statement = None if self.is_pooled else self._prepared.get(sql)
        if statement is None:
            if self.is_pooled:
                statement = _Statement(b"")
            else:
                self._names += 1
                statement = self._prepared[sql] = _Statement(b"s%d" % self._names)
            self._preparing.append((sql, statement))
            self._add(b"P", statement.name, b"\x00", sql.encode(), b"\x00\x00\x00")
            self._add(b"D", b"S", statement.name, b"\x00")
        place = len(self._asked)
        for values in bound:
            self._add(b"B", b"\x00", statement.name, b"\x00", *values)
            self._out.append(_EXECUTE)
            self._asked.append(statement)
        return place

    def _add(self, kind: bytes, *parts: bytes) -> None:
        message = b"".join(parts)
        self._out += (kind, _int32(len(message) + 4), message)

    def exchange(self) -> list[Rows]:
        """Send what was put; returns the rows of each statement.

        Raises:
            asyncpg.PostgresError: a statement's; those after it were not done.
            OSError, asyncpg.PostgresConnectionError: the connection is lost.
        """
        self._out.append(_SYNC)
        return self._send()

    def script(self, sql: str, *, is_alone: bool) -> None:
        """Send several statements without parameters, or one alone, after what was put."""
        if self._out:
            self.exchange()
        if self.is_pooled and self._is_idle and not is_alone:
            sql = f"{self._settings}; {sql}"
        self._add(b"Q", sql.encode(), b"\x00")
        self._send()

    def _send(self) -> list[Rows]:
        # An error while asyncpg had it has no one left to report to.
        if self.is_lost or self._transport.is_closing():
            raise asyncpg.ConnectionDoesNotExistError("the connection is lost")
        self._answer = self._loop.create_future()
        timer = None
        if self._timeout_s is not None:
            timer = self._loop.call_later(
                self._timeout_s, self._fail, TimeoutError("no answer came")
            )
        self._transport.write(b"".join(self._out))
        self._out.clear()
        try:
            return self._loop.run_until_complete(self._answer)
        finally:
            if timer is not None:
                timer.cancel()
            if not self._answer.done():  # interrupted: what comes now would answer the next one
                self.close()

    def discard(self) -> None:
        """Forget what was put and not sent."""
        self._out.clear()
        self._asked.clear()
        for sql, _ in self._preparing:
            self._prepared.pop(sql, None)
        self._preparing.clear()

    def close(self) -> None:
        """End the connection, whatever it is doing."""
        self.is_lost = True
        self._connection.terminate()

    # -- answers -----------------------------------------------------------------------

    @override
    def data_received(self, data: bytes) -> None:
        received = self._in
        received += data
        at, end = 0, len(received)
        while end - at >= 5:
            after = at + 1 + _read_int32(received, at + 1)[0]
            if after > end:
                break
            self._read(received[at], bytes(received[at + 5 : after]))
            at = after
        del received[:at]

    def _read(self, kind: int, body: bytes) -> None:
        if kind == 0x44:  # DataRow
            if len(self._answered) < len(self._asked):
                self._rows.append(row_of(body, self._asked[len(self._answered)].readers))
        elif kind in b"CI":  # CommandComplete, EmptyQueryResponse
            self._answered.append(self._rows)
            self._rows = []
        elif kind == 0x31:  # ParseComplete
            self._described.append(self._preparing.pop(0)[1])
        elif kind == 0x54 and self._described:  # RowDescription
            self._described.pop().readers = readers_of(body)
        elif kind == 0x6E:  # NoData
            self._described.clear()
        elif kind == 0x45 and self._error is None:  # ErrorResponse
            fields = body.decode(errors="replace").split("\x00")
            self._error = asyncpg.PostgresError.new({f[0]: f[1:] for f in fields if f})
        elif kind == 0x5A:  # ReadyForQuery
            self._is_idle = body[0] == 0x49
            self._finish()

    def _finish(self) -> None:
        self.discard()
        answered, error, answer = self._answered, self._error, self._answer
        self._answered, self._error = [], None
        self._rows = []
        self._described.clear()
        if answer is not None and not answer.done():
            if error is None:
                answer.set_result(answered)
            else:
                answer.set_exception(error)

    def _fail(self, error: Exception) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(self._error or error)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        error = asyncpg.ConnectionDoesNotExistError("the server closed the connection")
        error.__cause__ = exc
        self._fail(error)


def _set(settings: Mapping[str, str]) -> str:
    """The statement that makes them the current transaction's."""
    calls = (f"set_config({_quoted(name)}, {_quoted(settings[name])}, true)" for name in settings)
    return f"SELECT {', '.join(calls)}"


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"
