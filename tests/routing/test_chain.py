"""The chain against nine real HTTP providers that fail in every way."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from remit.gateway import CircuitBreakerConfig, LLMGateway
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient
from remit.routing import (
    Candidate,
    FallbackChainExhaustedError,
    RouteOptions,
    RoutingDecisionRecord,
    aroute_request,
    create_thought_record_emitter,
    explain,
    find_decision,
    replay,
    route_request,
)
from remit.routing.trail import get_thought_record, list_thought_records, verify_trail
from remit.runtime import Runtime
from tests.routing.models import candidate, emitting, gateway_to, nine
from tests.support.requests import prompt_request
from tests.support.roots import new_root
from tests.support.upstream import Upstream

pytestmark = pytest.mark.any_store


def test_a_fault_schedule_is_told_in_order_with_reasons(
    target: str, upstream: Upstream, tmp_path: Path
) -> None:
    """Down, slow, 429, garbage, flapping, cut, no provider, a bad request; one answers."""
    upstream.reset()
    orders = {
        "a": "status=500", "b": "delay=5", "c": "status=429,retry_after=1", "d": "garbage=json",
        "e": "fail_first=1,key=flapping", "f": "cut=1", "g": "", "h": "status=400", "i": "",
    }  # fmt: skip
    models = nine(orders)
    with LedgerClient(target) as ledger:
        with gateway_to(ledger, upstream, models[:6] + models[7:]) as gateway:  # g has no provider
            options = emitting(ledger, gateway, models, model_timeout_s=0.5)
            first = route_request("Hello", options)
            assert first.model_id == "i"
            second = route_request("Hello again", options)
            assert second.model_id == "e"  # it was down once
            assert (first.response.attempts, second.response.attempts) == (8, 5)
        assert [call["model"].partition("@")[0][4:] for call in upstream.calls()] == [
            *"abcdefhi", *"abcde"
        ]  # fmt: skip
        told = explain(ledger, first.decision_id)
        assert [(one["model_id"], one["status"], one["code"]) for one in told["candidates"]] == [
            ("a", "failed", "SERVER_ERROR"),
            ("b", "failed", "TIMEOUT"),
            ("c", "failed", "RATE_LIMITED"),
            ("d", "failed", "SERVER_ERROR"),
            ("e", "failed", "SERVER_ERROR"),
            ("f", "failed", "SERVER_ERROR"),
            ("g", "skipped", "NO_ADAPTER"),
            ("h", "failed", "INVALID_REQUEST"),
            ("i", "answered", ""),
        ]
        assert told["fallback_attempts"] == 7  # eight asked; the one without a provider was not
        assert sum("failed" in sentence for sentence in told["why"]) == 7
        of_call = explain(ledger, first.response.exchange_entry_id)
        call = of_call.pop("call")
        assert of_call == told
        assert call["named_by"] == "route"
        assert call["decision_id"] == first.decision_id
        attempts = [
            entry.metadata.get("attempt", 1)
            for entry in ledger.query(event_type="EXCHANGE")
            if entry.metadata["decision_id"] == first.decision_id
        ]
        assert attempts == [1, 2, 3, 4, 5, 6, 7, 8]
        again = explain(ledger, second.decision_id)
        assert [one["status"] for one in again["candidates"]] == [
            *["failed"] * 4, "answered", *["not_reached"] * 4
        ]  # fmt: skip
        assert verify_trail(ledger).verified
        assert ledger.verify_chain() == (True, [])


def test_open_circuits_are_skipped_and_all_open_is_exhaustion(
    ledger: LedgerClient, upstream: Upstream
) -> None:
    models = nine(dict.fromkeys("abcdefghi", "status=500"))
    breaker = CircuitBreakerConfig(1, 600_000, 1)
    with gateway_to(ledger, upstream, models, breaker=breaker) as gateway:
        options = emitting(ledger, gateway, models)
        with pytest.raises(FallbackChainExhaustedError) as all_down:
            route_request("Hello", options)
        assert [one.model_id for one in all_down.value.attempts] == list("abcdefghi")
        assert {one.error.code for one in all_down.value.attempts} == {"SERVER_ERROR"}
        upstream.reset()
        with pytest.raises(FallbackChainExhaustedError) as all_open:
            route_request("Hello", options)
    attempts = all_open.value.attempts
    assert len(attempts) == 9
    assert {one.error.code for one in attempts} == {"CIRCUIT_OPEN"}
    assert upstream.count() == 0
    record = explain(ledger, all_open.value.decision_id)
    assert (record["routing_mode"], record["chosen_model_id"]) == ("fail", "")
    assert record["fallback_attempts"] == 9
    assert replay(find_decision(ledger, all_open.value.decision_id))["agrees"]


def test_without_a_provider_it_is_no_adapter(ledger: LedgerClient, upstream: Upstream) -> None:
    with (
        gateway_to(ledger, upstream, ()) as gateway,
        pytest.raises(FallbackChainExhaustedError) as raised,
    ):
        route_request("Hello", RouteOptions(gateway, [candidate("a", 1)]))
    (attempt,) = raised.value.attempts
    assert attempt.error.code == "NO_ADAPTER"
    assert attempt.skipped
    (refused,) = ledger.read_all()
    assert (refused.event_type, refused.metadata["error_code"]) == (
        "PROMPT_REJECTED", "PROVIDER_NOT_FOUND"
    )  # fmt: skip


def test_a_small_budget_leads_to_a_cheaper_model(ledger: LedgerClient, upstream: Upstream) -> None:
    from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter

    upstream.reset()
    budgeter = TokenBudgeter(ledger)
    budgeter.allocate(BudgetScope("SES-TESTTEST"), limits=BudgetLimits(nano=20_000_000))
    models = (
        Candidate("gpt-4", "openai", {"general": 90}),
        Candidate("gpt-4o-mini", "openai", {"general": 10}),
    )
    gateway = LLMGateway(ledger, budgeter, dev_mode=True)
    from tests.support.requests import openai_provider

    gateway.register_provider("openai", openai_provider(upstream.url))
    request = prompt_request(max_tokens=2000)
    result = route_request("Hello", emitting(ledger, gateway, models, request=request))
    assert result.model_id == "gpt-4o-mini"
    assert [call["model"] for call in upstream.calls()] == ["gpt-4o-mini"]
    told = explain(ledger, result.decision_id)
    assert told["candidates"][0]["code"] == "BUDGET_EXHAUSTED"
    assert told["candidates"][0]["status"] == "skipped"
    assert ledger.read_by_event_type("PROMPT_REJECTED") == []
    assert result.cost_usd == result.response.cost_incurred > 0


@pytest.mark.parametrize(("mode", "asked"), [("single", 1), ("ensemble", 2)])
def test_a_caller_that_goes_away_leaves_whole_pairs_and_their_decision(
    ledger: LedgerClient, upstream: Upstream, mode: Any, asked: int
) -> None:
    models = (candidate("a", 90, "delay=60"), candidate("b", 10, "delay=60"))

    async def cut() -> None:
        with gateway_to(ledger, upstream, models) as gateway:
            options = emitting(ledger, gateway, models, mode=mode)
            task = asyncio.ensure_future(aroute_request("Hello", options))
            await asyncio.sleep(0.4)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for provider in gateway.providers.values():
                await provider.aclose()  # type: ignore[union-attr]

    asyncio.run(cut())
    assert ledger.count_by_event() == {"DISPATCH": asked, "EXCHANGE": asked, "THOUGHT_RECORD": 1}
    assert ledger.orphans() == []
    exchanges = ledger.read_by_event_type("EXCHANGE")
    (decided,) = ledger.read_by_event_type("THOUGHT_RECORD")
    assert {one.metadata["decision_id"] for one in exchanges} == {decided.metadata["decision_id"]}
    attempts = decided.metadata["attempts"]
    assert sorted(one["exchange_entry_id"] for one in attempts) == [one.id for one in exchanges]
    assert {one["error_code"] for one in attempts} == {"CANCELLED"}


def test_the_time_for_one_model_is_a_setting_unless_the_environment_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REMIT_MODEL_TIMEOUT", raising=False)
    root = new_root(tmp_path / "root")

    def shown(**flags: Any) -> float:
        with Runtime.open(root, flags={f"routing.{k}": v for k, v in flags.items()}) as runtime:
            return float(runtime.router.status()["model_timeout_s"])

    assert shown() == 30.0
    assert shown(model_timeout_s=7.0) == 7.0
    monkeypatch.setenv("REMIT_MODEL_TIMEOUT", "2.5")
    assert shown(model_timeout_s=7.0) == 2.5


def test_a_scoring_function_of_ones_own(ledger: LedgerClient, upstream: Upstream) -> None:
    from remit.routing import Scoring, ScoringInputs

    def last(inputs: ScoringInputs) -> Scoring:
        names = [one.model_id for one in inputs.candidates]
        return Scoring(names[-1], {name: float(place) for place, name in enumerate(names)})

    models = nine({})
    with gateway_to(ledger, upstream, models) as gateway:
        result = route_request("Hello", emitting(ledger, gateway, models, scoring_fn=last))
        assert result.model_id == "i"
        told = replay(find_decision(ledger, result.decision_id))
        assert told["agrees"]
        assert told["checks"]["scores"] is None
        assert "last" in told["notes"][0]
        for scores in ({}, {"a": 1.0}, dict.fromkeys("abcdefghi", float("nan"))):
            with pytest.raises(InvalidInputError):
                route_request(
                    "Hello",
                    RouteOptions(
                        gateway, models, scoring_fn=lambda _, given=scores: Scoring("a", given)
                    ),
                )


def test_tampering_with_a_decision_is_found_by_replay(target: str, upstream: Upstream) -> None:
    from dataclasses import replace

    models = nine({})
    with LedgerClient(target) as ledger, gateway_to(ledger, upstream, models) as gateway:
        result = route_request("Hello", emitting(ledger, gateway, models))
        entry = find_decision(ledger, result.decision_id)
        assert replay(entry)["agrees"]
        record = json.loads(entry.metadata["content"])
        for name, value in (
            ("chosen_model_id", "b"), ("decision_hash", "0" * 64),
            ("scores", {**record["scores"], "a": 0.0}),
            ("candidates_considered", list(reversed(record["candidates_considered"]))),
            ("rule_version_hash", "rv:sha256:" + "0" * 64),
        ):  # fmt: skip
            metadata = {**entry.metadata, "content": json.dumps({**record, name: value})}
            assert not replay(replace(entry, metadata=metadata))["agrees"], name
        for key, value in (("prompt", "Hullo"), ("profiles", {})):
            assert not replay(replace(entry, metadata={**entry.metadata, key: value}))["agrees"]


def test_an_erased_decision_says_so(target: str, upstream: Upstream) -> None:
    models = nine({})
    with LedgerClient(target) as ledger, gateway_to(ledger, upstream, models) as gateway:
        result = route_request("A secret plan", emitting(ledger, gateway, models))
        entry = find_decision(ledger, result.decision_id)
        ledger.erase(session_id=entry.metadata["session_id"], reason="asked")
        told = explain(ledger, result.decision_id)
        assert told["erased"]
        assert "erased" in told["why"][0]
        again = replay(find_decision(ledger, result.decision_id))
        assert not again["agrees"]
        assert "erased" in again["notes"][0]
        assert ledger.verify_chain() == (True, [])
        assert verify_trail(ledger).verified


# -- Emitters are told, and change nothing --------------------------------------------------------


# Ids and times of the single call; ``wire`` holds the upstream's own.
VARIES = {
    "decision_id", "latency_ms", "timestamp", "exchange_entry_id", "dispatch_entry_id", "wire",
}  # fmt: skip


def _fields(value: Any) -> dict[str, Any]:
    """All fields of a result, but for ids and times of the single call."""
    told = {one.name: getattr(value, one.name) for one in fields(value) if one.name not in VARIES}
    if "response" in told:
        told["response"] = _fields(told["response"])
    return told


def _raising(_: RoutingDecisionRecord) -> None:
    raise RuntimeError("the emitter is broken")


async def _raising_later(_: RoutingDecisionRecord) -> None:
    await asyncio.sleep(0)
    raise RuntimeError("the emitter is broken")


def _hanging(_: RoutingDecisionRecord) -> None:
    time.sleep(3)


async def _hanging_for_ever(_: RoutingDecisionRecord) -> None:
    while True:
        try:
            await asyncio.sleep(3)
            return
        except asyncio.CancelledError:
            continue


async def _cancelled(_: RoutingDecisionRecord) -> None:
    raise asyncio.CancelledError


BAD = [_raising, _raising_later, _hanging, _hanging_for_ever, _cancelled]


@pytest.mark.parametrize("emitter", [None, *BAD])
def test_an_emitter_changes_no_result(
    ledger: LedgerClient, upstream: Upstream, emitter: Any, caplog: pytest.LogCaptureFixture
) -> None:
    models = nine({"a": "status=500"})
    with gateway_to(ledger, upstream, models) as gateway:
        plain = route_request("Hello", RouteOptions(gateway, models))
        told = emitter or create_thought_record_emitter(ledger, task_id="T", agent_id="a")
        options = RouteOptions(gateway, models, decision_emitter=told, emitter_timeout_s=0.3)
        assert _fields(route_request("Hello", options)) == _fields(plain)
    assert bool(caplog.records) == (emitter is not None)
    assert "broken" not in caplog.text  # what an emitter says may quote the decision


def test_it_is_told_once_at_each_end(ledger: LedgerClient, upstream: Upstream) -> None:
    heard: list[RoutingDecisionRecord] = []
    threads: list[str] = []

    def listen(decision: RoutingDecisionRecord) -> None:
        heard.append(decision)
        threads.append(threading.current_thread().name)

    models = nine({"a": "status=500"})
    with gateway_to(ledger, upstream, models) as gateway:
        result = route_request("Hello", RouteOptions(gateway, models, decision_emitter=listen))
        (decision,) = heard
        assert type(decision) is RoutingDecisionRecord
        assert decision.chosen_model_id == result.model_id == "b"
        assert decision.fallback_attempts == result.fallback_attempts == 1
        assert dict(decision.scores) == dict(result.scores)
        assert len(decision.to_dict()) == 8
        failing = nine({"a": "status=500"})[:1]
        with pytest.raises(FallbackChainExhaustedError):
            route_request("Hello", RouteOptions(gateway, failing, decision_emitter=listen))
    assert [one.routing_mode for one in heard] == ["single", "fail"]
    assert heard[1].chosen_model_id == ""


def test_decisions_of_a_task_are_one_chain_of_thoughts(
    ledger: LedgerClient, upstream: Upstream
) -> None:
    models = nine({})
    emitter = create_thought_record_emitter(ledger, task_id="TASK-7", agent_id="agent-7")
    with gateway_to(ledger, upstream, models) as gateway:
        ids = [
            route_request(text, RouteOptions(gateway, models, decision_emitter=emitter)).decision_id
            for text in ("one", "two", "three")
        ]
    thoughts = list_thought_records(ledger, "TASK-7")
    assert [one.id for one in thoughts] == ids
    assert thoughts[0].prev_hash == "0" * 64
    assert [one.prev_hash for one in thoughts[1:]] == [one.hash for one in thoughts[:-1]]
    assert {(one.type, one.agent_id) for one in thoughts} == {("decision", "agent-7")}
    assert get_thought_record(ledger, ids[1]) == thoughts[1]
