"""A program whose agent hands its session over, twice in one turn, and that is killed at a step."""

from __future__ import annotations

from remit import Tool
from remit.runtime import Runtime
from tests.agents.killed_agent import TEXT, Killer, note_effect, run_turn


def main(root: str, effects: str, at: int, session_id: str) -> None:
    """Start a turn, or go on with one, and print what came of it; killed after step ``at``."""
    killer = Killer(at, "after")

    def pay(text: str) -> str:
        note_effect(effects)
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
        run_turn(runtime, desk, session_id, "Pay me.", killer)
