"""MCP over standard input and output, for a client that starts Remit as its child process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from mcp.server.stdio import stdio_server

from remit.kernel.errors import RemitError
from remit.kernel.event_loop import call_in_thread
from remit.kernel.json_text import sound
from remit.runtime import Runtime
from remit.server.authentication import open_keys
from remit.server.mcp.callers import LOCAL, Caller
from remit.server.mcp.gateway import serve_stream, served_by
from remit.server.mcp.server import all_tools, mcp_server

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
    limit = runtime.loaded.settings.mcp_server.max_message_bytes
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    streams: Any = _lines(incoming, limit), _Output(outgoing, stop)
    try:
        async with stdio_server(*streams) as (receive, send):
            await serve(receive, send)
    except (asyncio.CancelledError, BaseExceptionGroup):
        # A group: of the messages that were being passed on when it was stopped.
        if not stopped:
            raise
        task.uncancel()
    finally:
        await runtime.aclose()


async def _lines(descriptor: int, limit: int) -> AsyncIterator[str]:
    """Yield the client's lines; end at the end of the input or at a line above ``limit`` bytes.

    Unpaired surrogates become U+FFFD, so that their message is answered.
    """
    # Not closed: a thread that waits for input is abandoned when the server ends, and closing would
    # wait for it. The SDK's own thread would keep a stopped process alive.
    file = os.fdopen(descriptor, "rb", closefd=False)
    while line := await call_in_thread("remit-mcp-in", partial(file.readline, limit + 1)):
        if not line.endswith(b"\n"):
            return
        if b"\\ud" in line.lower():
            with suppress(ValueError, RecursionError):  # The SDK refuses such a line.
                line = json.dumps(sound(json.loads(line))).encode()
        yield line.decode("utf-8", "replace")


class _Output:
    """The client's input, as the SDK writes to it; ``stop`` is called when the client is gone."""

    def __init__(self, descriptor: int, stop: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._stop = stop

    async def write(self, text: str) -> None:
        """Write a message."""
        try:
            await call_in_thread("remit-mcp-out", partial(_put, self._descriptor, text.encode()))
        except OSError:
            self._stop()

    async def flush(self) -> None:
        """Do nothing: nothing is buffered."""


def _put(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
