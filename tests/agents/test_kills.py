"""kill -9 at every step of a tool-using turn: nothing that was completed is done twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.agents import ApprovalQueue
from remit.gateway.budget import audit_budgets
from remit.kernel.settings import default_settings
from remit.ledger import Erased, LedgerClient, RetentionSchedule
from tests.agents import killed
from tests.support.agents import CLASSIFIED, Scripted, tools_only
from tests.support.postgres import PostgresServer
from tests.support.wire import Step, WireServer, message, serve, tool_use

_ROUNDS: list[dict[str, Any]] = [
    message("", tool_use("look", {"text": "a"}, "t1"), tool_use("pay", {"text": "b"}, "t2")),
    message("Now pay.", tool_use("pay", {"text": "c"}, "t3")),
    message("", tool_use("look", {"text": "d"}, "t4")),
    message("All paid."),
]
_STEPS = 19  # of an undisturbed turn; the test below holds it to that


def _by_conversation(body: dict[str, Any]) -> dict[str, Any]:
    """The answer that the conversation so far calls for, whoever asks and however often."""
    answered = sum(turn["role"] == "assistant" for turn in body["messages"])
    blocks = [block for block in _ROUNDS[answered]["content"] if block.get("text") != ""]
    return {**_ROUNDS[answered], "content": blocks}


@pytest.fixture
def upstream() -> Iterator[WireServer]:
    script: Step = _by_conversation
    with serve(script) as server:
        yield server


class _Case:
    """One root, its processes, and what their tools did outside."""

    def __init__(
        self, directory: Path, server: WireServer, policy: str, database: str = ""
    ) -> None:
        self._directory, self._url, self._policy = directory, server.url, policy
        self._database = database
        self._session = "new"

    def run(self, at: int = 0, when: str = "before") -> Any:
        """One process; ``None`` when it was killed."""
        self._session, result = killed.run_process(
            killed.pay_and_look, self._directory, self._url, at, self._session, self._database,
            (when, self._policy),
        )  # fmt: skip
        return result

    def ledger(self) -> LedgerClient:
        """The record that the processes leave."""
        target = self._database or self._directory / "root/ledger.db"
        return LedgerClient(target, settings=default_settings().ledger)

    def decide(self, request_ids: list[str], *, granted: bool) -> None:
        """What a person does, from another process."""
        with self.ledger() as ledger:
            for request_id in request_ids:
                ApprovalQueue(ledger).decide(request_id, granted=granted, by="a person")

    def ran(self) -> Counter[tuple[str, ...]]:
        """How often each tool call took effect, by tool and key."""
        effects = self._directory / "effects"
        rows = effects.read_text().splitlines() if effects.exists() else []
        return Counter(tuple(row.split(" ", 1)) for row in rows)


def _check(case: _Case) -> None:
    """What must hold at the end, whatever happened."""
    with case.ledger() as ledger:
        assert ledger.verify().verified
        exchanges = [
            entry
            for entry in ledger.read_by_event_type("EXCHANGE")
            if entry.metadata["outcome"] == "success"
        ]
        prompts = [entry.metadata["context_hash"] for entry in exchanges]
        assert len(prompts) == len(set(prompts)), "a completed model call was made again"
        told = [e.metadata["exchange_entry_id"] for e in ledger.read_by_event_type("LLM_CALL")]
        assert len(told) == len(set(told))
        assert {entry.id for entry in exchanges} <= set(told)
        keys = [e.metadata["idempotency_key"] for e in ledger.read_by_event_type("TOOL_CALL")]
        assert len(keys) == len(set(keys))
        ended = [
            *ledger.read_by_event_type("WO_COMPLETED"),
            *ledger.read_by_event_type("WO_FAILED"),
        ]
        assert len({entry.submission_id for entry in ended}) == len(ended)
        assert len(ledger.read_by_event_type("TURN_RECORDED")) == 1
        spent = sum(
            entry.metadata["input_tokens"] + entry.metadata["output_tokens"]
            for entry in ledger.read_by_event_type("EXCHANGE")
        )
        assert sum(entry.metadata["cost"]["total_tokens"] for entry in ended) == spent
        assert audit_budgets(ledger).equal


def test_an_undisturbed_turn_has_that_many_steps(tmp_path: Path, upstream: WireServer) -> None:
    case = _Case(tmp_path, upstream, "ask")
    result = case.run()
    assert (result["response"], result["steps"]) == ("All paid.", _STEPS)
    assert sorted(case.ran().values()) == [1, 1, 1, 1]
    _check(case)


# What is durable after one step is what is durable before the next: "before" adds the first.
_PLACES = [(1, "before"), *((at, "after") for at in range(1, _STEPS + 1)), (9, "before")]


@pytest.mark.parametrize(("at", "when"), _PLACES)
def test_killed_at_a_step_it_goes_on_without_repeating(
    tmp_path: Path, upstream: WireServer, at: int, when: str
) -> None:
    case = _Case(tmp_path, upstream, "ask")
    assert case.run(at, when) is None
    asked = 0
    result = case.run()
    while result.get("waiting"):
        asked += 1
        case.decide(result["waiting"], granted=False)
        result = case.run()
    if result["response"] is None:
        # Nothing was planned yet, or the turn had been delivered already.
        with case.ledger() as ledger:
            if not ledger.read_by_event_type("WO_PLANNED"):
                assert not case.ran()
                return
    else:
        assert result["response"] == "All paid."
    ran = case.ran()
    assert all(number == 1 for (tool, _), number in ran.items() if tool == "pay")
    assert all(number <= 2 for number in ran.values())
    # Two payments were wanted; where nobody knows, a person said no.
    payments = sum(tool == "pay" for tool, _ in ran)
    assert 2 - asked <= payments <= 2
    assert len({key for tool, key in ran if tool == "look"}) == 2
    _check(case)


@pytest.mark.parametrize("at", [6, 10, 14])
def test_the_same_on_postgresql(
    tmp_path: Path, upstream: WireServer, postgres: PostgresServer, at: int
) -> None:
    case = _Case(tmp_path, upstream, "ask", postgres.database())
    assert case.run(at, "after") is None
    result = case.run()
    if result["waiting"]:  # granted: whoever decides takes the risk that it runs a second time
        case.decide(result["waiting"], granted=True)
        result = case.run()
    assert result["response"] == "All paid."
    assert len({key for tool, key in case.ran() if tool == "pay"}) == 2
    _check(case)


@pytest.mark.parametrize("policy", ["retry", "fail"])
def test_unknown_outcomes_follow_policy(tmp_path: Path, upstream: WireServer, policy: str) -> None:
    for at in (5, 7):  # the payment has begun; it took effect, and its result is not recorded
        directory = tmp_path / str(at)
        directory.mkdir()
        case = _Case(directory, upstream, policy)
        assert case.run(at, "after") is None
        before = case.ran()
        with case.ledger() as ledger:
            intents = Counter(
                e.metadata["idempotency_key"] for e in ledger.read_by_event_type("TOOL_INTENT")
                if e.metadata["tool_id"] == "pay"
            )  # fmt: skip
            called = {e.metadata["idempotency_key"] for e in ledger.read_by_event_type("TOOL_CALL")}
        (unknown,) = (key for key in intents if key not in called)
        result = case.run()
        after = case.ran()
        key = ("pay", unknown)
        if policy == "retry":
            assert result["response"] == "All paid."
            assert after[key] == before[key] + 1
        else:
            assert result["error_code"] == "tool_outcome_unknown"
            assert after[key] == before[key]
        _check(case)


# -- The same thing on a server: whole conversations with ledger and budgets on PostgreSQL --------


_CLASSIFY = message(json.dumps(CLASSIFIED))


@pytest.fixture
def url(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new database, named by the environment as an operator would."""
    place = postgres.database()
    monkeypatch.setenv("REMIT_DATABASE_URL", place)
    return place


