"""A caller who goes away at any moment leaves whole pairs, and holds nothing."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from remit.gateway import LLMGateway
from remit.gateway.auth import Identity
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter, audit_budgets
from remit.kernel.exchange import RouteOutcome
from remit.ledger import LedgerClient
from remit.providers import MockProvider
from tests.support.requests import prompt_request

_ANN = Identity("ann", "agent", key_id="KEY-ANN")
_KEY = BudgetScope(key_id="KEY-ANN")


async def _listener(_: Any) -> None:
    await asyncio.sleep(0.001)


@pytest.mark.parametrize("streams", [False, True])
async def test_whenever_it_is(ledger: LedgerClient, streams: bool) -> None:
    budgeter = TokenBudgeter(ledger)
    budgeter.allocate(_KEY, limits=BudgetLimits(tokens=10**9))
    gateway = LLMGateway(ledger, budgeter, dev_mode=True)
    gateway.register_provider("mock", MockProvider())
    told: set[str] = set()
    gateway.observers.append(lambda report: told.add(report.response.exchange_entry_id))
    moments = random.Random(1)
    ends: Counter[str] = Counter()
    for number in range(150):
        request = prompt_request(
            session_id=f"SES-GONE{number % 7:04}", work_order_id="", idempotency_key=f"k{number}"
        )
        sink: Any = _listener if streams else None
        call = asyncio.create_task(gateway.aroute(request, identity=_ANN, sink=sink))
        # By steps of the loop while nothing is written, by the clock while something is.
        for _ in range(number % 5):
            await asyncio.sleep(0)
        await asyncio.sleep(moments.choice([0, 0.001, 0.002, 0.004, 0.008, 0.016]))
        call.cancel()
        try:
            response = await call
        except asyncio.CancelledError:
            ends["cancelled"] += 1
            if number % 10 == 0:  # the same key again, at once
                again = await gateway.aroute(request, identity=_ANN)
                assert again.outcome is RouteOutcome.SUCCESS
        else:
            ends[str(response.outcome)] += 1
    ledger.flush()
    assert ends["cancelled"]
    dispatched = [entry.id for entry in ledger.read_by_event_type("DISPATCH")]
    ended = [e.metadata["dispatch_entry_id"] for e in ledger.read_by_event_type("EXCHANGE")]
    assert sorted(dispatched) == sorted(ended)
    assert gateway.in_flight.count() == 0
    assert ledger.select("SELECT count(*) FROM idempotency WHERE exchange_entry_id = ''") == [(0,)]
    assert budgeter.status(_KEY)[0].reserved_tokens == 0
    assert audit_budgets(ledger).equal
    assert told == {entry.id for entry in ledger.read_by_event_type("EXCHANGE")}


async def test_during_the_check_of_the_output(
    ledger: LedgerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    checking = asyncio.Event()

    async def check(*_: Any) -> list[str]:
        checking.set()
        await asyncio.sleep(600)
        return []

    monkeypatch.setattr("remit.gateway.attempt.call_in_thread", check)
    gateway = LLMGateway(ledger, dev_mode=True)
    gateway.register_provider("mock", MockProvider('{"a": 1}'))
    told: list[str] = []
    gateway.observers.append(lambda report: told.append(report.response.exchange_entry_id))
    request = prompt_request(output_schema={"type": "object"}, idempotency_key="once")
    call = asyncio.create_task(gateway.aroute(request, identity=_ANN))
    await checking.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    (exchange,) = ledger.read_by_event_type("EXCHANGE")
    assert told == [exchange.id]
    monkeypatch.undo()
    again = await gateway.aroute(request, identity=_ANN)
    assert (again.replayed, again.exchange_entry_id) == (True, exchange.id)
