"""The stdio transport: one JSON message a line, bounded, with nothing of it in any log.

The SDK's own transport bounds neither a message nor the time to stop, logs what it cannot parse,
and leaves children of a server that ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from remit.agents.tools.mcp.process import ServerProcess

__all__ = ["Streams", "stdio_streams"]

Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]

_CHUNK = 65536
_WAITING_LINES = 64
_LAST_READS = 32


@asynccontextmanager
async def stdio_streams(
    process: ServerProcess, limit: int, patience_s: float, ended: Callable[[str], None]
) -> AsyncIterator[Streams]:
    """Messages from and to a process, which is stopped at the end.

    Args:
        process: the server.
        limit: longest message from it, bytes.
        patience_s: see :meth:`ServerProcess.stop`.
        ended: called, once, with the reason why no more messages will come; empty when the
            server closed its stdout.
    """
    send, receive = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sending, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    lines = _Lines(process.stdout, limit)
    _watch_errors(process)
    tasks = [
        asyncio.ensure_future(_receive(lines, send, ended)),
        asyncio.ensure_future(_send(process.stdin, to_send)),
    ]
    try:
        yield receive, sending
    finally:
        await _uncancelled(_end(process, lines, tasks, patience_s))  # it must not outlive us
        for stream in (send, receive, sending, to_send):
            stream.close()


async def _end(
    process: ServerProcess, lines: _Lines, tasks: list[asyncio.Task[None]], patience_s: float
) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    lines.close()
    try:
        await process.stop(patience_s)
    finally:
        asyncio.get_running_loop().remove_reader(process.stderr)
        for _ in range(_LAST_READS):
            if not _read_errors(process):
                break
        process.close()


async def _uncancelled(work: Coroutine[Any, Any, None]) -> None:
    """Await ``work`` to its end, also when cancelled."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()


async def _receive(
    lines: _Lines,
    send: MemoryObjectSendStream[SessionMessage | Exception],
    ended: Callable[[str], None],
) -> None:
    problem = ""
    try:
        async for line in lines:
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                continue  # a server that prints to stdout; what it says may be secret
            await send.send(SessionMessage(message))
        problem = lines.problem
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    finally:
        send.close()
        ended(problem)


async def _send(number: int, to_send: MemoryObjectReceiveStream[SessionMessage]) -> None:
    loop = asyncio.get_running_loop()
    async for item in to_send:
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        left = memoryview(text.encode("utf-8", "replace") + b"\n")
        while left:
            try:
                left = left[os.write(number, left) :]
            except BlockingIOError:
                writable = loop.create_future()
                loop.add_writer(number, _wake, writable)
                try:
                    await writable
                finally:
                    loop.remove_writer(number)
            except OSError:
                return  # it is gone; the end of its stdout says so to everybody


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Lines:
    """Lines from a descriptor that does not block; reading rests while too many wait."""

    def __init__(self, number: int, limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._number = number
        self._limit = limit
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._rest = bytearray()
        self._reading = self._over = False
        self.problem = ""
        self._read_on()

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> bytes:
        line = await self._waiting.get()
        if line is None:
            raise StopAsyncIteration
        if not self._over and not self._reading and self._waiting.qsize() < _WAITING_LINES:
            self._read_on()
        return line

    def close(self) -> None:
        """Read no more."""
        self._over = True
        self._pause()

    def _read_on(self) -> None:
        self._reading = True
        self._loop.add_reader(self._number, self._read)

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._number)

    def _read(self) -> None:
        try:
            chunk = os.read(self._number, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._end("")
            return
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._waiting.put_nowait(bytes(self._rest + line))
            self._rest.clear()
        self._rest += rest
        if len(self._rest) > self._limit:
            self._end(f"It sent a message of more than {self._limit:,} bytes.")
        elif self._waiting.qsize() >= _WAITING_LINES:
            self._pause()

    def _end(self, problem: str) -> None:
        self.problem = problem
        self.close()
        self._waiting.put_nowait(None)


def _watch_errors(process: ServerProcess) -> None:
    loop = asyncio.get_running_loop()

    def read() -> None:
        if _read_errors(process) is None:
            loop.remove_reader(process.stderr)

    loop.add_reader(process.stderr, read)


def _read_errors(process: ServerProcess) -> bool | None:
    """Read from stderr: true when there was something, ``None`` at its end."""
    try:
        chunk = os.read(process.stderr, _CHUNK)
    except BlockingIOError:
        return False
    except OSError:
        return None
    process.listen(chunk)
    return True if chunk else None
