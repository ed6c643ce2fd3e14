"""Event loops: one background loop, daemon threads, closing, and work that a task repeats."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import functools
import logging
import os
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any, ParamSpec, Self, TypeVar

from remit.kernel.errors import InvalidInputError, RemitError

_P = ParamSpec("_P")
_T = TypeVar("_T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_pid = 0
_LONGEST_END_S = 10.0


_log = logging.getLogger("remit.kernel")


class Closeable(ABC):
    """A context manager that closes itself at its end, also in async code.

    Subclasses define :meth:`close`, whose errors are raised. In an ``async with`` block, it runs in
    a thread. A block gets the object itself.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    @abstractmethod
    def close(self) -> None:
        """Release all resources. Closing twice is harmless."""


def boot_time_s() -> float:
    """Return the seconds of a clock that nobody can set and that runs while the machine sleeps.

    Systems without such a clock have one that stands still meanwhile.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def abandon(task: asyncio.Future[Any]) -> None:
    """Let a task run to its end although nobody asks for its result; return at once.

    The task is not cancelled. Its error is discarded, which asyncio would print otherwise.

    Args:
        task: a running or finished task.
    """
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


def run_blocking(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run ``coroutine`` on the process's background loop; return its result or raise its error.

    The caller's thread waits. The loop runs in a daemon thread, which starts with the first use. If
    the wait is interrupted, the coroutine is cancelled, and its end is waited for at most ten
    seconds, so that it can release and record its work; then the interruption is raised.

    Args:
        coroutine: the coroutine, which is used up.

    Raises:
        InvalidInputError: called from the loop's own thread, where waiting would be for ever. The
            coroutine is closed.
    """
    loop, thread = _background()
    if threading.current_thread() is thread:
        coroutine.close()
        raise InvalidInputError(
            "A blocking call was made inside an asynchronous call.",
            next_step="Use the async form: aroute, aexecute or aturn.",
        )
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result()
    except BaseException:
        cancel_background(future)
        raise


def blocking(
    function: Callable[_P, Coroutine[Any, Any, _T]], *, is_brief: bool = False
) -> Callable[_P, _T]:
    """Return the form of an async function or method for callers without an event loop.

    The arguments, result and errors are those of ``function``, whose docstring the form bears.
    Called where an event loop runs, the form raises InvalidInputError: no other task of the loop
    would run until it returns. In the thread of Remit's own background loop it raises that error in
    any case.

    Args:
        function: the async function or method.
        is_brief: True if a running loop may wait for the result, as for one write.
    """
    async_name = function.__name__
    name = async_name.removeprefix("a").removesuffix("_")

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        if not is_brief and _has_running_loop():
            raise InvalidInputError(
                f"{name}() was called inside a running event loop and would block it.",
                next_step=f"Write `await …{async_name}(…)`.",
            )
        return run_blocking(function(*args, **kwargs))

    return call


def _has_running_loop() -> bool:
    """Return True if an event loop is running in the calling thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def start_background(coroutine: Coroutine[Any, Any, _T]) -> concurrent.futures.Future[_T]:
    """Start ``coroutine`` on the process's background loop; return without waiting.

    The loop runs in a daemon thread, which starts with the first use. An error that nobody asks for
    is not printed.

    Args:
        coroutine: the coroutine, which is used up.

    Returns:
        A future of the result, which can be waited for in any other thread, or cancelled.
    """
    loop, _ = _background()
    return asyncio.run_coroutine_threadsafe(_attended(coroutine), loop)


async def _attended(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Return the result of ``coroutine``.

    An error after the future was cancelled reaches nobody, and asyncio would print it.
    """
    if (task := asyncio.current_task()) is not None:
        abandon(task)
    return await coroutine


