"""What a session set aside is shown, with why, what is used instead, and the entries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import anthropic_runtime
from tests.support.commands import run_remit
from tests.support.wire import Raw, message

FLAGS = {
    "gateway.max_retries": 0,
    "gateway.failure_threshold": 1000,
    "gateway.fallbacks": {"claude-ill": ["claude-well"]},
}


def _answer(body: dict[str, Any]) -> Any:
    return Raw(status=500) if body["model"] == "claude-ill" else message("Yes.")


def test_a_session_and_its_trace_say_what_was_set_aside_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    with anthropic_runtime(root, monkeypatch, _answer, flags=FLAGS) as (runtime, _):
        session = runtime.agent("guide", tools=[], model="claude-ill").session()
        for _turn in range(4):
            session.turn("Are you there?")
        (aside,) = runtime.ledger.query(event_type="SIGNAL_OBSERVED")

        def shown(*arguments: str) -> str:
            done = run_remit(*arguments, "--root", str(root))
            assert done.returncode == 0, done.stderr
            return done.stdout

        name = session.session_id
        failed: list[str] = aside.metadata["evidence"]
        said = "model anthropic/claude-ill: anthropic/claude-well instead, until the session ends"
        text = shown("session", "show", name)
        assert f"set aside: {said}: {aside.id}" in text
        assert f"failed: {', '.join(failed)}" in text
        (step,) = json.loads(shown("session", "show", name, "--json"))["set_aside"]
        assert (step["entry_id"], step["evidence"], step["in_force"]) == (aside.id, failed, True)
        assert (step["dimension"], step["instead"]) == ("model", "anthropic/claude-well")

        (line,) = [one for one in shown("trace", name, "--full").splitlines() if said in one]
        assert "set aside" in line
        assert all(one in line for one in (aside.id, *failed))
        turns = json.loads(shown("trace", name, "--json"))["turns"]
        (note,) = [
            step
            for order in turns[2]["work_orders"]
            for step in order["steps"]
            if step.get("event_type") == "SIGNAL_OBSERVED"
        ]
        assert (note["entry_id"], note["details"]["evidence"]) == (aside.id, failed)
        page = shown("trace", name, "--html", "-")
        assert said in page
        assert aside.id in page.split(said)[1]

        session.end()
        assert f"{said} (no longer set aside)" in shown("session", "show", name)
        (step,) = json.loads(shown("session", "show", name, "--json"))["set_aside"]
        assert step["in_force"] is False
