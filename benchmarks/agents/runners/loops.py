"""Does a peer's loop over and over, by itself or with others at once, and tells how long it took.

The first run at each number of callers warms up and does not count. CPU is user and system time of
this process with all its threads. Prints one JSON object of lists, one figure for each number.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass

import uvloop

from benchmarks.agents.runners import script
from benchmarks.gateways.processes import core_busy_s

WARM_S = 1.0
Loop = Callable[[str], Awaitable[str]]


@dataclass
class Run:
    """What one run measured.

    Attributes:
        callers: loops at once.
        loops: done in the time that counts.
        all_loops: done with those of the warm-up.
        tools: how often tools ran, warm-up included.
        wall_ms: time of a loop that a caller of many waits for, divided among them.
        p50_ms, p99_ms: time from a loop's beginning to its end.
        cpu_ms: processor time of a loop.
        foreign: part of the time in which others had the cores that this process may run on.
    """

    callers: int
    loops: int
    all_loops: int
    tools: int
    wall_ms: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    foreign: float


async def measured(loop: Loop, callers: int, seconds: float) -> Run:
    """Run ``loop`` in as many tasks for so long.

    Raises:
        ValueError: an answer was not the upstream's.
    """
    numbers = itertools.count(1)
    began_with = script.runs

    async def work(deadline: float, times: list[float]) -> None:
        while time.perf_counter() < deadline:
            started = time.perf_counter()
            answer = await loop(script.question(next(numbers)))
            times.append(time.perf_counter() - started)
            if script.MARKER not in answer:
                raise ValueError(f"not the upstream's answer: {answer[:200]!r}")

    async def run(for_s: float) -> list[float]:
        times: list[float] = []
        deadline = time.perf_counter() + for_s
        await asyncio.gather(*(work(deadline, times) for _ in range(callers)))
        return times

    warm = await run(WARM_S)
    busy = core_busy_s(os.getpid())
    cpu, started = time.process_time(), time.perf_counter()
    times = await run(seconds)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - started
    busy = core_busy_s(os.getpid()) - busy
    return Run(
        callers,
        len(times),
        len(times) + len(warm),
        script.runs - began_with,
        1000 * wall / len(times),
        1000 * statistics.median(times),
        1000 * sorted(times)[len(times) * 99 // 100],
        1000 * cpu / len(times),
        max(0.0, busy - cpu) / wall,
    )


def main(begin: Callable[[str], AbstractAsyncContextManager[Loop]]) -> None:
    """The whole of a runner's program.

    Args:
        begin: makes the loop, given the upstream's base URL with ``/v1``, and cleans up after it.
    """
    url, callers, seconds = sys.argv[1:4]

    async def run() -> list[Run]:
        async with begin(f"{url}/v1") as loop:
            return [
                await measured(loop, int(number), float(seconds)) for number in callers.split(",")
            ]

    print(json.dumps([asdict(one) for one in uvloop.run(run())]), flush=True)
