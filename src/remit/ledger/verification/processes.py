"""Running checks in this process, or in a pool of processes."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from remit.ledger.store import Store

_T = TypeVar("_T")


class Runner:
    """A runner of checks on a store, used inside :func:`runner`, which ends the processes.

    Args:
        store: the store for checks in this process.
        pool: processes, each with a store of its own; ``None`` runs checks in this process.
        ahead: number of results that may wait for the consumer.
    """

    def __init__(self, store: Store, pool: ProcessPoolExecutor | None, ahead: int) -> None:
        self._store = store
        self._pool = pool
        self._ahead = ahead  # The bound keeps memory constant.

    def start(self, check: Callable[..., _T], *given: Any) -> Callable[[], _T]:
        """Start a check in a process of the pool; return a function that waits for the result.

        Without a pool the check runs now, in this process, and its error is raised here. With a
        pool, the returned function raises the error, and BrokenProcessPool if a process died.

        Args:
            check: a function that takes a store, and ``given`` after it; a pool needs one that can
                be pickled.
            given: further arguments.
        """
        if self._pool is not None:
            return self._pool.submit(_check, check, given).result
        result = check(self._store, *given)
        return lambda: result

    def run(self, check: Callable[..., _T], ranges: Iterable[tuple[Any, ...]]) -> Iterator[_T]:
        """Yield the result of a check for each of ``ranges``, in order.

        At most ``ahead`` + 1 ranges are checked at a time. A check's error ends the iteration: with
        a pool in its place, without one before up to ``ahead`` finished results are yielded.

        Args:
            check: a function that takes a store, and the values of a range.
            ranges: arguments of each call.
        """
        waiting: deque[Callable[[], _T]] = deque()
        for item in ranges:
            waiting.append(self.start(check, *item))
            if len(waiting) > self._ahead:
                yield waiting.popleft()()
        while waiting:
            yield waiting.popleft()()


@contextlib.contextmanager
def runner(reopen: Callable[[], Store], store: Store, jobs: int) -> Iterator[Runner]:
    """Yield a runner of checks; end its processes afterwards, without starting further checks.

    Args:
        reopen: opens the store in a process of the pool; must be picklable.
        store: the store for checks in this process.
        jobs: number of processes; 1 uses this process alone.
    """
    if jobs == 1:
        yield Runner(store, None, 0)
        return
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_open,
        initargs=(reopen,),
    )
    try:
        yield Runner(store, pool, 3 * jobs)
    finally:
        pool.shutdown(cancel_futures=True)


_STORE: list[Store] = []  # The store of a worker process.


def _open(reopen: Callable[[], Store]) -> None:
    _STORE.append(reopen())


def _check(check: Callable[..., Any], item: tuple[Any, ...]) -> Any:
    return check(_STORE[0], *item)
