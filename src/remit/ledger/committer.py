"""Group commit: whoever waits while the disk is busy shares the next transaction."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from remit.ledger.errors import LedgerClosedError, LedgerError
from remit.ledger.store import Unit

__all__ = ["GroupCommitter", "Keeper", "Pending"]

_log = logging.getLogger("remit.ledger")


class _Runs(Protocol):
    def run(self, units: Sequence[Unit]) -> list[Any]: ...


class Keeper(Protocol):
    """What wants to be done in the writer's thread besides."""

    def wait_s(self) -> float | None:
        """Seconds until :meth:`tick` should be called at the latest."""
        ...

    def tick(self, *, closing: bool = False) -> None:
        """Called after each commit, on time, and once at the end."""
        ...


class Pending:
    """A unit on its way. Lighter than a future: threads wait for it by the thousand a second.

    Args:
        future: of the event loop that waits, instead of a thread.
    """

    __slots__ = ("_future", "_gate", "_result")

    def __init__(self, future: asyncio.Future[Any] | None = None) -> None:
        self._future = future
        self._result: Any = None
        if future is None:
            self._gate = threading.Lock()
            self._gate.acquire()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that waits; ``None`` when a thread does."""
        return None if self._future is None else self._future.get_loop()

    def settle(self, result: Any) -> None:
        """Say what became of it, in the loop that waits; an exception is raised to who waits."""
        future = self._future
        if future is None:
            self._result = result
            self._gate.release()
        elif not future.done():
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

    def result(self) -> Any:
        """Wait until the unit is durable, or has failed; once only."""
        self._gate.acquire()
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result


class GroupCommitter:
    """One thread that feeds a store with all units that have come in since the last commit.

    Args:
        store: what commits them; its ``run`` is called from the thread only.
        max_batch: most units in one transaction.
        gather_s: how long a commit waits for as many units as came with the one before.
        keepers: what else is done in the thread.
    """

    def __init__(
        self,
        store: _Runs,
        *,
        max_batch: int,
        gather_s: float = 0.0,
        keepers: Sequence[Keeper] = (),
    ) -> None:
        self._store = store
        self._max_batch = max_batch
        self._gather_s = gather_s
        self._keepers = keepers
        self._lock = threading.Lock()
        self._inbox = _Inbox(self._lock)
        self._closed = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._work, name="remit-ledger", daemon=True)
        self._thread.start()

    def submit(self, unit: Unit) -> Pending:
        """Hand over one unit, for a thread to wait for."""
        return self._submit(unit, Pending())

    def enqueue(self, unit: Unit) -> asyncio.Future[Any]:
        """Hand over one unit; the future of the running loop that brings its result."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._submit(unit, Pending(future))
        return future

    async def asubmit(self, unit: Unit) -> Any:
        """Hand over one unit and wait for its result; who stops waiting does not stop it."""
        return await self.enqueue(unit)

    def _submit(self, unit: Unit, pending: Pending) -> Pending:
        if self._pid != os.getpid():  # before the lock: a fork may have copied it taken
            raise LedgerClosedError(
                "This ledger client was opened before a fork.",
                next_step="Open a new LedgerClient in the child process.",
            )
        if threading.current_thread() is self._thread:
            raise LedgerError(
                "A transaction of the ledger cannot wait for another one.",
                next_step="Inside transact(), append through the transaction that it hands over.",
            )
        with self._lock:
            if self._closed:
                raise LedgerClosedError("The ledger client is closed.")
            self._inbox.put((unit, pending))
        return pending

    def close(self) -> bool:
        """Commit what is waiting, then end the thread; returns when it has ended.

        ``False`` in a process that was forked off: the thread is not there, nor ours to end.
        """
        if self._pid != os.getpid():
            return False
        with self._lock:
            if not self._closed:
                self._closed = True
                self._inbox.put(None)
        self._thread.join()
        return True

    def _work(self) -> None:
        ended = False
        expected = 1
        while not ended:
            try:
                item = self._inbox.get(self._wait_s())
            except queue.Empty:
                self._tick()
                continue
            batch = []
            patience = time.monotonic() + self._gather_s
            while item is not None:
                batch.append(item)
                if len(batch) >= self._max_batch:
                    break
                try:
                    # Who was answered by the last commit is likely to be back in a moment.
                    left = patience - time.monotonic() if len(batch) < expected else 0.0
                    item = self._inbox.get(left)
                except queue.Empty:
                    break
            ended = item is None
            if batch:
                self._commit(batch)
                expected = min(len(batch) + len(self._inbox), self._max_batch)
            self._tick(closing=ended)

    def _wait_s(self) -> float | None:
        waits = [wait for keeper in self._keepers if (wait := keeper.wait_s()) is not None]
        return min(waits, default=None)

    def _tick(self, *, closing: bool = False) -> None:
        for keeper in self._keepers:
            try:
                keeper.tick(closing=closing)
            except Exception:  # noqa: BLE001 - the thread that writes must go on
                _log.exception("work after a commit failed")

    def _commit(self, batch: list[tuple[Unit, Pending]]) -> None:
        try:
            results = self._store.run([unit for unit, _ in batch])
        except BaseException as error:  # noqa: BLE001 - each waiting caller must hear of it
            results = [error] * len(batch)
        # Waking a loop costs a system call: each is woken once.
        told: dict[asyncio.AbstractEventLoop, list[tuple[Pending, Any]]] = {}
        for (_, pending), result in zip(batch, results, strict=True):
            if isinstance(result, StopIteration):  # which no future can carry
                result = RuntimeError("a transaction raised StopIteration")
            loop = pending.loop
            if loop is None:
                pending.settle(result)
            else:
                told.setdefault(loop, []).append((pending, result))
        for loop, items in told.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
                loop.call_soon_threadsafe(_settle_all, items)


class _Inbox:
    """What waits for the writer; ``None`` ends it.

    Not ``queue.SimpleQueue``: in CPython 3.11 a timed ``get`` whose time runs out at the wrong
    moment waits for ever.

    Args:
        lock: held by whoever calls :meth:`put`.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._items: deque[tuple[Unit, Pending] | None] = deque()
        self._ready = threading.Condition(lock)

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: tuple[Unit, Pending] | None) -> None:
        """Hand over one item."""
        self._items.append(item)
        self._ready.notify()

    def get(self, wait_s: float | None) -> tuple[Unit, Pending] | None:
        """The next item; waits up to ``wait_s`` seconds, ``None`` for ever.

        Raises:
            queue.Empty: there was none in time.
        """
        with self._ready:
            if self._items:
                return self._items.popleft()
            end = None if wait_s is None else time.monotonic() + wait_s
            while not self._items:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise queue.Empty
                self._ready.wait(left)
            return self._items.popleft()


def _settle_all(items: list[tuple[Pending, Any]]) -> None:
    for pending, result in items:
        pending.settle(result)
