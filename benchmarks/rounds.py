"""Rounds in which the floor and ours take turns, and loops that count calls."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

ROUNDS = 5
SECONDS = 1.5


def alternate(
    scratch: Path, floor: Callable[[Path], float], ours: Callable[[Path], float]
) -> tuple[list[float], list[float]]:
    """Floor, ours, floor, ours, …; each in a new directory, and the first round not counted."""
    figures = [(floor(new_directory(scratch)), ours(new_directory(scratch)))
               for _ in range(ROUNDS + 1)]  # fmt: skip
    bare, remit = zip(*figures[1:], strict=True)
    return list(bare), list(remit)


def new_directory(scratch: Path) -> Path:
    """An empty directory."""
    return Path(tempfile.mkdtemp(dir=scratch))


def rate_of_threads(callers: int, call: Callable[[int], object]) -> float:
    """Calls per second of that many threads, each beginning the next call when one returns.

    Args:
        callers: how many threads.
        call: is given a number that no other call is given.
    """
    numbers = itertools.count()
    deadline = time.perf_counter() + SECONDS

    def work() -> None:
        while time.perf_counter() < deadline:
            call(next(numbers))

    threads = [threading.Thread(target=work) for _ in range(callers)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return next(numbers) / (time.perf_counter() - started)


def rate_of_tasks(callers: int, call: Callable[[int], Awaitable[object]]) -> float:
    """:func:`rate_of_threads` with the tasks of one event loop for threads."""
    numbers = itertools.count()

    async def work(deadline: float) -> None:
        while time.perf_counter() < deadline:
            await call(next(numbers))

    async def all_of_them() -> float:
        started = time.perf_counter()
        await asyncio.gather(*(work(started + SECONDS) for _ in range(callers)))
        return next(numbers) / (time.perf_counter() - started)

    return asyncio.run(all_of_them())
