"""A program whose agent has another one as a tool, and that is killed at a chosen step."""

from __future__ import annotations

from remit import Tool
from remit.runtime import Runtime
from tests.agents.killed_agent import TEXT, Killer, note_effect, run_turn


def main(root: str, effects: str, at: int, session_id: str) -> None:
    """Start a turn, or go on with one, and print what came of it; killed after step ``at``."""
    killer = Killer(at, "after")

    def look(text: str) -> str:
        note_effect(effects)
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
        run_turn(runtime, boss, session_id, "What is it?", killer)
