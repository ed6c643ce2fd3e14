"""Emitters are told, and change nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import fields
from typing import Any

import pytest

from remit.ledger import LedgerClient
from remit.routing import (
    FallbackChainExhaustedError,
    RouteOptions,
    RoutingDecisionRecord,
    create_thought_record_emitter,
    route_request,
)
from remit.routing.trail import get_thought_record, list_thought_records
from tests.routing.models import gateway_to, nine
from tests.support.upstream import Upstream

pytestmark = pytest.mark.any_store

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
