"""Content that an erasure reached while its call waited is not recorded again."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from remit.gateway import LLMGateway, RouteOutcome, RouterConfig
from remit.gateway.budget import Amount, BudgetLimits, BudgetScope, TokenBudgeter
from remit.ledger import LedgerClient
from remit.providers import MockProvider, ProviderError
from remit.routing import (
    Candidate,
    EnsembleOptions,
    RouteOptions,
    aroute_request,
    create_thought_record_emitter,
)
from tests.support.requests import prompt_request

SECRET = "the secret of person 7, who lives at the lake"


def _gateway(ledger: LedgerClient, *answers: Any) -> LLMGateway:
    for session in ("SES-TESTTEST", "SES-OTHERONE"):
        TokenBudgeter(ledger).allocate(BudgetScope(session), limits=BudgetLimits(tokens=100_000))
    config = RouterConfig("mock", "m")
    gateway = LLMGateway(ledger, TokenBudgeter(ledger), config, dev_mode=True)
    gateway.register_provider("mock", MockProvider(responses=list(answers)))
    return gateway


def _erase(target: str, in_flight: bool = False, **what: str) -> None:
    with LedgerClient(target) as other:  # as another process does
        report = other.erase(**what, reason="request")
        assert report.values > 0
        assert ("Calls in flight" in report.remainder) is in_flight


@pytest.mark.parametrize("kind", ["session", "person", "entry"])
async def test_a_retry_after_an_erasure_is_not_made(
    target: str, ledger: LedgerClient, kind: str
) -> None:
    busy = ProviderError("RATE_LIMITED", "slow down", True, retry_after_s=1.5)
    gateway = _gateway(ledger, busy, "never sent")
    call = asyncio.ensure_future(gateway.aroute(prompt_request(prompt=SECRET, subject_id="ann")))
    while not ledger.count_by_event().get("EXCHANGE"):
        await asyncio.sleep(0.01)
    (entry,) = ledger.query(event_type="EXCHANGE")
    what = {"session": {"session_id": "SES-TESTTEST"}, "person": {"subject_id": "ann"},
            "entry": {"entry_id": entry.id}}[kind]  # fmt: skip
    await asyncio.to_thread(_erase, target, **what)
    response = await call
    assert (response.outcome, response.error_code) == (RouteOutcome.ERROR, "RATE_LIMITED")
    assert "erased" in (response.error_message or "")
    assert (ledger.count_by_event()["DISPATCH"], ledger.count_by_event()["EXCHANGE"]) == (1, 1)
    assert not list(ledger.query(text="lake"))


async def test_a_retry_follows_an_erasure_that_cannot_reach_it(
    target: str, ledger: LedgerClient
) -> None:
    busy = ProviderError("RATE_LIMITED", "slow down", True, retry_after_s=1.5)
    gateway = _gateway(ledger, "first", busy, "third")
    await gateway.aroute(prompt_request(session_id="SES-OTHERONE"))
    call = asyncio.ensure_future(gateway.aroute(prompt_request(prompt=SECRET)))
    while ledger.count_by_event().get("EXCHANGE") != 2:
        await asyncio.sleep(0.01)
    await asyncio.to_thread(_erase, target, session_id="SES-OTHERONE")
    assert (await call).content == "third"


@pytest.mark.parametrize("session", ["SES-TESTTEST", "SES-OTHERONE"])
async def test_a_call_that_waits_for_money_during_an_erasure_is_refused(
    target: str, ledger: LedgerClient, session: str
) -> None:
    keeper, scope = TokenBudgeter(ledger), BudgetScope("SES-TESTTEST")
    gateway = _gateway(ledger, "first", "second")
    await gateway.aroute(prompt_request(session_id=session))
    keeper.allocate(scope, limits=BudgetLimits(tokens=1_000))
    keeper.reserve(scope, "held", amount=Amount(800))
    call = asyncio.ensure_future(gateway.aroute(prompt_request(prompt=SECRET, max_tokens=500)))
    while not gateway.in_flight.waiting_room.waiting:
        await asyncio.sleep(0.01)
    await asyncio.to_thread(_erase, target, session_id=session)
    await asyncio.to_thread(keeper.release, "held")
    response = await call
    if session == "SES-OTHERONE":
        assert response.content == "second"
        return
    assert (response.outcome, response.error_code) == (RouteOutcome.REJECTED, "INVALID_INPUT")
    assert "erased" in (response.error_message or "")
    assert not list(ledger.query(text="lake"))


async def test_a_decision_after_an_erasure_is_not_recorded(
    target: str, ledger: LedgerClient
) -> None:
    """The decision of an ensemble is written after its calls, in a transaction of its own."""

    class Erasing(MockProvider):
        def send(self, request: Any) -> Any:
            deadline = time.monotonic() + 60
            while not ledger.count_by_event().get("EXCHANGE") and time.monotonic() < deadline:
                time.sleep(0.01)
            _erase(target, in_flight=True, session_id="SES-TESTTEST")
            return super().send(request)

    gateway = LLMGateway(ledger, dev_mode=True)
    gateway.register_provider("first", MockProvider("An answer."))
    gateway.register_provider("late", Erasing("Another."))
    models = [Candidate(name, name, {"general": 90}, served_as="m") for name in ("first", "late")]
    emitter = create_thought_record_emitter(ledger, task_id="TASK-1", agent_id="agent-1")
    options = RouteOptions(gateway, models, decision_emitter=emitter, mode="ensemble",
                           ensemble=EnsembleOptions(size=2), request=prompt_request())  # fmt: skip
    result = await aroute_request(SECRET, options)
    assert result.response.outcome is RouteOutcome.SUCCESS
    assert not ledger.count_by_event().get("THOUGHT_RECORD")
