"""What Remit adds to a turn, early and late in a session, with and without tools.

The provider is in the process and takes no time, so what is measured is Remit's. The machine's
speed drifts, so the turns that are compared alternate: a first turn of a new session, one of a
session of 100 turns, one of a session of 1,000, each plain and with one step (a tool call and the
model call that reads it), and a bare call to the gateway. All in one root.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.agents.conversations import agent_of, opened_runtime
from benchmarks.agents.runners.script import question
from benchmarks.agents.stepping import SteppingProvider
from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import number, ratios, spread, table
from benchmarks.rounds import new_directory
from remit.kernel.exchange import PromptRequest
from remit.runtime import Conversation, Runtime

GROWN = (100, 1000)
FIRST = 1
EACH = 10
WARM_UP = 20
FLAT = 1.30
PLAIN, STEP, CALL = "plain turn", "turn with one step", "bare call to the gateway"
Times = dict[str, dict[int, list[float]]]
"""By what was done and the session's turns: a figure of each round."""


class Turns:
    """The measured runtime.

    Args:
        runtime: with the provider that takes no time.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._agent = agent_of(runtime)
        self._number = 0
        self._grown: dict[int, Conversation] = {}

    async def grow(self) -> None:
        """Warm up, and have the sessions that the late turns are taken in."""
        warm = self._agent.session()
        for index in range(WARM_UP):
            await self._turn(warm, index % 2)
        for turns in GROWN:
            tell(f"Growing a session to {turns} turns")
            self._grown[turns] = self._agent.session()
            for _ in range(turns):
                await self._turn(self._grown[turns], 0)

    async def round(self, wall: Times, cpu: Times) -> None:
        """Take turns in turn; medians of both clocks go to ``wall`` and ``cpu``, in ms."""
        walls: Times = defaultdict(lambda: defaultdict(list))
        cpus: Times = defaultdict(lambda: defaultdict(list))

        async def timed(what: str, turns: int, act: Callable[[], Awaitable[None]]) -> None:
            cpu_s, started = time.process_time(), time.perf_counter()
            await act()
            walls[what][turns].append(1000 * (time.perf_counter() - started))
            cpus[what][turns].append(1000 * (time.process_time() - cpu_s))

        for index in range(EACH):
            there = (FIRST, *GROWN)
            for turns in there[:: -1 if index % 2 else 1]:
                for what, steps in ((PLAIN, 0), (STEP, 1)):
                    session = self._grown.get(turns) or self._agent.session()
                    await timed(what, turns, partial(self._turn, session, steps))
            await timed(CALL, FIRST, self._call)
        for found, kept in ((walls, wall), (cpus, cpu)):
            for what, by_turns in found.items():
                for turns, times in by_turns.items():
                    kept[what][turns].append(statistics.median(times))

    async def _turn(self, session: Conversation, steps: int) -> None:
        self._number += 1
        result = await session.aturn(question(self._number, steps))
        assert result.quality_gate_passed, result
        assert not result.degraded, result
        assert len(result.tool_results) == steps, result

    async def _call(self) -> None:
        self._number += 1
        response = await self._runtime.gateway.aroute(
            PromptRequest(
                prompt=question(self._number, 0),
                prompt_pack_id="",
                contract_id="PRC-PASSTHROUGH-001",
                agent_id="bench",
                agent_class="RESIDENT",
                framework_id="",
                package_id="",
                work_order_id="",
                session_id=next(iter(self._grown.values())).session_id,
                tier="ho1",
            )
        )
        assert response.outcome == "success", response


def add_options(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def measure(scratch: Path, given: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Run all; the tables and every figure."""
    wall: Times = defaultdict(lambda: defaultdict(list))
    cpu: Times = defaultdict(lambda: defaultdict(list))
    uvloop.run(_run(new_directory(scratch), given.rounds, wall, cpu))
    return _tables(wall, cpu), {"wall_ms": wall, "cpu_ms": cpu}


async def _run(directory: Path, rounds: int, wall: Times, cpu: Times) -> None:
    async with AsyncExitStack() as stack:
        runtime = opened_runtime(directory / "root", "http://127.0.0.1:9")
        stack.push_async_callback(asyncio.to_thread, runtime.close)
        stack.push_async_callback(runtime.aclose)
        runtime.gateway.register_provider("openai", SteppingProvider())
        turns = Turns(runtime)
        await turns.grow()
        for index in range(rounds):
            await turns.round(wall, cpu)
            tell(f"Round {index + 1}: turns")


def _tables(wall: Times, cpu: Times) -> str:
    lines = []
    for what, by_turns in wall.items():
        for turns, times in by_turns.items():
            title = what if what == CALL else f"{what}, turn {turns:,}"
            lines.append((title, spread(times), spread(cpu[what][turns])))
    for turns in (FIRST, *GROWN):
        more = [_minus(found[STEP][turns], found[PLAIN][turns]) for found in (wall, cpu)]
        lines.append((f"a step more, turn {turns:,}", spread(more[0]), spread(more[1])))
        tool = [_minus(a, b[CALL][FIRST]) for a, b in zip(more, (wall, cpu), strict=True)]
        lines.append(
            (f"of it beyond a bare call, turn {turns:,}", spread(tool[0]), spread(tool[1]))
        )
    flat = []
    for what in (PLAIN, STEP):
        for turns, other in ((GROWN[0], FIRST), (GROWN[1], FIRST), (GROWN[1], GROWN[0])):
            of = ratios(wall[what][turns], wall[what][other])
            said = "met" if statistics.median(of) <= FLAT else "MISSED"
            flat.append((f"{what}, turn {turns:,} / turn {other:,}", spread(of), said))
    titles = ("Ratio", "Median (range)", f"Aim: <= {number(FLAT)}")
    return "\n\n".join((table(("What", "ms", "CPU ms"), lines), table(titles, flat)))


def _minus(first: list[float], second: list[float]) -> list[float]:
    return [a - b for a, b in zip(first, second, strict=True)]
