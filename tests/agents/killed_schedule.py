"""A program that does one tick of a schedule, and that is killed at a chosen step."""

from __future__ import annotations

import json

from remit.kernel.loops import run_blocking
from remit.runtime import Runtime, Schedule
from tests.agents.killed_agent import Killer, patch


def main(root: str, at: int, now: int) -> None:
    """Do what is due at ``now``, and print what came of it; killed after step ``at``."""
    killer = Killer(at, "after")
    with Runtime.open(root, flags={"gateway.retry_base_ms": 1}) as runtime:
        agent = runtime.agent("clerk", max_retries=0)
        schedule = Schedule(agent, "hourly", "Count.", every_s=3600)
        runtime.ledger.flush()
        patch(killer)
        result = run_blocking(schedule._due(now))
        print(json.dumps({"response": result and result.response, "steps": killer._count}))
