"""Checks over many ranges, in this process or in several, results in order."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, TypeVar

from remit.ledger.opening import StoreAddress
from remit.ledger.store import Store

_T = TypeVar("_T")

Run = Callable[[Callable[..., _T], Iterable[tuple[Any, ...]]], Iterator[_T]]
"""Yields ``check(store, *range)`` for each range, in order."""


@contextlib.contextmanager
def runner(address: StoreAddress, store: Store, jobs: int) -> Iterator[Run[Any]]:
    """A runner of checks in ``jobs`` processes, each with a store of its own."""
    if jobs == 1:
        yield lambda check, ranges: (check(store, *item) for item in ranges)
        return
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_open,
        initargs=(address,),
    )

    def run(check: Callable[..., _T], ranges: Iterable[tuple[Any, ...]]) -> Iterator[_T]:
        waiting: deque[Future[_T]] = deque()
        for item in ranges:  # a few ahead of the consumer: memory stays flat
            waiting.append(pool.submit(_check, check, item))
            if len(waiting) > 3 * jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    try:
        yield run
    finally:
        pool.shutdown(cancel_futures=True)


_STORE: list[Store] = []  # of a worker process


def _open(address: StoreAddress) -> None:
    _STORE.append(address.open(create=False))


def _check(check: Callable[..., Any], item: tuple[Any, ...]) -> Any:
    return check(_STORE[0], *item)
