"""kill -9 at every step of a turn with a sub-agent: it goes on in the same session, paid once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remit.gateway.budget import audit_budgets
from remit.kernel.settings import default_settings
from remit.ledger import LedgerClient
from tests.agents import killed_agent_pair
from tests.agents.killed_agent import run_process
from tests.support.agents import tools_only
from tests.support.postgres import PostgresServer
from tests.support.wire import message, serve, tool_use

_ROUNDS = {
    "boss": [tools_only(tool_use("helper", {"task": "Find it."})), message("It is 42.")],
    "helper": [tools_only(tool_use("look", {"text": "42"})), message("42")],
}
_STEPS = 16  # of an undisturbed turn; the test below holds it to that


def _answer(body: dict[str, Any]) -> dict[str, Any]:
    """The answer that the conversation so far calls for, whoever asks and however often."""
    text = json.dumps([body.get("system"), body["messages"]])
    name = next(name for name in _ROUNDS if f"You are the {name}." in text)
    return _ROUNDS[name][sum(turn["role"] == "assistant" for turn in body["messages"])]


def _check(target: str, session: str) -> None:
    with LedgerClient(target, settings=default_settings().ledger) as ledger:
        assert ledger.verify().verified
        exchanges = [
            entry
            for entry in ledger.read_by_event_type("EXCHANGE")
            if entry.metadata["outcome"] == "success"
        ]
        prompts = [entry.metadata["context_hash"] for entry in exchanges]
        assert len(prompts) == len(set(prompts)), "a call was paid for twice"
        assert len(prompts) == 4
        started = ledger.read_by_event_type("SESSION_START")
        assert len(started) == 2
        assert len(ledger.read_by_event_type("TURN_RECORDED")) == 2
        assert len(ledger.read_by_event_type("SESSION_END")) == 1
        (whole,) = [
            entry.metadata["cost"]
            for entry in ledger.read_by_event_type("WO_COMPLETED")
            if session in entry.submission_id
        ]
        spent = sum(
            entry.metadata["input_tokens"] + entry.metadata["output_tokens"]
            for entry in ledger.read_by_event_type("EXCHANGE")
        )
        assert whole["total_tokens"] == spent
        audit = audit_budgets(ledger)
        assert audit.equal, audit.differences


def test_an_undisturbed_turn_has_that_many_steps(tmp_path: Path) -> None:
    with serve(_answer) as server:
        session, result = run_process(killed_agent_pair.main, tmp_path, server.url, 0, "new")
    assert result == {"response": "It is 42.", "steps": _STEPS}
    _check(str(tmp_path / "root/ledger.db"), session)


# What a process left behind at each stage of the sub-agent.
@pytest.mark.parametrize("at", [1, 4, 5, 6, 8, 10, 12, 13, 14])
def test_a_kill_after_each_step(tmp_path: Path, at: int) -> None:
    with serve(_answer) as server:
        session, killed = run_process(killed_agent_pair.main, tmp_path, server.url, at, "new")
        assert killed is None
        _, result = run_process(killed_agent_pair.main, tmp_path, server.url, 0, session)
    if result["response"] is None:  # nothing had been planned yet
        assert at == 1
        return
    assert result["response"] == "It is 42."
    _check(str(tmp_path / "root/ledger.db"), session)


def test_kills_on_postgresql(tmp_path: Path, postgres: PostgresServer) -> None:
    database = postgres.database()
    with serve(_answer) as server:
        main, url = killed_agent_pair.main, server.url
        session, result = run_process(main, tmp_path, url, 9, "new", database)
        _, result = run_process(main, tmp_path, url, 4, session, database)
        assert result is None
        _, result = run_process(main, tmp_path, url, 0, session, database)
    assert result["response"] == "It is 42."
    _check(database, session)
