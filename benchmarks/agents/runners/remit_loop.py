"""Remit: a new session for each loop, and each step of it on record before the next.

With the option ``kept`` each caller has one session for all its loops, whose history is sent again
as far as the defaults allow.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.agents.conversations import agent_of, opened_runtime
from benchmarks.agents.runners import loops
from remit.runtime import Conversation


@asynccontextmanager
async def begin(url: str) -> AsyncIterator[loops.Loop]:
    """The loop on an upstream, over a new root."""
    kept = "kept" in sys.argv
    runtime = opened_runtime(Path(sys.argv[4]), url)
    agent = agent_of(runtime)
    sessions: dict[asyncio.Task[object] | None, Conversation] = {}

    async def loop(question: str) -> str:
        session = sessions.get(asyncio.current_task()) or agent.session()
        if kept:
            sessions[asyncio.current_task()] = session
        result = await session.aturn(question)
        if result.degraded or not result.quality_gate_passed:
            raise ValueError(f"not a good turn: {result}")
        return result.response

    try:
        yield loop
    finally:
        await runtime.aclose()
        await asyncio.to_thread(runtime.close)


if __name__ == "__main__":
    loops.main(begin)
