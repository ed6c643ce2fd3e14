"""A program whose agent hands its session over, twice in one turn, and that is killed at a step."""

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

    def pay(text: str) -> str:
        call = current_call()
        assert call is not None
        with Path(effects).open("a") as file:
            file.write(f"{call.idempotency_key}\n")
        return f"{text} paid"

    with Runtime.open(root, flags={"gateway.retry_base_ms": 1}) as runtime:
        law = runtime.agent("law", instructions="You are the law.")
        billing = runtime.agent(
            "billing",
            instructions="You are the billing.",
            tools=[Tool("pay", "Pay.", TEXT, pay, on_unknown="retry"), law.as_handoff()],
            acceptance={"must_not_contain": ["Nonsense"]},
        )
        desk = runtime.agent(
            "desk",
            instructions="You are the desk.",
            tools=[billing.as_handoff()],
            max_retries=1,
        )
        session = desk.session(None if session_id == "new" else session_id)
        print(session.session_id, flush=True)
        runtime.ledger.flush()
        patch(killer)
        result: Any = session.turn("Pay me.") if session_id == "new" else session.resume()
        print(json.dumps({"response": result and result.response, "steps": killer._count}))