def test_retention_runs(scripted: Scripted, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr("remit.runtime.runtime._RETENTION_EVERY_S", 0.1)
    flags = {"ledger.retention_days": {"*": 1e-9}}
    script = (_CLASSIFY, message("Noted."))
    with scripted(*script, flags=flags) as (runtime, _):
        with runtime.session() as conversation:
            conversation.turn("a thing to forget")
        RetentionSchedule(runtime.ledger, every_s=60).stop()
        (turn,) = runtime.ledger.query(event_type="TURN_RECORDED")
        assert isinstance(turn.metadata["user_message"], Erased)
        assert runtime.ledger.verify().verified


# -- kill -9 at every step of a turn in which the boss calls a helper, whose tool looks -----------


_ROUNDS_BETWEEN = {
    "boss": [tools_only(tool_use("helper", {"task": "Find it."})), message("It is 42.")],
    "helper": [tools_only(tool_use("look", {"text": "42"})), message("42")],
}


def _called(body: dict[str, Any]) -> dict[str, Any]:
    """Return the answer that the conversation so far calls for, whoever asks and however often."""
    text = json.dumps([body.get("system"), body["messages"]])
    name = next(name for name in _ROUNDS_BETWEEN if f"You are the {name}." in text)
    return _ROUNDS_BETWEEN[name][sum(turn["role"] == "assistant" for turn in body["messages"])]


_STEPS_BETWEEN = 16  # of an undisturbed turn; the test below holds it to that


def _check_between(directory: Path, session: str, target: str = "") -> None:
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


def test_an_undisturbed_turn_between_agents_has_that_many_steps(tmp_path: Path) -> None:
    with serve(_called) as server:
        session, result = killed.run_process(killed.call_another, tmp_path, server.url, 0, "new")
    assert (result["response"], result["steps"]) == ("It is 42.", _STEPS_BETWEEN)
    _check_between(tmp_path, session)


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
    _check_between(tmp_path, session)


def test_kills_on_postgresql(tmp_path: Path, postgres: PostgresServer) -> None:
    database, main = postgres.database(), killed.call_another
    with serve(_called) as server:
        session, result = killed.run_process(main, tmp_path, server.url, 9, "new", database)
        _, result = killed.run_process(main, tmp_path, server.url, 4, session, database)
        assert result is None
        _, result = killed.run_process(main, tmp_path, server.url, 0, session, database)
    assert result["response"] == "It is 42."
    _check_between(tmp_path, session, database)
