"""kill -9 at every step of a turn in which agents call each other, or hand over to each other.

The boss calls a helper, whose tool looks. The desk hands over to billing, whose tool pays and whose
first answer is rejected; asked again, billing hands over to law, which answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remit.gateway.budget import audit_budgets
from remit.kernel.settings import default_settings
from remit.ledger import LedgerClient
from tests.agents import killed
from tests.support.agents import tools_only
from tests.support.postgres import PostgresServer
from tests.support.wire import message, serve, tool_use

_ROUNDS = {
    "boss": [tools_only(tool_use("helper", {"task": "Find it."})), message("It is 42.")],
    "helper": [tools_only(tool_use("look", {"text": "42"})), message("42")],
}


def _called(body: dict[str, Any]) -> dict[str, Any]:
    """Return the answer that the conversation so far calls for, whoever asks and however often."""
    text = json.dumps([body.get("system"), body["messages"]])
    name = next(name for name in _ROUNDS if f"You are the {name}." in text)
    return _ROUNDS[name][sum(turn["role"] == "assistant" for turn in body["messages"])]


def _handed(body: dict[str, Any]) -> dict[str, Any]:
    """Return the answer that the conversation so far calls for, whoever asks and however often."""
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


@dataclass(frozen=True)
class _Way:
    """One way in which agents work together: the program, its model, and what it leaves."""

    main: Callable[..., None]
    answer: Callable[[dict[str, Any]], dict[str, Any]]
    response: str
    asked: list[str]
    sessions: int


_CALLS = _Way(killed.call_another, _called, "It is 42.", ["boss", "helper", "helper", "boss"], 2)
_HANDS_OVER = _Way(
    killed.hand_over, _handed, "Settled.", ["desk", "billing", "billing", "billing", "law"], 1
)
_STEPS = 16  # of an undisturbed turn of either; the test below holds it to that


def _check(way: _Way, directory: Path, session: str, target: str = "") -> None:
    target = target or str(directory / "root/ledger.db")
    with LedgerClient(target, settings=default_settings().ledger) as ledger:
        assert ledger.verify().verified
        exchanges = [entry.metadata for entry in ledger.read_by_event_type("EXCHANGE")]
        answered = [one for one in exchanges if one["outcome"] == "success"]
        assert [one["agent_id"] for one in answered] == way.asked
        prompts = [one["context_hash"] for one in answered]
        assert len(prompts) == len(set(prompts)), "a call was paid for twice"
        assert len(ledger.read_by_event_type("SESSION_START")) == way.sessions
        assert len(ledger.read_by_event_type("TURN_RECORDED")) == way.sessions
        assert len(ledger.read_by_event_type("SESSION_END")) == way.sessions - 1
        planned = {entry.submission_id for entry in ledger.read_by_event_type("WO_PLANNED")}
        ended = ledger.read_by_event_type("WO_COMPLETED")
        assert sorted(entry.submission_id for entry in ended) == sorted(planned)
        whole = sum(
            entry.metadata["cost"]["total_tokens"]
            for entry in ended
            if session in entry.submission_id
        )
        assert whole == sum(one["input_tokens"] + one["output_tokens"] for one in exchanges)
        audit = audit_budgets(ledger)
        assert audit.equal, audit.differences
    assert len(set((directory / "effects").read_text().splitlines())) == 1


@pytest.mark.parametrize("way", [_CALLS, _HANDS_OVER], ids=["calls", "hands over"])
def test_an_undisturbed_turn_has_that_many_steps(tmp_path: Path, way: _Way) -> None:
    with serve(way.answer) as server:
        session, result = killed.run_process(way.main, tmp_path, server.url, 0, "new")
    assert (result["response"], result["steps"]) == (way.response, _STEPS)
    _check(way, tmp_path, session)


@pytest.mark.parametrize(
    ("way", "at"),
    [
        # What a process left behind at each stage of the sub-agent.
        *((_CALLS, at) for at in (1, 4, 5, 6, 8, 10, 12, 13, 14)),
        # After a hand-over, in the second agent's tool, its rejected answer, the second hand-over.
        *((_HANDS_OVER, at) for at in (3, 6, 9, 12, 13, 14, 15)),
    ],
)
def test_a_kill_after_each_step(tmp_path: Path, way: _Way, at: int) -> None:
    with serve(way.answer) as server:
        session, result = killed.run_process(way.main, tmp_path, server.url, at, "new")
        assert result is None
        _, result = killed.run_process(way.main, tmp_path, server.url, 0, session)
    if result["response"] is None:  # nothing had been planned yet
        assert at == 1
        return
    assert result["response"] == way.response
    _check(way, tmp_path, session)


def test_kills_on_postgresql(tmp_path: Path, postgres: PostgresServer) -> None:
    database, main = postgres.database(), _CALLS.main
    with serve(_CALLS.answer) as server:
        session, result = killed.run_process(main, tmp_path, server.url, 9, "new", database)
        _, result = killed.run_process(main, tmp_path, server.url, 4, session, database)
        assert result is None
        _, result = killed.run_process(main, tmp_path, server.url, 0, session, database)
    assert result["response"] == _CALLS.response
    _check(_CALLS, tmp_path, session, database)
