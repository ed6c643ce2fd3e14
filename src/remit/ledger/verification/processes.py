"""Checks in this process, or in several at once."""

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
    """Runs checks on a store: in this process, or in those of a pool, each with one of its own."""

    def __init__(self, store: Store, pool: ProcessPoolExecutor | None, ahead: int) -> None:
        self._store = store
        self._pool = pool
        self._ahead = ahead  # of the consumer: memory stays flat

    def start(self, check: Callable[..., _T], *given: Any) -> Callable[[], _T]:
        """Begin one check; what is returned gives its result."""
        if self._pool is not None:
            return self._pool.submit(_check, check, given).result
        result = check(self._store, *given)
        return lambda: result

    def run(self, check: Callable[..., _T], ranges: Iterable[tuple[Any, ...]]) -> Iterator[_T]:
        """The result of a check for each of ``ranges``, in their order."""
        waiting: deque[Callable[[], _T]] = deque()
        for item in ranges:
            waiting.append(self.start(check, *item))
            if len(waiting) > self._ahead:
                yield waiting.popleft()()
        while waiting:
            yield waiting.popleft()()


@contextlib.contextmanager
def runner(reopen: Callable[[], Store], store: Store, jobs: int) -> Iterator[Runner]:
    """A runner of checks in ``jobs`` processes, each with a store that ``reopen`` opens."""
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


_STORE: list[Store] = []  # of a worker process


def _open(reopen: Callable[[], Store]) -> None:
    _STORE.append(reopen())


def _check(check: Callable[..., Any], item: tuple[Any, ...]) -> Any:
    return check(_STORE[0], *item)
