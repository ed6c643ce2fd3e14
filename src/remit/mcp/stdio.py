"""Over standard input and output: for a client that starts Remit as its child."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from remit.blocking import call_in_thread
from remit.mcp.caller import LOCAL, Caller
from remit.mcp.server import all_offers, mcp_server
from remit.runtime import Runtime

__all__ = ["serve_stdio"]

_CHUNK = 65536
_Incoming = MemoryObjectSendStream[SessionMessage | Exception]
_Outgoing = MemoryObjectReceiveStream[SessionMessage]


def serve_stdio(root: Path, *, model: str | None = None) -> None:
    """Serve a root to the client at the other end of stdin and stdout, as its local operator.

    Returns when stdin ends, the client hangs up, or on SIGTERM or SIGINT; the ledger is closed
    then. While it runs, stdout carries the protocol alone: whatever else writes there, such as a
    library, is led to stderr.

    Args:
        root: an existing root.
        model: which model answers by default, instead of the configured one.

    Raises:
        RootError: the root cannot be opened.
        ConfigError: its configuration does not fit.
        LedgerError: its ledger cannot be opened.
    """
    with _own_stdio() as (incoming, outgoing), Runtime.open(root, model=model) as runtime:
        runtime.allow_without_limits(LOCAL)  # counted; the operator may limit it
        asyncio.run(_serve(runtime, incoming, outgoing))


@contextmanager
def _own_stdio() -> Iterator[tuple[int, int]]:
    """Descriptors of stdin and stdout for the protocol alone."""
    incoming, outgoing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield incoming, outgoing
    finally:
        # Neither copy is closed: a thread may still wait on one, and would then read from or
        # write to whatever is opened next under its number.
        os.dup2(incoming, 0)
        os.dup2(outgoing, 1)


async def _serve(runtime: Runtime, incoming: int, outgoing: int) -> None:
    settings = runtime.loaded.settings
    caller = Caller(LOCAL)
    server = mcp_server(all_offers(runtime), settings, lambda _: caller)
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
        own = settings.mcp_server
        streams = _streams(incoming, outgoing, own.max_message_bytes, own.drain_s)
        async with streams as (receive, send):
            await server.run(receive, send, server.create_initialization_options())
    except asyncio.CancelledError:
        if not stopped:
            raise
        task.uncancel()
    finally:
        await runtime.aclose()


@asynccontextmanager
async def _streams(incoming: int, outgoing: int, limit: int, drain_s: float) -> AsyncIterator[Any]:
    """What the SDK's server reads from and writes to."""
    to_server, receive = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    send, to_client = anyio.create_memory_object_stream[SessionMessage](0)
    answers = send.clone()
    reading = asyncio.ensure_future(_read(_Lines(incoming, limit), to_server, answers))
    writing = asyncio.ensure_future(_write(outgoing, to_client, reading))
    try:
        yield receive, send
    finally:
        reading.cancel()
        await asyncio.wait({reading})
        for stream in (to_server, receive, send, answers):
            stream.close()
        # What was answered goes out; a client that does not read holds up nobody's end.
        await asyncio.wait({writing}, timeout=drain_s)
        writing.cancel()
        await asyncio.wait({writing})
        to_client.close()


async def _read(
    lines: _Lines, to_server: _Incoming, answers: MemoryObjectSendStream[SessionMessage]
) -> None:
    """Hand over message by message; what is none is answered as JSON-RPC 2.0 has it."""
    with to_server, contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            # A thread that waits for input is left behind when the server ends.
            line = await call_in_thread("remit-mcp-in", lines.next)
            if line is None:
                await answers.send(_refused(INVALID_REQUEST, "The message is too long."))
            elif not line:
                return
            elif line.strip():
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except (ValueError, RecursionError):
                    await answers.send(_refused(PARSE_ERROR, "This line is no JSON-RPC message."))
                else:
                    await to_server.send(SessionMessage(message))


async def _write(outgoing: int, messages: _Outgoing, reading: asyncio.Task[None]) -> None:
    async for message in messages:
        text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
        data = text.encode() + b"\n"
        try:
            await call_in_thread("remit-mcp-out", partial(_put, outgoing, data))
        except OSError:  # the client is gone: nobody is left to answer
            reading.cancel()
            break
    async for _ in messages:
        pass


def _put(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _refused(code: int, why: str) -> SessionMessage:
    return SessionMessage(
        JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=code, message=why))
    )


class _Lines:
    """Lines of bounded length from a descriptor. Blocks."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self._descriptor = descriptor
        self._limit = limit
        self._buffer = bytearray()
        self._skipping = False

    def next(self) -> bytes | None:
        """The next line with its end; ``None`` for one that is too long; empty at the end."""
        looked = 0
        while True:
            end = self._buffer.find(b"\n", looked)
            if end >= 0:
                line = bytes(self._buffer[: end + 1])
                del self._buffer[: end + 1]
                skipped, self._skipping = self._skipping, False
                return None if skipped or end > self._limit else line
            if len(self._buffer) > self._limit:
                self._buffer.clear()
                self._skipping = True
            looked = len(self._buffer)
            try:
                chunk = os.read(self._descriptor, _CHUNK)
            except OSError:
                chunk = b""
            if not chunk:
                # Without its end a last line is not known to be whole.
                self._buffer.clear()
                return b""
            self._buffer += chunk
