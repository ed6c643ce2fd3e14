"""How long one misbehaving session holds up the event loop of 100.

One model calls a tool with a value of a recursive union in which one member is missing. The time
of a check that tries each branch anew doubles with each level. The figure is the longest single
callback of the event loop, in CPU time of its thread.

To measure an earlier commit: ``PYTHONPATH=WORKTREE/src python -m benchmarks blocking``.
"""

from __future__ import annotations

import asyncio
import gc
import time
from asyncio.events import Handle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal
from unittest import mock

from pydantic import BaseModel, Field

from benchmarks.rounds import new_directory
from benchmarks.table import Figure
from remit import Runtime, tool
from remit.testing import ScriptedModel, ToolUse

SESSIONS = 100
ROUNDS = 5
LEVELS = (8, 12, 14)


class Both(BaseModel):
    """Two conditions."""

    op: Literal["both"]
    left: Condition
    right: Condition | None = None


class Not(BaseModel):
    """The opposite of a condition."""

    op: Literal["not"]
    left: Condition
    right: Condition | None = None


class Name(BaseModel):
    """A condition by its name."""

    op: Literal["name"]
    name: str


Condition = Annotated[Both | Not | Name, Field(discriminator="op")]
Both.model_rebuild()
Not.model_rebuild()


@tool
def search(condition: Both) -> str:
    """Search."""
    return "found"


def compare(scratch: Path) -> Iterator[Figure]:
    """The longest callback with an orderly value, then with values of more and more levels."""
    for levels, name in ((0, "all in order"), *((n, f"one value of {n} levels") for n in LEVELS)):
        values = [asyncio.run(_longest_ms(new_directory(scratch), levels)) for _ in range(ROUNDS)]
        yield Figure(f"{SESSIONS} sessions, {name}", values, "ms of CPU")


async def _longest_ms(directory: Path, levels: int) -> float:
    """Return the longest callback while all sessions take a turn; ``levels`` 0: none misbehaves."""
    models = {
        f"m{n}": ScriptedModel(
            "ok", ToolUse("search", {"condition": _value(levels if not n else 0)}), "ok"
        )
        for n in range(SESSIONS)
    }
    async with Runtime.open(directory / "root", create=True, providers=models) as runtime:
        agents = [runtime.agent(f"a{n}", tools=[search], model=f"m{n}") for n in range(SESSIONS)]
        longest = [0.0]
        await asyncio.gather(*(agent.arun("Wait.") for agent in agents))  # all is loaded
        gc.collect()
        gc.disable()
        try:
            with mock.patch.object(Handle, "_run", _timed(Handle._run, longest)):
                await asyncio.gather(*(agent.arun("Search.") for agent in agents))
        finally:
            gc.enable()
    return 1000 * longest[0]


def _value(levels: int) -> dict[str, Any]:
    """Return a condition of that many levels whose innermost name is missing; 0: a sound one."""
    value: dict[str, Any] = {"op": "name"} if levels else {"op": "name", "name": "a"}
    for level in range(levels or 1):
        value = {"op": ("both", "not")[level % 2], "left": value}
    return {**value, "op": "both"}


def _timed(run: Callable[[Handle], None], longest: list[float]) -> Callable[[Handle], None]:
    def timed(handle: Handle) -> None:
        started = time.thread_time()
        run(handle)
        longest[0] = max(longest[0], time.thread_time() - started)

    return timed
