"""A program whose agent has another one as a tool, and that is killed at a chosen step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from remit import Tool, current_call
from remit.runtime import Runtime
from tests.agents.killed_agent import TEXT, Killer, patch


def main(root: str, effects: str, at: int, session_id: str) -> None:
    """Start a turn, or go on with one, and print what came of it; killed after step ``at``."""
    killer = Killer(at, "after")

    def look(text: str) -> str:
        call = current_call()
        assert call is not None
        with Path(effects).open("a") as file:
            file.write(f"{call.idempotency_key}\n")
        return text

    with Runtime.open(root, flags={"gateway.retry_base_ms": 1}) as runtime:
        helper = runtime.agent(
            "helper",
            instructions="You are the helper.",
            tools=[Tool("look", "Look.", TEXT, look, on_unknown="retry")],
            max_retries=0,
        )
        boss = runtime.agent(
            "boss",
            instructions="You are the boss.",
            tools=[helper.as_tool(description="Finds things.")],
            max_retries=0,
        )
        session = boss.session(None if session_id == "new" else session_id)
        print(session.session_id, flush=True)
        runtime.ledger.flush()
        patch(killer)
        result: Any = session.turn("What is it?") if session_id == "new" else session.resume()
        print(json.dumps({"response": result and result.response, "steps": killer._count}))
