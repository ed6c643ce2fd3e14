"""``python -m benchmarks.resident [MINUTES]``: does the memory of a worker grow?

``remit serve`` with two workers answers mixed traffic at a fixed rate: whole and streamed answers,
both dialects and translations between them, new sessions, long prompts, refusals, failing
providers, and clients that hang up. Every few seconds the resident size of each worker is read.
The result is a curve, and for each worker the least-squares slope over the last two thirds of the
time, in MB an hour.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from benchmarks.machine import describe_machine
from benchmarks.overspend import MODELS, Installation
from benchmarks.torture.provider import provider

MOST_MB_AN_HOUR = 2.0
WORKERS = 2
LOOK_S = 10.0
ROWS = 15  # of the printed curve
Curves = dict[int, list[tuple[float, float]]]
"""By process id: minutes since the start, and MB."""
_PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
_KINDS = ("plain",) * 12 + ("slow", "refuse", "fail", "limit", "cut", "usage")


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the least-squares slope of pairs of x and y."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def resident_mb(pid: int) -> float:
    """Return the resident size of a process, in MB."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20


def workers_of(pid: int) -> list[int]:
    """Return the processes that answer: the children of the first one that import Remit."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = [int(child) for child in children]
    return [
        child for child in found
        if b"resource_tracker" not in Path(f"/proc/{child}/cmdline").read_bytes()
    ] or [pid]  # fmt: skip


class Traffic:
    """Mixed calls at a fixed rate.

    Attributes:
        statuses: how often each status was answered; 0 for calls whose client hung up.
    """

    def __init__(self, url: str, key: str, rate: float, seed: int) -> None:
        self._url = url
        self._key = key
        self._rate = rate
        self._source = random.Random(seed)
        self._sessions = [self._new_session() for _ in range(50)]
        self.statuses: Counter[int] = Counter()

    async def run(self, seconds: float) -> None:
        """Call for so many seconds."""
        end, due = time.monotonic() + seconds, time.monotonic()
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(timeout=timeout) as http, asyncio.TaskGroup() as group:
            under_way = asyncio.Semaphore(32)
            while time.monotonic() < end:
                await under_way.acquire()
                task = group.create_task(self._call(http))
                task.add_done_callback(lambda _: under_way.release())
                due = max(due + 1 / self._rate, time.monotonic() - 1)
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    @staticmethod
    def _new_session() -> str:
        return f"SES-{uuid.uuid4().hex[:16].upper()}"

    async def _call(self, http: aiohttp.ClientSession) -> None:
        draw = self._source
        place = draw.randrange(len(self._sessions))
        if draw.random() < 0.2:
            self._sessions[place] = self._new_session()
        path, model = draw.choice([*_PATHS]), MODELS[draw.choice([*MODELS])]
        key = self._key if draw.random() < 0.97 else f"sk-remit-{uuid.uuid4().hex}"
        words = draw.randint(5, 300)
        order = f"[[tag=s{draw.randrange(10**9)} words={words} do={draw.choice(_KINDS)} big=0]]"
        content = order + "a long prompt " * (
            90_000 if draw.random() < 0.003 else draw.randrange(99)
        )
        body = {
            "model": model if draw.random() < 0.97 else f"unknown-{uuid.uuid4().hex[:8]}",
            "max_tokens": 2 * words, "stream": draw.random() < 0.5,
            "messages": [{"role": "user", "content": content}],
        }  # fmt: skip
        headers = {"authorization": f"Bearer {key}", "x-remit-session": self._sessions[place]}
        status = 0
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            url = self._url + _PATHS[path]
            async with http.post(url, json=body, headers=headers) as answer:
                if draw.random() < 0.97:
                    await answer.read()
                    status = answer.status
                else:
                    answer.close()
        self.statuses[status] += 1


async def watch(pids: Sequence[int], seconds: float) -> Curves:
    """Return the curve of each process: minutes since the start, and MB."""
    begun = time.monotonic()
    curves: Curves = {pid: [] for pid in pids}
    while (passed := time.monotonic() - begun) < seconds:
        for pid in pids:
            curves[pid].append((passed / 60, resident_mb(pid)))
        if len(curves[pids[0]]) % 30 == 1:
            sizes = ", ".join(f"{curves[pid][-1][1]:.1f}" for pid in pids)
            print(f"{passed / 60:6.1f} min  {sizes} MB", file=sys.stderr, flush=True)
        await asyncio.sleep(LOOK_S)
    return curves


async def measure(
    traffic: Traffic, pids: Sequence[int], seconds: float
) -> dict[int, list[tuple[float, float]]]:
    """Return the curves of the processes under the traffic."""
    _, curves = await asyncio.gather(traffic.run(seconds), watch(pids, seconds))
    return curves


def table(curves: Curves) -> str:
    """Return the curves as a table with a row for each step of the time."""
    names = [f"worker {number + 1}" for number in range(len(curves))]
    lines = [" | ".join(["| minutes", *(f"{name} MB" for name in names)]) + " |"]
    lines.append("|---" * (len(curves) + 1) + "|")
    count = min(len(points) for points in curves.values())
    places = sorted({round(step * (count - 1) / ROWS) for step in range(ROWS + 1)})
    for place in places:
        points = [curve[place] for curve in curves.values()]
        lines.append(
            f"| {points[0][0]:.1f} | " + " | ".join(f"{mb:.1f}" for _, mb in points) + " |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run, print the curve and the slopes; end with 1 if a slope is too steep."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resident", description=__doc__)
    parser.add_argument("minutes", nargs="?", type=float, default=90.0)
    parser.add_argument("--rate", type=float, default=10.0, help="calls a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", default="", help="a PostgreSQL URL instead of SQLite")
    given = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="resident-"))
    try:
        print(describe_machine(scratch), flush=True)
        with provider(scratch) as upstream:
            home = Installation(scratch / "root", upstream.url, 9e6, given.database)
            server = home.serve("--workers", str(WORKERS))
            try:
                pids = workers_of(server.process.pid)
                traffic = Traffic(server.url, home.key, given.rate, given.seed)
                curves = asyncio.run(measure(traffic, pids, given.minutes * 60))
            finally:
                server.process.send_signal(signal.SIGTERM)
                server.process.wait(60)
        calls = dict(sorted(traffic.statuses.items()))
        print(f"\n{sum(calls.values()):,} calls in {given.minutes:g} minutes, by status: {calls}\n")
        print(table(curves))
        slopes = []
        for number, points in enumerate(curves.values(), 1):
            late = [(minutes / 60, mb) for minutes, mb in points if minutes >= given.minutes / 3]
            slopes.append(slope(late))
            print(f"worker {number}: {slopes[-1]:+.2f} MB an hour over the last two thirds")
        sys.exit(0 if max(slopes) <= MOST_MB_AN_HOUR else 1)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
