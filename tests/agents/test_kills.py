"""kill -9 at every step of a tool-using turn: nothing that was completed is done twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.agents import ApprovalQueue
from remit.gateway.budget import audit_budgets
from remit.kernel.settings import default_settings
from remit.ledger import LedgerClient
from tests.agents import killed
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
