"""The processes of ``remit serve --workers N``, from their start to their end."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import RemitError
from remit.server.listener import Options

if TYPE_CHECKING:
    from remit.server.http_server import HttpServer

_log = logging.getLogger("remit.server")

_SPAWN = multiprocessing.get_context("spawn")
_PR_SET_PDEATHSIG = 1
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0
_STEADY_S = 60.0  # A worker that lived longer did not die of its start.
_MAX_FAILURES = 4  # Starts that may fail in succession while no worker answers.
_FAILED = 3
_STEP_BACK, _RELOAD = "step back", "reload"


class Workers:
    """Worker processes that share a listening socket.

    A worker that dies is replaced, with a growing pause. No worker outlives this process: each is
    killed when the process ends in any way. :meth:`run` is called once.

    Args:
        count: number of workers.
        options: options of each worker.
        listening: the socket.
    """

    def __init__(self, count: int, options: Options, listening: socket.socket) -> None:
        self._options = options
        self._listening = listening
        self._slots = [_Slot() for _ in range(count)]
        self._signals: list[int] = []
        self._stops = 0
        self._failures = 0
        self._why: RemitError = RemitError("The worker processes ended while they started.")
        self._to_reload: list[_Slot] = []
        self._taken = False  # True if one worker uses the new configuration.
        self._again = False  # True if a SIGHUP came during a reload.

    def run(self, ready: Callable[[], None]) -> bool:
        """Run the workers until an end signal. Blocks; call it in the main thread.

        SIGTERM and SIGINT end the workers, SIGHUP has one after the other read the configuration
        again. The handlers stay installed. The listening socket is closed at the first end signal.

        Args:
            ready: called once the first worker answers.

        Returns:
            True if all workers ended after the first signal; False if a second one came.

        Raises:
            RemitError: no worker runs, and one cannot start or four in succession died as they
                started.
        """
        woken, waking = socket.socketpair()
        with woken, waking:
            waking.setblocking(False)
            signal.set_wakeup_fd(waking.fileno())
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda number, _: self._signals.append(number))
            try:
                self._loop(woken, ready)
            finally:
                signal.set_wakeup_fd(-1)
                for slot in self._slots:
                    if slot.process is not None:
                        slot.process.kill()
                        slot.process.join()
        return self._stops < 2

    def _loop(self, woken: socket.socket, ready: Callable[[], None]) -> None:
        announced = False
        while True:
            while self._signals:
                self._take(self._signals.pop(0))
            for slot in self._slots:
                self._look_at(slot)
            if not announced and any(slot.ready for slot in self._slots):
                announced = True
                ready()
            running = [slot for slot in self._slots if slot.process is not None]
            if self._stops and not running:
                return
            if self._failures >= _MAX_FAILURES and not any(slot.ready for slot in running):
                raise self._why
            due = [slot.due for slot in self._slots if slot.process is None]
            left_s = max(0.0, min(due) - time.monotonic()) if due and not self._stops else None
            ends: list[Any] = [woken]
            for slot in running:
                assert slot.process is not None
                ends += [slot.process.sentinel, *([slot.pipe] if slot.pipe is not None else [])]
            if woken in wait(ends, left_s):
                woken.recv(4096)

    def _take(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._again = True
            self._reload_next()
            return
        self._stops += 1
        self._listening.close()  # Clients are refused as soon as the workers close theirs too.
        for slot in self._slots:
            if slot.process is not None and slot.process.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(slot.process.pid, signal.SIGTERM)

    def _reload_next(self) -> None:
        """Have the next worker read the configuration again, unless a worker is reading.

        A SIGHUP that comes during a reload starts another round for all workers.
        """
        if not self._to_reload and self._again and not self._stops:
            self._again = self._taken = False
            # A worker that is starting may have read the old one; it reloads when it is ready.
            running = [slot for slot in self._slots if slot.process is not None]
            self._to_reload = sorted(running, key=lambda slot: not slot.ready)
        if self._to_reload and (slot := self._to_reload[0]).ready and not slot.reads:
            slot.reads = True
            slot.tell(_RELOAD)

    def _look_at(self, slot: _Slot) -> None:
        for message in slot.messages():
            if message == "ready":
                slot.ready, self._failures = True, 0
                self._reload_next()
            elif isinstance(message, RemitError):
                self._why = message
                if not any(other.ready for other in self._slots):
                    self._failures = _MAX_FAILURES  # Another start would fail alike.
            elif slot in self._to_reload:
                self._reloaded(slot, str(message))
        process = slot.process
        if process is None:
            if not self._stops and slot.due <= time.monotonic():
                slot.start(self._options, self._listening)
        elif not process.is_alive():
            process.join()
            if not self._stops:
                self._died(slot, process.exitcode)
            slot.forget()
            if slot in self._to_reload:
                self._to_reload.remove(slot)
                self._reload_next()

    def _reloaded(self, slot: _Slot, problem: str) -> None:
        slot.reads = False
        self._to_reload.remove(slot)
        if not problem:
            self._taken = True
        elif not self._taken:
            self._to_reload.clear()  # Other workers would fail alike.
        else:
            slot.tell(_STEP_BACK)  # Its successor reads the new one.
        self._reload_next()

    def _died(self, slot: _Slot, status: int | None) -> None:
        how = f"by signal {-status}" if status is not None and status < 0 else f"with {status}"
        lived_s = time.monotonic() - slot.began
        if not slot.ready:
            self._failures += 1
            if self._failures > 1 and not self._why.next_step:
                self._why = RemitError(
                    f"The worker processes end while they start; the last one ended {how}.",
                    next_step="The log shows the reason.",
                )
        slot.wait_s = (
            0.0 if lived_s > _STEADY_S
            else min(_LONGEST_WAIT_S, max(_FIRST_WAIT_S, 2 * slot.wait_s))
        )  # fmt: skip
        slot.due = time.monotonic() + slot.wait_s
        _log.error("a worker ended %s; another starts in %.1f s", how, slot.wait_s)


class _Slot:
    """The place of a worker: its process, its pipe and the time of its next start."""

    def __init__(self) -> None:
        self.process: Any = None
        self.pipe: Connection | None = None
        self.ready = False
        self.reads = False  # True while the worker reads the configuration again.
        self.began = self.due = self.wait_s = 0.0

    def start(self, options: Options, listening: socket.socket) -> None:
        self.pipe, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(
            target=_work, args=(options, listening, theirs, os.getpid()), name="remit worker"
        )
        self.process.start()
        theirs.close()
        self.began = time.monotonic()

    def forget(self) -> None:
        if self.pipe is not None:
            self.pipe.close()
        self.process = self.pipe = None
        self.ready = self.reads = False

    def tell(self, message: object) -> None:
        if self.pipe is not None:
            with contextlib.suppress(OSError):
                self.pipe.send(message)

    def messages(self) -> list[object]:
        found: list[object] = []
        try:
            while self.pipe is not None and self.pipe.poll():
                found.append(self.pipe.recv())
        except (EOFError, OSError):
            self.pipe = None
        return found


def _work(options: Options, listening: socket.socket, parent: Connection, parent_id: int) -> None:
    """Serve a root in a worker process; exit with status 3 if the root cannot be opened."""
    _end_with(parent_id)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    from remit.server.current_application import Current
    from remit.server.http_server import HttpServer

    try:
        current = Current(options)
    except (RemitError, OSError) as error:  # OSError: the machine may lack file descriptors.
        parent.send(_plain(error))
        sys.exit(_FAILED)
    server = HttpServer(current, worker=True, started=lambda: parent.send("ready"))
    threading.Thread(target=_listen_to, args=(parent, server), daemon=True).start()
    server.run([listening])


def _listen_to(parent: Connection, server: HttpServer) -> None:
    """Carry out the parent's messages: reload, or stop accepting connections.

    The end of the pipe means that the parent died; this process is killed then.
    """

    def report(done: asyncio.Task[str]) -> None:
        if not done.cancelled():  # A server that is shut down cancels its reload.
            parent.send(done.result())

    def reload() -> None:
        server.reload().add_done_callback(report)

    try:
        while True:
            message = parent.recv()
            server.from_elsewhere(server.step_back if message == _STEP_BACK else reload)
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGKILL)


def _end_with(parent_id: int) -> None:
    """Have this process killed when its parent ends in any way."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_id:
        os._exit(_FAILED)


def _plain(error: RemitError | OSError) -> RemitError:
    """Return an error that can be sent to another process."""
    if isinstance(error, OSError):
        step = "Free the resource that has run out, such as open files (`ulimit -n`)."
        return RemitError(f"A worker cannot start: {error}.", next_step=step)
    return RemitError(error.message, next_step=error.next_step)
