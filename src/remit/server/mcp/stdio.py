"""MCP over standard input and output, for a client that starts Remit as its child process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_REQUEST,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from remit.kernel.errors import RemitError
from remit.kernel.loops import call_in_thread
from remit.kernel.settings import McpEndpointSettings
from remit.runtime import Runtime
from remit.server.authentication import open_keys
from remit.server.mcp.callers import LOCAL, Caller
from remit.server.mcp.gateway import serve_stream, served_by
from remit.server.mcp.messages import (
    MessageError,
    message_of,
)
from remit.server.mcp.server import all_tools, mcp_server

_CHUNK = 65536
_CANCELLED = "notifications/cancelled"
_Incoming = MemoryObjectSendStream[SessionMessage | Exception]
_Outgoing = MemoryObjectReceiveStream[SessionMessage | bytes]
_Serve = Callable[[Any, Any], Coroutine[Any, Any, None]]


def serve_stdio(root: Path, *, model: str | None = None, upstream: str = "", key: str = "") -> None:
    """Serve a root to the client at stdin and stdout, as its local operator.

    Returns when stdin ends, the client hangs up, or on SIGTERM or SIGINT; then the ledger is
    closed. Meanwhile stdout has only the protocol: other writes to it go to stderr.

    Args:
        root: an existing root.
        model: the default model; None for the configured one.
        upstream: the server of ``[mcp.NAME]`` to serve; empty for Remit's own tools.
        key: the client's virtual key; empty for the local operator.

    Raises:
        AuthenticationError: the key is not valid.
        RemitError: the root cannot be opened, or stdin or stdout is closed.
        ConfigError: the configuration is invalid, or names no server ``upstream``.
        ToolError: the rules of that server cannot be used.
        LedgerError: the ledger cannot be opened.
    """
    if sys.__stdin__ is None or sys.__stdout__ is None:
        raise RemitError(
            "Standard input or output is closed: there is no client to talk to.",
            next_step="Have an MCP client start `remit mcp`, or run `remit mcp --http`.",
        )
    with _own_stdio() as (incoming, outgoing), Runtime.open(root, model=model) as runtime:
        runtime.allow_without_limits(LOCAL)  # counted; the operator may limit it
        caller = Caller(LOCAL)
        if key:
            with open_keys(runtime) as keys:
                caller = Caller(keys.authenticate(key))
        serve = _upstream(runtime, upstream, caller) if upstream else _own_tools(runtime, caller)
        asyncio.run(_serve(runtime, serve, incoming, outgoing))


@contextmanager
def _own_stdio() -> Iterator[tuple[int, int]]:
    """Yield copies of the descriptors of stdin and stdout; redirect the originals."""
    incoming, outgoing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing if sys.__stderr__ is None else 2, 1)
    os.close(nothing)
    try:
        yield incoming, outgoing
    finally:
        # Neither copy is closed: a thread may still block on one, and would then read from or
        # write to what is opened next under its number.
        os.dup2(incoming, 0)
        os.dup2(outgoing, 1)


def _own_tools(runtime: Runtime, caller: Caller) -> _Serve:
    settings = runtime.loaded.settings
    server = mcp_server(all_tools(runtime), settings, lambda _: caller, single_caller=True)
    options = server.create_initialization_options()
    return lambda receive, send: server.run(receive, send, options)


def _upstream(runtime: Runtime, name: str, caller: Caller) -> _Serve:
    return partial(serve_stream, served_by(runtime, name), caller)


async def _serve(runtime: Runtime, serve: _Serve, incoming: int, outgoing: int) -> None:
    settings = runtime.loaded.settings
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        async with _streams(incoming, outgoing, settings.mcp_server) as (receive, send):
            await serve(receive, send)
    except (asyncio.CancelledError, BaseExceptionGroup):
        # A group: of the messages that were being passed on when it was stopped.
        if not stopped:
            raise
        task.uncancel()
    finally:
        await runtime.aclose()


class _Pending:
    """Unanswered requests, and answers that the client has not read."""

    def __init__(self, answers: MemoryObjectSendStream[SessionMessage | bytes], most: int) -> None:
        self._answers = answers
        self._most = most
        self._open: set[RequestId] = set()
        self._progress = asyncio.Event()

    def received(self, message: JSONRPCMessage) -> None:
        """Note a message; a cancelled request needs no answer."""
        if isinstance(message, JSONRPCRequest):
            self._open.add(message.id)
        elif isinstance(message, JSONRPCNotification) and message.method == _CANCELLED:
            cancelled = (message.params or {}).get("requestId")
            if isinstance(cancelled, (int, str)):
                self._open.discard(cancelled)

    def written(self, message: JSONRPCMessage) -> None:
        """Note a message that was written."""
        if isinstance(message, (JSONRPCResponse, JSONRPCError)) and message.id is not None:
            self._open.discard(message.id)
        self._progress.set()

    async def wait_for_room(self) -> None:
        """Wait while too many answers are unread, so that they do not fill the memory."""
        while self._answers.statistics().tasks_waiting_send >= self._most:
            self._progress.clear()
            await self._progress.wait()

    async def wait_until_answered(self) -> None:
        """Wait until every request is answered."""
        while self._open:
            self._progress.clear()
            await self._progress.wait()


@asynccontextmanager
async def _streams(incoming: int, outgoing: int, own: McpEndpointSettings) -> AsyncIterator[Any]:
    """Yield the streams that the SDK's server reads from and writes to.

    The SDK's own streams limit neither lines nor unread answers, ignore malformed messages, and
    keep a stopped process alive until its client closes stdin.
    """
    to_server, receive = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    send, to_client = anyio.create_memory_object_stream[SessionMessage | bytes](0)
    answers = send.clone()
    pending = _Pending(answers, own.max_unread)
    lines = _lines(incoming, own.max_message_bytes)
    reading = asyncio.ensure_future(_read(lines, to_server, answers, pending, own.drain_s))
    writing = asyncio.ensure_future(_write(outgoing, to_client, reading, pending))
    try:
        yield receive, send
    finally:
        reading.cancel()
        await asyncio.wait({reading})
        for stream in (to_server, receive, send, answers):
            stream.close()
        # Answers are written out; a client that does not read delays the end no longer than this.
        await asyncio.wait({writing}, timeout=own.drain_s)
        writing.cancel()
        await asyncio.wait({writing})
        to_client.close()


async def _read(
    lines: Iterator[bytes | None],
    to_server: _Incoming,
    answers: MemoryObjectSendStream[SessionMessage | bytes],
    pending: _Pending,
    drain_s: float,
) -> None:
    """Pass messages on; answer malformed ones with an error of JSON-RPC 2.0."""
    with to_server, contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            await pending.wait_for_room()
            # A thread that waits for input is abandoned when the server ends.
            line = await call_in_thread("remit-mcp-in", partial(next, lines, b""))
            if line is None:
                error = MessageError(INVALID_REQUEST, "The message is too long.")
                await answers.send(_line(error.answer))
            elif not line:  # closing the stream ends the calls that run
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(pending.wait_until_answered(), drain_s)
                return
            elif line.strip():
                try:
                    message = message_of(line)
                except MessageError as error:
                    await answers.send(_line(error.answer))
                    continue
                pending.received(message)
                await to_server.send(SessionMessage(message))


async def _write(
    outgoing: int, messages: _Outgoing, reading: asyncio.Task[None], pending: _Pending
) -> None:
    async for item in messages:
        try:
            await call_in_thread("remit-mcp-out", partial(_put, outgoing, _bytes_of(item)))
        except OSError:  # the client is gone
            reading.cancel()
            break
        if isinstance(item, SessionMessage):
            pending.written(item.message)
    async for _ in messages:
        pass


def _bytes_of(item: SessionMessage | bytes) -> bytes:
    if isinstance(item, bytes):
        return item
    return item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def _line(answer: Any) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def _put(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _lines(descriptor: int, limit: int) -> Iterator[bytes | None]:
    """Yield the lines of a descriptor with their ends; None for each that is too long. Blocks.

    A last line without its end may be incomplete, and is left out.

    Args:
        descriptor: an open file descriptor.
        limit: the largest number of bytes before a line's end.
    """
    buffer = bytearray()
    is_too_long = False
    searched = 0
    while True:
        end = buffer.find(b"\n", searched)
        if end >= 0:
            line = bytes(buffer[: end + 1])
            del buffer[: end + 1]
            yield None if is_too_long or end > limit else line
            is_too_long, searched = False, 0
            continue
        if len(buffer) > limit:
            buffer.clear()
            is_too_long = True
        searched = len(buffer)
        try:
            chunk = os.read(descriptor, _CHUNK)
        except OSError:
            return
        if not chunk:
            return
        buffer += chunk
