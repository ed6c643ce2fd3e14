"""A server process, and the stdio transport to it.

Messages are lines of JSON of limited length; no message is logged. The SDK's own transport limits
neither messages nor the time to stop, logs what it cannot parse, and leaves children of a server
that ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    jsonrpc_message_adapter,
)

from remit.agents.tools.definition import ToolError
from remit.kernel.json_splice import member
from remit.kernel.json_text import sound
from remit.kernel.settings import McpServerSettings

_Received = MemoryObjectSendStream[SessionMessage | Exception]

_UNREADABLE = "The answer is not JSON-RPC, or a number in it has too many digits to be read."
_CHUNK = 65536
_MAX_STDERR_BYTES = 8192
_MAX_LINES = 5
_MAX_LINE_CHARS = 300
_POLL_S = 0.01
_STDERR_WAIT_S = 0.5  # A process outside the server's group may hold its stderr open.
# Linux ends the server when the thread that started it ends, also after SIGKILL, when no code of
# this process runs any more. On other systems the server notices the end of its stdin.
_LAUNCH = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class ServerProcess:
    """A server's process in its own process group; started by :meth:`streams`.

    Making the object starts nothing. On Linux the process ends when the thread that started it
    ends.

    Args:
        settings: the server's settings.
        environment: the process's environment variables, in place of this process's.

    Attributes:
        child: the process; None before its start.

    Raises:
        ToolError: the program was not found.
    """

    def __init__(self, settings: McpServerSettings, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._environment = dict(environment)
        self._line = [_program(settings, environment), *settings.args]
        if sys.platform == "linux" and sys.executable:
            launch = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid())]
            self._line = [*launch, *self._line]
        self._stderr = b""
        self.child: Process | None = None

    def last_words(self) -> str:
        """Return the last five lines of the server's stderr, cut at 300 characters each.

        Blank lines do not count, and only the last 8 KiB are kept. Empty if it printed nothing. The
        text may contain secrets.
        """
        text = self._stderr.decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return "\n".join(line[:_MAX_LINE_CHARS] for line in lines[-_MAX_LINES:])

    @asynccontextmanager
    async def streams(self, ended: Callable[[str], None]) -> AsyncIterator[Any]:
        """Start the server and yield its streams (received, to send); stop the server at the end.

        To stop the server, its stdin is closed; if it still runs after ``stop_timeout_s``, its
        process group gets SIGTERM. At last the group gets SIGKILL in any case, for children. A
        cancellation does not interrupt this. Call it once. Text on stdout that is no message is
        dropped; an answer that cannot be read becomes an error of its request. A message longer
        than ``max_message_bytes`` ends the streams.

        Args:
            ended: called once when no more messages will come, with the reason; empty if the server
                closed its stdout, or the context ended.

        Raises:
            ToolError: the program cannot be started. Later ends of the server are not raised.
        """
        child = self.child = await self._started()
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        received, receive = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        send, to_send = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [
            asyncio.create_task(self._receive(child.stdout, received, ended)),
            asyncio.create_task(_send(child.stdin, to_send)),
        ]
        listening = asyncio.create_task(self._listen(child.stderr))
        try:
            yield receive, send
        finally:
            # The server must not outlive this process.
            await _uncancelled(self._end(child, tasks, listening))
            for stream in (received, receive, send, to_send):
                stream.close()

    async def _started(self) -> Process:
        try:
            return await asyncio.create_subprocess_exec(
                *self._line,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=self._environment,
                cwd=self._settings.cwd or None,
                start_new_session=True,
                limit=self._settings.max_message_bytes,
            )
        except (OSError, ValueError) as error:
            raise ToolError(
                f"{self._settings.command} cannot be started: {type(error).__name__}.",
                next_step="Check command, args and cwd.",
            ) from error

    async def _receive(
        self, stdout: asyncio.StreamReader, received: _Received, ended: Callable[[str], None]
    ) -> None:
        problem = ""
        try:
            while True:
                line = await stdout.readuntil()
                # Text that is not a message is dropped unlogged: it may be secret.
                for item in _batched(line):
                    if (message := _message(item)) is not None:
                        await received.send(SessionMessage(message))
        except asyncio.LimitOverrunError:
            limit = self._settings.max_message_bytes
            problem = f"The server sent a message of more than {limit:,} bytes."
        except (asyncio.IncompleteReadError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        finally:
            received.close()
            ended(problem)

    async def _listen(self, stderr: asyncio.StreamReader) -> None:
        while chunk := await stderr.read(_CHUNK):
            text = self._stderr + chunk
            if len(text) > _MAX_STDERR_BYTES:  # A cut within a line could split a secret.
                text = text[-_MAX_STDERR_BYTES:].partition(b"\n")[2]
            self._stderr = text

    async def _end(
        self, child: Process, tasks: list[asyncio.Task[None]], listening: asyncio.Task[None]
    ) -> None:
        """Close the server's stdin, wait, send SIGTERM to its group, wait, and send SIGKILL."""
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert child.stdin is not None
        child.stdin.close()
        for number in (None, signal.SIGTERM):
            if number is not None:
                _signal(child, number)
            if await self._exited(child):
                break
        _signal(child, signal.SIGKILL)  # Ends children that the server left behind.
        await self._exited(child)
        await asyncio.wait({listening}, timeout=_STDERR_WAIT_S)
        listening.cancel()
        child._transport.close()  # type: ignore[attr-defined] # closes pipes that a child still holds

    async def _exited(self, child: Process) -> bool:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._settings.stop_timeout_s
        while child.returncode is None:  # wait() would wait for pipes held by children too.
            if loop.time() >= end:
                return False
            await asyncio.sleep(_POLL_S)
        return True


