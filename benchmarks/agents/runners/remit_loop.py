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
from typing import Any

from benchmarks.agents.conversations import begin_session, opened_runtime
from benchmarks.agents.runners import loops


@asynccontextmanager
async def begin(url: str) -> AsyncIterator[loops.Loop]:
    """The loop on an upstream, over a new root."""
    kept = "kept" in sys.argv
    runtime = opened_runtime(Path(sys.argv[4]), url)
    sessions: dict[asyncio.Task[object] | None, Any] = {}

    async def loop(question: str) -> str:
        session = sessions.get(asyncio.current_task()) or begin_session(runtime)
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
