"""Between blocking and async code: one background loop, and daemon threads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["call_in_thread", "run_blocking"]

_T = TypeVar("_T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_pid = 0


def run_blocking(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run ``coroutine`` on the process's background loop and wait for its result."""
    return asyncio.run_coroutine_threadsafe(coroutine, _background()).result()


async def call_in_thread(name: str, function: Callable[[], _T]) -> _T:
    """Run ``function`` in a thread of its own and wait for its result.

    The thread is a daemon and is abandoned when the wait is cancelled: code that hangs
    neither blocks the loop nor keeps the process from ending, as a pool's threads would.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def settle(outcome: tuple[_T] | BaseException) -> None:
        if future.done():
            return
        if not isinstance(outcome, BaseException):
            future.set_result(outcome[0])
        elif isinstance(outcome, StopIteration):  # a future cannot carry one
            future.set_exception(RuntimeError("StopIteration"))
        else:
            future.set_exception(outcome)

    def work() -> None:
        try:
            outcome: tuple[_T] | BaseException = (function(),)
        except BaseException as error:  # noqa: BLE001 - goes to the one who waits
            outcome = error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await future


def _background() -> asyncio.AbstractEventLoop:
    global _loop, _pid
    with _lock:
        if _loop is None or _pid != os.getpid():
            _loop, _pid = asyncio.new_event_loop(), os.getpid()
            threading.Thread(target=_loop.run_forever, name="remit-loop", daemon=True).start()
        return _loop
