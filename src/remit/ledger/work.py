"""Checks over many ranges, in this process or in several, results in order."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, TypeVar

from remit.ledger.opening import StoreAddress
from remit.ledger.report import Progress
from remit.ledger.store import Store

__all__ = ["Work"]

_T = TypeVar("_T")


class Work:
    """Runs checks over pieces.

    Args:
        address: where the ledger lies, for further processes to open it.
        store: the open ledger.
        jobs: processes.
        progress: told how far it is.
        total: how many rows there are in all.
    """

    def __init__(
        self,
        address: StoreAddress,
        store: Store,
        jobs: int,
        progress: Progress | None,
        total: int,
    ) -> None:
        self._store = store
        self._progress = progress
        self._total = total
        self._done = 0
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None
        if jobs > 1:
            self._pool = ProcessPoolExecutor(
                jobs,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_open_here,
                initargs=(address,),
            )

    def __enter__(self) -> Work:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self, check: Callable[..., _T], pieces: Iterable[tuple[Any, ...]]) -> Iterator[_T]:
        """``check(store, *piece)`` for each piece."""
        if self._pool is None:
            for piece in pieces:
                yield check(self._store, *piece)
            return
        waiting: deque[Future[_T]] = deque()
        for piece in pieces:  # a few ahead of what is taken: memory stays flat
            waiting.append(self._pool.submit(_check_here, check, piece))
            if len(waiting) > 3 * self._jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def advance(self, number: int) -> None:
        """Tell that so many rows more are done."""
        if self._progress is not None:
            self._done = min(self._done + number, self._total)
            self._progress(self._done, self._total)


_HERE: list[Store] = []


def _open_here(address: StoreAddress) -> None:
    _HERE.append(address.open(create=False))


def _check_here(check: Callable[..., Any], piece: tuple[Any, ...]) -> Any:
    return check(_HERE[0], *piece)
