"""kill -9 at every step of a turn that is handed over: the same agents go on, nothing paid twice.

The desk hands over to billing, whose tool pays and whose first answer is rejected; asked again, it
hands over to law, which answers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remit.gateway.budget import audit_budgets
from remit.kernel.settings import default_settings
from remit.ledger import LedgerClient
from tests.agents import killed_handoff
from tests.agents.killed_agent import run_process
from tests.support.agents import tools_only
from tests.support.wire import message, serve, tool_use

_STEPS = 16  # of an undisturbed turn; the test below holds it to that


def _answer(body: dict[str, Any]) -> dict[str, Any]:
    """The answer that the conversation so far calls for, whoever asks and however often."""
    text = json.dumps([body.get("system"), body["messages"]])
    name = next(one for one in ("desk", "billing", "law") if f"You are the {one}." in text)
    if name == "desk":
        return tools_only(tool_use("transfer_to_billing", {"reason": "Money."}))
    if name == "law":
        return message("Settled.")
    if "Nonsense" in text:
        return tools_only(tool_use("transfer_to_law", {"reason": "Courts."}))
    if any(turn["role"] == "assistant" for turn in body["messages"]):
        return message("Nonsense.")
    return tools_only(tool_use("pay", {"text": "5"}))


def _check(directory: Path) -> None:
    with LedgerClient(
        str(directory / "root/ledger.db"), settings=default_settings().ledger
    ) as ledger:
        assert ledger.verify().verified
        exchanges = [
            entry.metadata
            for entry in ledger.read_by_event_type("EXCHANGE")
            if entry.metadata["outcome"] == "success"
        ]
        assert [one["agent_id"] for one in exchanges] == ["desk", *["billing"] * 3, "law"]
        prompts = [one["context_hash"] for one in exchanges]
        assert len(prompts) == len(set(prompts)), "a call was paid for twice"
        assert len(ledger.read_by_event_type("TURN_RECORDED")) == 1
        planned = {entry.submission_id for entry in ledger.read_by_event_type("WO_PLANNED")}
        ended = [entry.submission_id for entry in ledger.read_by_event_type("WO_COMPLETED")]
        assert sorted(ended) == sorted(planned)
        audit = audit_budgets(ledger)
        assert audit.equal, audit.differences
    keys = (directory / "effects").read_text().split()
    assert len(set(keys)) == 1


def test_an_undisturbed_turn_has_that_many_steps(tmp_path: Path) -> None:
    with serve(_answer) as server:
        _, result = run_process(killed_handoff.main, tmp_path, server.url, 0, "new")
    assert result == {"response": "Settled.", "steps": _STEPS}
    _check(tmp_path)


# After a hand-over, in the second agent's tool, its rejected answer, the second hand-over.
@pytest.mark.parametrize("at", [3, 6, 9, 12, 13, 14, 15])
def test_a_kill_after_each_step(tmp_path: Path, at: int) -> None:
    with serve(_answer) as server:
        session, killed = run_process(killed_handoff.main, tmp_path, server.url, at, "new")
        assert killed is None
        _, result = run_process(killed_handoff.main, tmp_path, server.url, 0, session)
    assert result["response"] == "Settled."
    _check(tmp_path)
