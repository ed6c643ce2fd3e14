"""The two processes of :mod:`benchmarks.agents.resume`.

``python -m benchmarks.agents.interrupted work ROOT URL STEPS`` prints the session and works until
it is killed; ``… resume ROOT URL SESSION`` goes on with it and prints what it took.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.agents.conversations import agent_of, opened_runtime
from benchmarks.agents.runners import script

FLAGS = {
    "worker.turn_limit": 10_000,
    "worker.tool_limit": 10_000,
    "worker.timeout_s": 600,
    "budget.work_order_tokens": 10**9,
}
MS = 1e6


def work(root: Path, url: str, steps: int) -> None:
    """Take a turn of one step more than ``steps``; the upstream does not let it end."""
    with opened_runtime(root, url, flags=FLAGS) as runtime:
        session = agent_of(runtime).session()
        print(session.session_id, flush=True)
        session.turn(f"{script.question(1, steps + 1)} (hold={steps})")


def resume(root: Path, url: str, session_id: str) -> None:
    """Go on with the turn."""
    opening = time.monotonic_ns()
    with opened_runtime(root, url, flags=FLAGS) as runtime:
        session = agent_of(runtime).session(session_id)
        began = time.monotonic_ns()
        result = session.resume()
        ended = time.monotonic_ns()
        assert result is not None, "there was nothing to resume"
        assert script.MARKER in result.response, result
        figures = {
            "open_ms": (began - opening) / MS,
            "began_ns": began,
            "whole_ms": (ended - began) / MS,
            "tools": script.runs,
        }
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    part, place, address, argument = sys.argv[1:5]
    if part == "work":
        work(Path(place), address, int(argument))
    else:
        resume(Path(place), address, argument)