def cancel_background(future: concurrent.futures.Future[Any]) -> None:
    """Cancel a task of the background loop, and wait at most ten seconds for its end.

    The wait gives the task time to record its end, and includes other tasks that are being
    cancelled. A task that takes longer ends later, without an error here. A future that is done is
    left alone. In the loop's own thread there is no wait.

    Args:
        future: the future of the task, from :func:`start_background` or
            :func:`asyncio.run_coroutine_threadsafe`.
    """
    if future.done():
        return
    future.cancel()
    loop, thread = _background()
    if threading.current_thread() is thread:
        return  # The loop's own thread would wait for itself.

    async def others() -> None:
        me = asyncio.current_task()
        ending = [task for task in asyncio.all_tasks() if task is not me and task.cancelling()]
        if ending:
            await asyncio.wait(ending, timeout=_LONGEST_END_S)

    with contextlib.suppress(Exception):
        asyncio.run_coroutine_threadsafe(others(), loop).result(_LONGEST_END_S)


home: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("remit_home_loop", default=None)
"""The caller's loop, if the work runs on another loop; the caller's coroutines run on it."""


async def at_home(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run ``coroutine`` on the loop that :data:`home` names; return its result or raise its error.

    Without such a loop, or on it, the coroutine is simply awaited. Cancelling the wait cancels the
    coroutine.

    Args:
        coroutine: the coroutine, which is used up.

    Raises:
        RuntimeError: that loop is closed.
    """
    loop = home.get()
    if loop is None or loop is asyncio.get_running_loop():
        return await coroutine
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))


async def call_in_thread(name: str, function: Callable[[], _T]) -> _T:
    """Run ``function`` in a thread of its own; return its result or raise its error.

    The thread is a daemon. If the wait is cancelled, the function runs on and its result or error
    is dropped: code that hangs neither blocks the loop nor keeps the process from ending, as a
    pool's threads would. The function sees the caller's context variables, as they are now.

    Args:
        name: name of the thread.
        function: the function to run.

    Raises:
        RuntimeError: ``function`` raised ``StopIteration``, or an error that is no ``Exception``,
            such as ``SystemExit`` or ``CancelledError``; the message is the error's class.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def resolve(outcome: tuple[_T] | BaseException) -> None:
        if future.done():
            return
        if not isinstance(outcome, BaseException):
            future.set_result(outcome[0])
        elif isinstance(outcome, Exception) and not isinstance(outcome, StopIteration):
            future.set_exception(outcome)
        else:  # a future cannot carry StopIteration, and SystemExit would end the loop
            future.set_exception(RuntimeError(type(outcome).__name__))

    def work() -> None:
        try:
            outcome: tuple[_T] | BaseException = (function(),)
        except BaseException as error:  # noqa: BLE001 - goes to the caller who waits
            outcome = error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(resolve, outcome)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name=name, daemon=True).start()
    return await future


def _background() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    global _loop, _thread, _pid
    with _lock:
        if _loop is None or _thread is None or not _thread.is_alive() or _pid != os.getpid():
            _loop, _pid = asyncio.new_event_loop(), os.getpid()
            _thread = threading.Thread(
                target=_run_for_ever, args=(_loop,), name="remit-loop", daemon=True
            )
            _thread.start()
        return _loop, _thread


def _run_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop. A task that says ``sys.exit()`` ends itself, not the loop of all."""
    while not loop.is_closed():
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()
            return


async def repeat(work: Callable[[], Awaitable[object]], pause_s: float, failed: str) -> None:
    """Run ``work`` until the task is cancelled; an error is logged, and does not end the task.

    A RemitError is a warning with its message. Of any other Exception an error with its class, file
    and line is logged, without the text, which may quote secrets.

    Args:
        work: called without arguments.
        pause_s: seconds between the end of a run and the next; the first run is at once.
        failed: begins the line in the log, such as ``batches cannot be settled``.
    """
    while True:
        try:
            await work()
        except RemitError as error:
            _log.warning("%s: %s", failed, error.message)
        except Exception as error:  # noqa: BLE001 - the machine may lack threads or files for a moment
            # The error's own text may quote a token or a person.
            place = traceback.extract_tb(error.__traceback__)[-1]
            _log.error(
                "%s: %s in %s:%s", failed, type(error).__name__, place.filename, place.lineno
            )
        await asyncio.sleep(pause_s)
