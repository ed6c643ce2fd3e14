"""Virtual time: one heap of events, the processes they belong to, and their loops and threads.

A process's event that comes due while it is paused waits until it goes on; one of a process that
was killed never happens. What blocks a thread (``time.sleep``, a transaction) is a greenlet that
gives way to the next event, so that the code of the product runs as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Callable, Coroutine
from itertools import count
from random import Random
from typing import Any

import greenlet

__all__ = ["Process", "World"]

_EPOCH_S = 1_800_000_000.0


class Process:
    """One process on a machine, with clocks of its own.

    Args:
        world: where it runs.
        machine: its number; processes of one machine see each other.
    """

    def __init__(self, world: World, machine: int) -> None:
        self.world, self.machine = world, machine
        self.pid = next(world.pids)
        self.started = str(round(world.now * 100) + self.pid)
        self.skew_s = world.random.choice((0.0, 0.0, world.random.uniform(-90, 90)))
        self.clock_base_s = world.random.uniform(1_000, 90_000)
        self.paused_until = 0.0
        self.cut_off_until = 0.0
        self.slept_s = 0.0  # suspended: its monotonic clock stood still
        self.dead = False
        self._unstarted: Coroutine[Any, Any, Any] | None = None
        self.loop = _Loop(self)
        self.threads: set[Any] = set()
        self.tasks: dict[asyncio.Task[Any], Any] = {}  # that are not done, with their coroutines
        world.processes.append(self)

    def run(self, main: Coroutine[Any, Any, Any]) -> None:
        """Start a task of its loop."""

        self._unstarted = main

        def start() -> None:
            self._unstarted = None
            self.loop.create_task(main).add_done_callback(self.world.note_failure)

        self.world.after(0, start, self)

    def spawn(self, work: Callable[[], Any]) -> None:
        """Start a thread."""
        thread = greenlet.greenlet(work, self.world.hub)
        self.threads.add(thread)

        def go() -> None:
            self.resume(thread)

        self.world.after(0, go, self)

    def resume(self, thread: Any) -> None:
        """Go on with a thread that gave way."""
        thread.switch()
        if thread.dead:
            self.threads.discard(thread)

    def monotonic(self) -> float:
        """Seconds of ``CLOCK_MONOTONIC``."""
        return self.world.now + self.clock_base_s - self.slept_s

    def boottime(self) -> float:
        """Seconds of ``CLOCK_BOOTTIME``."""
        return self.world.now + self.clock_base_s

    def wall_ns(self) -> int:
        """Its wall clock."""
        return int((_EPOCH_S + self.world.now + self.skew_s) * 1e9)

    @property
    def is_running(self) -> bool:
        """Whether it is neither dead nor paused."""
        return not self.dead and self.world.now >= self.paused_until

    def pause(self, for_s: float, *, suspended: bool) -> None:
        """Stop it; ``suspended``, its monotonic clock too."""
        self.paused_until = max(self.paused_until, self.world.now + for_s)
        if suspended:
            self.slept_s += for_s

    def kill(self) -> None:
        """End it, as ``kill -9`` does."""
        self.dead = True
        if self._unstarted is not None:
            self._unstarted.close()
        self.world.killed(self)


class World:
    """The simulation.

    Args:
        seed: decides all of it.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.events = 0
        self.pids = count(100)
        self.processes: list[Process] = []
        self.hub: Any = greenlet.getcurrent()
        self.current: Process | None = None
        self.violations: list[str] = []
        self.on_event: Callable[[], None] = lambda: None
        self._heap: list[tuple[float, int, Callable[[], None], Process | None]] = []
        self._numbers = count()

    def after(self, delay_s: float, call: Callable[[], None], of: Process | None = None) -> None:
        """Have something happen."""
        if of is None or not of.dead:
            heapq.heappush(self._heap, (self.now + delay_s, next(self._numbers), call, of))

    def sleep(self, for_s: float) -> None:
        """Block the calling thread."""
        process, thread = self.current, greenlet.getcurrent()
        assert process is not None
        assert thread is not self.hub, "the event loop would block"
        self.after(for_s, lambda: process.resume(thread), process)
        self.block()

    def block(self) -> None:
        """Give way until somebody resumes the calling thread."""
        process = self.current
        self.hub.switch()
        self.current = process

    def run(self, until_s: float, done: Callable[[], bool] = lambda: False) -> None:
        """Let events happen until then, or until all is done (looked at now and then)."""
        heap = self._heap
        look_at = 0
        while heap and heap[0][0] <= until_s:
            when, number, call, of = heapq.heappop(heap)
            self.now = max(self.now, when)
            if of is not None:
                if of.dead:
                    continue
                if of.paused_until > self.now:
                    heapq.heappush(heap, (of.paused_until, number, call, of))
                    continue
            self.events += 1
            self.current = of
            call()
            self.current = None
            self.on_event()
            if self.violations:
                return
            if self.events > look_at:
                look_at = self.events + 50
                if done():
                    return
        if not heap or heap[0][0] > until_s:
            self.now = max(self.now, until_s)

    def killed(self, process: Process) -> None:
        """Tell its threads, and whoever keeps something for it."""
        for thread in list(process.threads):
            if thread is not greenlet.getcurrent():
                thread.throw(greenlet.GreenletExit)
        process.threads.clear()
        # What is left of its coroutines ends now, not when a collection finds it. Their last
        # words reach nobody: the loop and the ledger of a dead process do nothing.
        self.current = process
        for coroutine in list(process.tasks.values()):
            for _ in range(3):  # where it waits once more as it ends
                with contextlib.suppress(BaseException):
                    coroutine.close()
                    break
        process.tasks.clear()
        self.current = None

    def violated(self, what: str) -> None:
        """Something that must never be."""
        self.violations.append(f"at {self.now:.3f} s: {what}")

    def note_failure(self, task: asyncio.Task[Any]) -> None:
        """A task that fails by anything but its own end is a fault of product or simulation."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.violated(f"a process ended with {type(error).__name__}: {error}")


class _Loop(asyncio.AbstractEventLoop):
    """What asyncio's tasks, futures and timeouts need of a loop."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def _do(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        if isinstance(handle, asyncio.TimerHandle):
            left = handle.when() - self.time()
            if left > 1e-6:  # the machine was suspended
                self._process.world.after(left, lambda: self._do(handle), self._process)
                return
        asyncio._set_running_loop(self)
        try:
            handle._run()
        finally:
            asyncio._set_running_loop(None)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, context)
        self._process.world.after(0, lambda: self._do(handle), self._process)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        self._process.world.after(max(delay, 0), lambda: self._do(handle), self._process)
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self.call_later(when - self.time(), callback, *args, context=context)

    def time(self) -> float:
        return self._process.monotonic()

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:  # type: ignore[override]
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name or "t", context=context)
        self._process.tasks[task] = coro
        task.add_done_callback(self._process.tasks.pop)
        return task

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        future = self.create_future()

        def work() -> None:
            try:
                result, error = func(*args), None
            except Exception as raised:
                result, error = None, raised
            self.call_soon(_settle, future, result, error)

        self._process.spawn(work)
        return future

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._process.dead

    def call_exception_handler(self, context: Any) -> None:
        pass  # tasks of processes that were killed


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
