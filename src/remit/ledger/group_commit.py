"""Group commit: units submitted while the disk is busy share the next transaction.

The thread that commits also signs a checkpoint when one is due.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Collection
from typing import Any

from typing_extensions import override

from remit.kernel.errors import RemitError
from remit.ledger.checkpoints import Checkpoints
from remit.ledger.clock import WALL_WATCH
from remit.ledger.errors import LedgerClosedError, LedgerError, LedgerRollbackError
from remit.ledger.store import Store, Unit, transact

_CLOCK_CHECK_S = 1.0
_MAX_BATCH = 512  # units in one transaction
_GATHER_S = 0.0003  # a commit waits up to this long for as many units as came before

_log = logging.getLogger("remit.ledger")


class _Waiter:
    """The result that a thread waits for.

    A waiter is lighter than a future: thousands are made in a second.
    """

    __slots__ = ("_done", "_result")

    def __init__(self) -> None:
        self._result: Any = None
        self._done = threading.Lock()
        self._done.acquire()

    def set_result(self, result: Any) -> None:
        self._result = result
        self._done.release()

    def result(self) -> Any:
        """Wait for the result; return or raise the result. Call once only."""
        self._done.acquire()
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result


class _Write(asyncio.Future[Any]):
    """The result that a task awaits.

    A cancelled task gets its ``CancelledError`` only when the write has ended, so its outcome is
    known.
    """

    @override
    def cancel(self, msg: Any = None) -> bool:
        return False


_Item = tuple[Unit, "_Waiter | asyncio.Future[Any]"]


class CheckpointSchedule:
    """Periodic signing of checkpoints in the writer's thread, which calls :meth:`tick` after each
    commit and when a checkpoint is due.

    Args:
        checkpoints: the checkpoints of the ledger.
        store: the store that the thread writes.
        every_entries: a checkpoint is due after this many new entries.
        every_s: a checkpoint is due this many seconds after :meth:`tick` first noticed new entries.
    """

    def __init__(
        self, checkpoints: Checkpoints, store: Store, *, every_entries: int, every_s: float
    ) -> None:
        self._checkpoints = checkpoints
        self._store = store
        self._every_entries = every_entries
        self._every_s = every_s
        self._covered: int | None = None  # not known before the first commit
        self._deadline: float | None = None

    def tick(self, *, closing: bool = False) -> float | None:
        """Sign and store a checkpoint if enough entries came since the last one, or enough seconds
        passed since the first of them was noticed.

        Failures that Remit raises are logged, and the next attempt waits for new entries; after a
        LedgerRollbackError the store checks its database again before the next write. Other
        exceptions are raised. Nothing happens before the store's first commit, or without new
        entries.

        Args:
            closing: True at the end, which makes a checkpoint due for any new entry.

        Returns:
            Seconds until the next call is due; ``None`` without new entries, as after an attempt to
            sign.

        Raises:
            LedgerError: the last stored checkpoint cannot be read.
        """
        if not self._store.size:
            return None
        if self._covered is None:
            latest = self._checkpoints.latest()
            self._covered = latest.checkpoint.size if latest else 0
        new = self._store.size - self._covered
        if new <= 0:
            return None
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._every_s
        if new >= self._every_entries or closing or now >= self._deadline:
            self._deadline = None
            try:
                self._checkpoints.sign_in(functools.partial(transact, self._store))
            except LedgerRollbackError as error:
                self._store.doubt()
                _log.error("%s", error)
            except RemitError as error:
                # The entries are on record; the next one due covers them.
                _log.warning("no checkpoint was written: %s", error)
            self._covered = self._store.size
            return None
        return self._deadline - now


class GroupCommitter:
    """A thread that commits all units together that were submitted since the last commit.

    The daemon thread starts with the object and ends with :meth:`close`. Units of one submitting
    thread are committed in their order of submission, or together; at most 512 share a transaction.
    An error of the store is raised to each unit of its transaction. About once a second, a commit
    also compares the wall clock and logs a change.

    Args:
        store: the store to write; no other thread may write it.
        schedule: signs checkpoints between commits; ``None`` for none.
    """

    def __init__(self, store: Store, schedule: CheckpointSchedule | None = None) -> None:
        self._store = store
        self._schedule = schedule
        # The condition of a queue.Queue costs more than all else here, and a timed get of a
        # SimpleQueue can wait for ever in CPython 3.11.
        self._lock = threading.Lock()
        self._items: deque[_Item] = deque()
        self._look_at = 0.0  # when to compare the wall clock again
        self._wanted = 0  # Number of items the thread waits for; 0 if it is not waiting.
        self._wake = threading.Lock()  # released to wake it
        self._wake.acquire()
        self._closed = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._work, name="remit-ledger", daemon=True)
        self._thread.start()
        self._thread_id = self._thread.ident

    def run(self, unit: Unit) -> Any:
        """Submit a unit and wait for the commit; return the unit's result, or raise its error.

        The ids, times and hashes of its entries are filled. The result is the list of the entries'
        ids, or that of the unit's call or step.

        Raises:
            LedgerClosedError: the committer is closed, or belongs to another process.
            LedgerError: called inside a transaction.
            LedgerWriteError: the store failed; nothing of the unit is recorded, unless a
                LedgerConnectionError says that the outcome is unknown.
            Exception: an error of the unit's own call, step or entries.
        """
        waiter = _Waiter()
        self.submit(unit, waiter)
        return unit.finish(waiter.result())

    def submit(self, unit: Unit, waiter: Any = None) -> asyncio.Future[Any]:
        """Submit one unit; return a future of the running loop, which cannot be cancelled.

        The future gets the unit's result once it is durable, or its error, as :meth:`run` returns
        and raises them. Its ``cancel`` does nothing and returns False. If the loop is closed first,
        the unit is committed and its result lost.

        Args:
            unit: the unit.
            waiter: receives and stands for the result, if a thread waits for it without a loop.

        Raises:
            LedgerClosedError: the committer is closed, or belongs to another process.
            LedgerError: called inside a transaction.
            RuntimeError: no event loop is running.
        """
        future: asyncio.Future[Any] = waiter or _Write(loop=asyncio.get_running_loop())
        if self._pid != os.getpid():  # before the lock: a fork may have copied it taken
            raise LedgerClosedError(
                "This ledger client was opened before a fork.",
                next_step="Open a new LedgerClient in the child process.",
            )
        if threading.get_ident() == self._thread_id:
            raise LedgerError(
                "A transaction of the ledger cannot wait for another one.",
                next_step="Inside transact(), append through the transaction that the function "
                "receives.",
            )
        with self._lock:
            if self._closed:
                raise LedgerClosedError
            self._items.append((unit, future))
            if 0 < self._wanted <= len(self._items):
                self._wanted = 0
                self._wake.release()
        return future

    def close(self) -> bool:
        """Commit pending units, sign a checkpoint for any new entries if there is a schedule, and
        wait for the thread's end.

        A failure to sign is logged. Units that are submitted later are refused. Closing twice is
        harmless. The store stays open.

        Returns:
            True when the thread has ended; False in a forked process, which does not have the
            thread and does nothing.
        """
        if self._pid != os.getpid():
            return False
        with self._lock:
            if not self._closed:
                self._closed = True
                if self._wanted:
                    self._wanted = 0
                    self._wake.release()
        self._thread.join()
        return True

    def _work(self) -> None:
        ended = False
        expected = 1
        wait_s: float | None = None
        while not ended:
            self._wait(1, wait_s)
            if 0 < len(self._items) < expected:
                # Writers released by the last commit are likely to be back in a moment.
                self._wait(expected, _GATHER_S)
            with self._lock:
                items = self._items
                if len(items) <= _MAX_BATCH:
                    batch, self._items = items, deque()
                else:
                    batch = deque(items.popleft() for _ in range(_MAX_BATCH))
                ended = self._closed and not self._items
            if batch:
                self._commit(batch)
                expected = min(len(batch) + len(self._items), _MAX_BATCH)
            if self._schedule is not None:
                try:
                    wait_s = self._schedule.tick(closing=ended)
                except Exception:  # noqa: BLE001 - the thread that writes must go on
                    wait_s = None
                    _log.exception("signing a checkpoint failed")

    def _wait(self, count: int, timeout_s: float | None) -> None:
        """Wait for ``count`` items, until the time limit or :meth:`close`."""
        with self._lock:
            if self._closed or len(self._items) >= count:
                return
            self._wanted = count
        if not self._wake.acquire(timeout=-1 if timeout_s is None else max(timeout_s, 0.0)):
            with self._lock:
                is_woken, self._wanted = not self._wanted, 0
            if is_woken:  # The wake-up came at the last moment.
                self._wake.acquire()

    def _commit(self, batch: Collection[_Item]) -> None:
        units, waiters = zip(*batch, strict=True)
        try:
            results = self._store.run(units)
        except BaseException as error:  # noqa: BLE001 - raised to every waiting caller
            results = [error] * len(batch)
        if (now := time.monotonic()) > self._look_at:
            self._look_at = now + _CLOCK_CHECK_S
            WALL_WATCH.look()
        # Waking a loop costs a system call: each is woken once.
        loops: dict[Any, list[tuple[Unit, _Write, Any]]] = {}
        for unit, waiter, result in zip(units, waiters, results, strict=True):
            if isinstance(result, StopIteration):  # A future cannot carry StopIteration.
                result = RuntimeError("a transaction raised StopIteration")
            if isinstance(waiter, _Waiter):
                waiter.set_result(result)
            else:
                loops.setdefault(waiter.get_loop(), []).append((unit, waiter, result))
        for loop, items in loops.items():
            try:  # noqa: SIM105 - every commit comes by here
                loop.call_soon_threadsafe(_resolve, items)
            except RuntimeError:  # the loop was closed
                pass


def _resolve(items: list[tuple[Unit, _Write, Any]]) -> None:
    for unit, future, result in items:
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result if unit.opener is not None else unit.finish(result))
