"""Several gateways in one process, on one ledger: one budget all the same."""

from __future__ import annotations

import asyncio
import threading

from remit.gateway import LLMGateway, RouteOutcome
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter, audit_budgets
from remit.ledger import LedgerClient
from remit.providers import MockProvider
from tests.support.requests import prompt_request


async def test_calls_of_two_gateways_in_one_transaction_share_a_limit(
    ledger: LedgerClient,
) -> None:
    budgeter = TokenBudgeter(ledger)
    budgeter.allocate(BudgetScope("SES-TESTTEST"), limits=BudgetLimits(turns=5))
    gateways = [LLMGateway(ledger, budgeter=budgeter, dev_mode=True) for _ in range(3)]
    for gateway in gateways:
        gateway.register_provider("mock", MockProvider())
    go = threading.Event()
    before = ledger.submit(lambda _: go.wait(10))
    calls = [
        asyncio.ensure_future(gateways[number % 3].aroute(prompt_request())) for number in range(12)
    ]
    await asyncio.sleep(0.2)  # all of them wait for the transaction after this one
    go.set()
    await before
    outcomes = [response.outcome for response in await asyncio.gather(*calls)]
    assert outcomes.count(RouteOutcome.SUCCESS) == 5
    assert len(ledger.read_by_event_type("DISPATCH")) == 5
    audit = audit_budgets(ledger)
    assert audit.equal, audit.differences
    assert ledger.verify().verified
