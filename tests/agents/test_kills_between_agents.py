"""kill -9 at every step of a turn in which the boss calls a helper, whose tool looks."""

from __future__ import annotations

import json
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


_STEPS = 16  # of an undisturbed turn; the test below holds it to that


def _check(directory: Path, session: str, target: str = "") -> None:
    target = target or str(directory / "root/ledger.db")
    with LedgerClient(target, settings=default_settings().ledger) as ledger:
        assert ledger.verify().verified
        exchanges = [entry.metadata for entry in ledger.read_by_event_type("EXCHANGE")]
        answered = [one for one in exchanges if one["outcome"] == "success"]
        assert [one["agent_id"] for one in answered] == ["boss", "helper", "helper", "boss"]
        prompts = [one["context_hash"] for one in answered]
        assert len(prompts) == len(set(prompts)), "a call was paid for twice"
        assert len(ledger.read_by_event_type("SESSION_START")) == 2
        assert len(ledger.read_by_event_type("TURN_RECORDED")) == 2
        assert len(ledger.read_by_event_type("SESSION_END")) == 1
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


def test_an_undisturbed_turn_has_that_many_steps(tmp_path: Path) -> None:
    with serve(_called) as server:
        session, result = killed.run_process(killed.call_another, tmp_path, server.url, 0, "new")
    assert (result["response"], result["steps"]) == ("It is 42.", _STEPS)
    _check(tmp_path, session)


# What a process left behind at each stage of the sub-agent.
@pytest.mark.parametrize("at", [1, 5, 8, 10, 13])
def test_a_kill_after_each_step(tmp_path: Path, at: int) -> None:
    main = killed.call_another
    with serve(_called) as server:
        session, result = killed.run_process(main, tmp_path, server.url, at, "new")
        assert result is None
        _, result = killed.run_process(main, tmp_path, server.url, 0, session)
    if result["response"] is None:  # nothing had been planned yet
        assert at == 1
        return
    assert result["response"] == "It is 42."
    _check(tmp_path, session)


def test_kills_on_postgresql(tmp_path: Path, postgres: PostgresServer) -> None:
    database, main = postgres.database(), killed.call_another
    with serve(_called) as server:
        session, result = killed.run_process(main, tmp_path, server.url, 9, "new", database)
        _, result = killed.run_process(main, tmp_path, server.url, 4, session, database)
        assert result is None
        _, result = killed.run_process(main, tmp_path, server.url, 0, session, database)
    assert result["response"] == "It is 42."
    _check(tmp_path, session, database)