def _message(line: bytes) -> JSONRPCMessage | None:
    """Return the message of a line; None for other text.

    Unpaired surrogates become U+FFFD. An answer that cannot be read becomes an error; dropping it
    would leave its request waiting for its time limit.
    """
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        pass
    if not line.lstrip().startswith(b"{"):
        return None
    with contextlib.suppress(ValueError, RecursionError):
        return jsonrpc_message_adapter.validate_python(sound(json.loads(line)), by_name=False)
    with contextlib.suppress(ValueError, IndexError, RecursionError):
        found = member(line, "id")
        answered = None if found is None else json.loads(line[found.value : found.end])
        if isinstance(answered, (int, str)) and member(line, "method") is None:
            error = ErrorData(code=PARSE_ERROR, message=_UNREADABLE)
            return JSONRPCError(jsonrpc="2.0", id=answered, error=error)
    return None


def _batched(line: bytes) -> list[bytes]:
    """Return the messages of a line; MCP 2025-03-26 lets servers send arrays of messages."""
    if not line.lstrip().startswith(b"["):
        return [line]
    try:
        return [json.dumps(one).encode() for one in json.loads(line)]
    except (ValueError, RecursionError):
        return []


async def _send(
    stdin: asyncio.StreamWriter, to_send: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    with contextlib.suppress(OSError):  # The server is gone; the end of its stdout is reported.
        async for item in to_send:
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            stdin.write(text.encode("utf-8", "replace") + b"\n")
            await stdin.drain()


async def _uncancelled(work: Coroutine[Any, Any, None]) -> None:
    """Await work to its end, even if cancelled."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()


def _signal(child: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _program(settings: McpServerSettings, environment: Mapping[str, str]) -> str:
    command = settings.command
    path = os.path.join(settings.cwd, command) if os.sep in command else command
    program = shutil.which(path, path=environment.get("PATH", os.defpath))
    if program is None:
        raise ToolError(
            f"The program {command!r} was not found.",
            next_step="Install it, or give its full path.",
        )
    return os.path.abspath(program)
