"""The router of a root: what is wired without anybody asking."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import remit
from remit.gateway.budget import BudgetScope
from remit.gateway.circuit_breakers import Breakers
from remit.kernel.exchange import RouteOutcome
from remit.learning import read_samples
from remit.learning.meta import read_questions
from remit.ledger.sqlite import SqliteStore
from remit.routing import RULES_UNAVAILABLE, explain, find_decision, replay
from remit.routing.trail import verify_trail
from tests.support.requests import prompt_request
from tests.support.roots import new_root
from tests.support.upstream import Upstream


@pytest.fixture
def root(tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root whose OpenAI models are the upstream's."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{upstream.url}/v1")
    return new_root(tmp_path / "root")


def test_auto_is_decided_recorded_and_replayed_by_default(root: Path) -> None:
    with remit.Runtime.open(root) as runtime:
        runtime.budgeter.allocate(BudgetScope("SES-TESTTEST"), 10**6)
        response = runtime.gateway.route(prompt_request(model_id="auto"))
        assert response.outcome is RouteOutcome.SUCCESS
        told = explain(runtime.ledger, response.decision_entry_id)
        # Shipped models are asked at their maker's address alone; the default model always is.
        assert told["candidates_considered"] == ["gpt-4o-mini"]
        assert told["task_id"] == "WO-SES-TESTTEST-001"
        assert told["rule_version_hash"] == runtime.router.rules.version_hash
        assert replay(find_decision(runtime.ledger, told["decision_id"]))["agrees"]
        assert ("auto", "remit") in runtime.models()
    with remit.Runtime.open(root) as again:  # after a restart
        assert replay(find_decision(again.ledger, response.decision_entry_id))["agrees"]
        assert again.router.status()["rule_version_hash"] == told["rule_version_hash"]


def test_an_integer_of_any_size_is_routed_replayed_and_read_by_the_loops(root: Path) -> None:
    use = {"type": "tool_use", "id": "t", "name": "pay", "input": {"cents": 2**70, "x": -0.0}}
    messages = [
        {"role": "user", "content": "Pay."},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]},
    ]
    with remit.Runtime.open(root) as runtime:
        runtime.budgeter.allocate(BudgetScope("SES-TESTTEST"), 10**6)
        request = prompt_request(model_id="auto", prompt="", messages=messages)
        response = runtime.gateway.route(request)
        assert response.outcome is RouteOutcome.SUCCESS, response.error_message
        assert replay(find_decision(runtime.ledger, response.decision_entry_id))["agrees"]
        samples = [*read_samples(runtime.ledger, with_tasks=True)]
        assert read_questions(runtime.ledger, runtime.contracts, samples)


def test_without_evidence_auto_is_the_best_single_model_and_says_so(
    tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{upstream.url}/v1")
    stated = "".join(
        f'[routing.models.{name}]\nprovider = "openai"\nabilities = {{ general = {general} }}\n'
        f"input_usd_per_million = {usd}\noutput_usd_per_million = {usd}\n"
        for name, general, usd in (("dear", 80, 2), ("cheap", 60, 0.1))
    )
    auto = '[routing.routes.auto]\nmodels = ["dear", "cheap"]\n'
    prompts = ("Hello", "Debug this Python function: def f(): import os", "Solve x^2 = 4.")

    def winners(runtime: remit.Runtime, **more: str) -> set[str]:
        return {runtime.router.score_text(prompt, **more)["winner"] for prompt in prompts}

    with remit.Runtime.open(new_root(tmp_path / "root", stated + auto)) as runtime:
        assert winners(runtime) == {"dear"}
        assert winners(runtime, operator_preference="cost") == {"cheap"}
        assert runtime.router.status()["routes"][0]["best_single"] == "dear"
        runtime.budgeter.allocate(BudgetScope("SES-TESTTEST"), 10**6)
        response = runtime.gateway.route(prompt_request(model_id="auto"))
        why = explain(runtime.ledger, response.decision_entry_id)["why"]
        assert "best single model" in why[0]
    by_task = stated.replace("general = 60", "general = 60, code = 99")
    with remit.Runtime.open(new_root(tmp_path / "other", by_task + auto)) as runtime:
        assert winners(runtime) == {"dear", "cheap"}
        assert runtime.router.status()["routes"][0]["best_single"] == ""
        runtime.budgeter.allocate(BudgetScope("SES-TESTTEST"), 10**6)
        response = runtime.gateway.route(prompt_request(model_id="auto"))
        assert "best single" not in str(explain(runtime.ledger, response.decision_entry_id)["why"])


def test_a_decision_is_in_the_commit_of_its_answer(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with remit.Runtime.open(root) as runtime:
        runtime.budgeter.allocate(BudgetScope("SES-TESTTEST"), 10**6)
        commits: list[int] = []
        run = SqliteStore.run

        def counted(store: SqliteStore, units: Any) -> Any:
            commits.append(len(units))
            return run(store, units)

        monkeypatch.setattr(SqliteStore, "run", counted)
        # Circuits read longer ago than their poll are read again by the writer, which on a busy
        # machine happens between these two calls; it is no part of what is counted.
        monkeypatch.setattr(Breakers, "_is_old", lambda _: False)
        response = runtime.gateway.route(prompt_request(model_id="auto"))
        monkeypatch.undo()
        assert commits == [1, 1]  # DISPATCH; EXCHANGE with the decision
        _check_decision(runtime, response)


def test_a_call_that_is_cancelled_after_an_erasure_has_no_decision(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with remit.Runtime.open(root) as runtime:
        runtime.budgeter.allocate(BudgetScope("SES-TESTTEST"), 10**6)

        async def cancelled_meanwhile(*_: object) -> None:
            if erases:
                await asyncio.to_thread(
                    runtime.ledger.erase, session_id="SES-TESTTEST", reason="a request"
                )
            raise asyncio.CancelledError

        monkeypatch.setattr("remit.gateway.call.next_attempt", cancelled_meanwhile)
        asked = prompt_request(model_id="auto", prompt="Bartleby lives here [[status=503]]")
        for erases in (False, True):
            with pytest.raises(asyncio.CancelledError):
                asyncio.run(_awaited(runtime.gateway.aroute(asked)))
            counts = runtime.ledger.count_by_event()
            assert counts["EXCHANGE"] == 1 + erases
            assert counts["THOUGHT_RECORD"] == 1
        assert not list(runtime.ledger.query(text="Bartleby"))


async def _awaited(call: Any) -> None:
    await call


def _check_decision(runtime: remit.Runtime, response: remit.PromptResponse) -> None:
    entry = runtime.ledger.read(response.decision_entry_id)
    (attempt,) = entry.metadata["attempts"]
    assert attempt["exchange_entry_id"] == response.exchange_entry_id
    assert attempt["outcome"] == "success"
    assert attempt["latency_ms"] == response.latency_ms
    assert replay(entry)["agrees"]
    assert verify_trail(runtime.ledger).verified


@pytest.mark.parametrize("damage", ["missing", "not JSON", "NaN"])
def test_rules_that_cannot_be_read_route_by_the_defaults_and_say_so(
    root: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    remit.Runtime.open(root).close()
    rules = root / "HOT" / "routing" / "weights.json"
    if damage == "missing":
        rules.unlink()
    else:
        rules.write_text("{" if damage == "not JSON" else rules.read_text().replace("0.3", "NaN"))
    with remit.Runtime.open(root) as runtime:
        runtime.budgeter.allocate(BudgetScope("SES-TESTTEST"), 10**6)
        response = runtime.gateway.route(prompt_request(model_id="auto"))
        assert response.outcome is RouteOutcome.SUCCESS
        told = explain(runtime.ledger, response.decision_entry_id)
        assert told["rule_version_hash"] == RULES_UNAVAILABLE
        assert replay(find_decision(runtime.ledger, told["decision_id"]))["agrees"]
    assert "weights.json" in caplog.text
