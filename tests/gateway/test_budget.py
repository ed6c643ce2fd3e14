"""Budgets through the gateway: no overspend, nothing leaked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remit.gateway import LLMGateway, RouteOutcome, RouterConfig
from remit.gateway.budget import BudgetRefusedError, BudgetScope, TokenBudgeter, TokenUsage
from remit.kernel.budget_values import BudgetLimits, nano_of
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient
from remit.providers import MockProvider, ProviderError, ProviderResponse
from tests.support.requests import anthropic_provider, prompt_request
from tests.support.wire import message, serve

SESSION = BudgetScope("SES-TESTTEST")
ORDER = BudgetScope("SES-TESTTEST", "WO-SES-TESTTEST-001")


@pytest.fixture
def budgeter(ledger: LedgerClient) -> TokenBudgeter:
    return TokenBudgeter(ledger)


def _gateway(
    ledger: LedgerClient, budgeter: TokenBudgeter, provider: Any, mode: Any = "enforce", **more: Any
) -> LLMGateway:
    config = RouterConfig(retry_base_ms=1, retry_max_ms=1, **more)
    gateway = LLMGateway(ledger, budgeter, config, dev_mode=True, budget_mode=mode)
    gateway.register_provider("mock", provider)
    return gateway


def test_a_call_reserves_and_settles_on_every_scope(
    ledger: LedgerClient, budgeter: TokenBudgeter
) -> None:
    budgeter.allocate(SESSION, 10_000)
    budgeter.allocate(ORDER, 2_000)
    held: list[int] = []

    def look(_: dict[str, Any]) -> dict[str, Any]:
        held.extend(state.reserved_tokens for state in budgeter.status(ORDER))
        return message("hi")

    with serve(look) as server:
        gateway = _gateway(ledger, budgeter, anthropic_provider(server.url))
        response = gateway.route(prompt_request(model_id="m"))
    assert len(held) == 2
    assert all(tokens > 100 for tokens in held)  # the bound, while the call was out
    session, order = budgeter.status(ORDER)
    assert (session.spent_tokens, session.reserved_tokens, session.turns) == (18, 0, 1)
    assert (order.spent_tokens, order.reserved_tokens) == (18, 0)
    assert response.budget_remaining == 2_000 - 18


@pytest.mark.parametrize("narrow", [True, False])
def test_the_narrowest_and_the_widest_limit_both_hold(
    ledger: LedgerClient, budgeter: TokenBudgeter, narrow: bool
) -> None:
    budgeter.allocate(SESSION, 1_000_000 if narrow else 150)
    budgeter.allocate(ORDER, 150 if narrow else 1_000_000)
    provider = MockProvider()
    response = _gateway(ledger, budgeter, provider).route(prompt_request(max_tokens=4_000))
    assert (response.outcome, response.error_code) == (RouteOutcome.REJECTED, "BUDGET_EXHAUSTED")
    assert response.budget_remaining == 150
    assert provider.call_count == 0
    assert all(state.reserved_tokens == 0 for state in budgeter.status(ORDER))
    assert [e.event_type for e in ledger.query(contract_id="PRC-TEST-001")] == ["PROMPT_REJECTED"]


async def test_warn_records_and_goes_on_however_many_come_at_once(
    ledger: LedgerClient, budgeter: TokenBudgeter
) -> None:
    budgeter.allocate(SESSION, 10)
    gateway = _gateway(ledger, budgeter, MockProvider(), "warn")
    responses = await asyncio.gather(*(gateway.aroute(prompt_request()) for _ in range(10)))
    assert {response.outcome for response in responses} == {RouteOutcome.SUCCESS}
    assert len(ledger.read_by_event_type("BUDGET_WARNING")) == 10
    (state,) = budgeter.status(SESSION)
    assert (state.spent_tokens, state.reserved_tokens, state.remaining) == (1500, 0, -1490)


def test_unknown_usage_settles_at_the_bound_and_known_failure_at_nothing(
    ledger: LedgerClient, budgeter: TokenBudgeter
) -> None:
    budgeter.allocate(SESSION, 100_000)
    script = [
        ProviderError("INVALID_REQUEST", "no"),
        ProviderError("SERVER_ERROR", "cut", maybe_billed=True),
    ]
    gateway = _gateway(ledger, budgeter, MockProvider(responses=script))
    gateway.route(prompt_request())
    assert budgeter.status(SESSION)[0].spent_tokens == 0
    gateway.route(prompt_request())
    (state,) = budgeter.status(SESSION)
    last = ledger.read_by_event_type("EXCHANGE")[-1].metadata
    assert state.spent_tokens == last["input_tokens"] + last["output_tokens"] > 100
    assert state.reserved_tokens == 0


def test_every_retry_reserves_again_and_nothing_leaks(
    ledger: LedgerClient, budgeter: TokenBudgeter
) -> None:
    budgeter.allocate(SESSION, 100_000, turn_limit=1)
    script = [ProviderError("SERVER_ERROR", "busy", True), "fine"]
    response = _gateway(ledger, budgeter, MockProvider(responses=script)).route(prompt_request())
    assert response.outcome is RouteOutcome.SUCCESS
    (state,) = budgeter.status(SESSION)
    assert (state.spent_tokens, state.reserved_tokens, state.turns) == (150, 0, 1)


def test_a_debit_is_on_record_and_an_allocation_too(
    ledger: LedgerClient, budgeter: TokenBudgeter
) -> None:
    budgeter.allocate(SESSION, 1_000)
    result = budgeter.debit(SESSION, TokenUsage(30, 10, "m"))
    assert (result.total_consumed, result.remaining) == (40, 960)
    assert ledger.read(result.ledger_entry_id).event_type == "BUDGET_DEBIT"
    assert [e.event_type for e in ledger.read_all()] == ["BUDGET_ALLOCATED", "BUDGET_DEBIT"]
    with pytest.raises(BudgetRefusedError):
        budgeter.debit(BudgetScope("SES-OTHER"), TokenUsage(1, 1))


def test_bad_scopes_are_refused(budgeter: TokenBudgeter) -> None:
    with pytest.raises(InvalidInputError):
        BudgetScope("")
    with pytest.raises(InvalidInputError):
        BudgetScope("S", requested_tokens=-1)
    with pytest.raises(InvalidInputError):
        budgeter.allocate(SESSION, -5)


@pytest.mark.parametrize("number", [-1, 1.5, 1.0, True, 2**53, "5"])
def test_only_whole_numbers_in_range_are_counted(
    ledger: LedgerClient, budgeter: TokenBudgeter, number: Any
) -> None:
    for limits in ({"tokens": number}, {"nano": number}, {"turns": number}):
        with pytest.raises(InvalidInputError, match="no whole number"):
            BudgetLimits(**limits)
    with pytest.raises(InvalidInputError, match="no whole number"):
        BudgetScope("SES-TESTTEST", requested_tokens=number)
    budgeter.allocate(SESSION, 100)
    budgeter.reserve(BudgetScope("SES-TESTTEST", requested_tokens=10), "RES-1")
    before, count = budgeter.status(SESSION), ledger.count()
    for usage in (TokenUsage(number, 1), TokenUsage(1, number), TokenUsage(1, 1, "m", number)):
        with pytest.raises(InvalidInputError, match="no whole numbers"):
            budgeter.settle("RES-1", usage)
        with pytest.raises(InvalidInputError, match="no whole numbers"):
            budgeter.debit(SESSION, usage)
    assert budgeter.status(SESSION) == before
    assert ledger.count() == count
    assert budgeter.settle("RES-1", TokenUsage(1, 1, "m", 0)).success


@pytest.mark.parametrize("usd", ["much", "nan", "-1", "1e999999"])
def test_a_sum_that_cannot_be_counted_is_refused(usd: str) -> None:
    with pytest.raises(InvalidInputError, match="not an amount"):
        nano_of(usd)


def test_everything_that_is_billed_is_in_the_bound(
    ledger: LedgerClient, budgeter: TokenBudgeter
) -> None:
    gateway = _gateway(ledger, budgeter, MockProvider())
    plain = gateway.input_bound(prompt_request())
    schema = {"type": "object", "description": "x" * 5_000}
    assert gateway.input_bound(prompt_request(output_schema=schema)) == plain
    held = prompt_request(output_schema=schema, structured_output=True)
    assert gateway.input_bound(held) > plain + 5_000
    tool = {"name": "t", "input_schema": {}}
    assert gateway.input_bound(prompt_request(tools=[tool])) > plain + 1_000
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    seen = prompt_request(messages=[{"role": "user", "content": [image]}])
    assert gateway.input_bound(seen) > plain + 10_000


def test_no_id_can_name_anothers_scope(ledger: LedgerClient, budgeter: TokenBudgeter) -> None:
    budgeter.allocate(BudgetScope("S", "W"), 100)
    assert budgeter.status(BudgetScope("S/work_order:W")) == []
    assert len(set(BudgetScope("a%2F", "b/c:d", "e").path)) == 4


def test_an_agents_limit_in_the_session_holds_inside_a_work_order(
    ledger: LedgerClient, budgeter: TokenBudgeter
) -> None:
    budgeter.allocate(SESSION, 1_000_000)
    budgeter.allocate(BudgetScope("SES-TESTTEST", agent_id="agent-1"), 10)
    response = _gateway(ledger, budgeter, MockProvider()).route(prompt_request())
    assert response.error_code == "BUDGET_EXHAUSTED"


def test_what_an_enforcing_process_reserved_is_settled_when_budgets_are_off(
    ledger: LedgerClient, budgeter: TokenBudgeter
) -> None:
    budgeter.allocate(SESSION, 10_000)
    config = RouterConfig(lease_margin_ms=-60_000)
    gateway = LLMGateway(ledger, budgeter, config, dev_mode=True)

    class Dies:
        def send(self, request: Any) -> ProviderResponse:
            off = LLMGateway(ledger, None, config, dev_mode=True, budget_mode="off")
            assert len(off.recover()) == 1
            return ProviderResponse("late", "m", 1, 1)

    gateway.register_provider("mock", Dies())
    from remit.gateway import LeaseLostError

    with pytest.raises(LeaseLostError):
        gateway.route(prompt_request())
    (state,) = budgeter.status(SESSION)
    assert state.reserved_tokens == 0
    assert state.spent_tokens > 0
