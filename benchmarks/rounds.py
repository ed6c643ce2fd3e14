"""Rounds in which the floor and ours take turns, and loops that count calls."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROUNDS = 5
SECONDS = 1.5


def alternate(scratch: Path, *measures: Callable[[Path], float]) -> list[list[float]]:
    """Floor, ours, floor, ours, …; each in a new directory, and the first round not counted."""
    rounds = [[measure(new_directory(scratch)) for measure in measures] for _ in range(ROUNDS + 1)]
    return [list(figures) for figures in zip(*rounds[1:], strict=True)]


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

    def work(deadline: float) -> None:
        while time.perf_counter() < deadline:
            call(next(numbers))

    with ThreadPoolExecutor(callers) as pool:
        started = time.perf_counter()
        for caller in [pool.submit(work, started + SECONDS) for _ in range(callers)]:
            caller.result()
        return next(numbers) / (time.perf_counter() - started)


def rate_of_tasks(callers: int, call: Callable[[int], Awaitable[object]]) -> float:
    """:func:`rate_of_threads` with the tasks of one event loop for threads."""
    return asyncio.run(rate_in_loop(callers, call))


async def rate_in_loop(callers: int, call: Callable[[int], Awaitable[object]]) -> float:
    """:func:`rate_of_tasks` in the event loop that runs already."""
    numbers = itertools.count()

    async def work(deadline: float) -> None:
        while time.perf_counter() < deadline:
            await call(next(numbers))

    started = time.perf_counter()
    await asyncio.gather(*(work(started + SECONDS) for _ in range(callers)))
    return next(numbers) / (time.perf_counter() - started)
