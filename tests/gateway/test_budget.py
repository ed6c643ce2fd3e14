"""Budgets through the gateway: no overspend, nothing leaked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from remit.gateway import LLMGateway, RouteOutcome, RouterConfig
from remit.gateway.budget import (
    Amount,
    BudgetRefusedError,
    BudgetScope,
    TokenBudgeter,
    TokenUsage,
    audit_budgets,
)
from remit.kernel.budget_values import BudgetLimits, nano_of
from remit.kernel.budget_windows import window_at
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import PromptRequest
from remit.ledger import LedgerClient
from remit.providers import Body, MockProvider, ProviderError, ProviderRequest, ProviderResponse
from remit.providers.wire import CHAT
from tests.support.clocks import shared_clock
from tests.support.requests import anthropic_provider, openai_provider, prompt_request
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


# -- Limits of a day, a week or a month; and calls that are lowered to what is left ---------------


BERLIN = "Europe/Berlin"
_ZONES = ["UTC", BERLIN, "America/Sao_Paulo", "Asia/Kathmandu", "Africa/Cairo", "Asia/Beirut",
          "Australia/Lord_Howe", "America/St_Johns", "Pacific/Apia"]  # fmt: skip


@given(
    at=st.integers(0, 4_000_000_000),
    zone=st.sampled_from(_ZONES),
    window=st.sampled_from(["day", "week", "month"]),
)
def test_an_instant_is_in_one_window_and_the_next_begins_where_it_ends(
    at: int, zone: str, window: str
) -> None:
    start, end = window_at(window, zone, at)
    assert start <= at < end
    assert window_at(window, zone, end)[0] == end
    assert window_at(window, zone, end - 1) == (start, end)
    days = {"day": (1, 1), "week": (7, 7), "month": (28, 31)}[window]
    # A day may lack hours that clocks leave out, or have them twice; Apia once left out a day.
    assert (days[0] - 1) * 86_400 - 3_700 <= end - start <= days[1] * 86_400 + 7_200
    first = datetime.fromtimestamp(start, ZoneInfo(zone))
    assert window != "month" or first.day == 1
    assert window != "week" or first.weekday() == 0


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("America/St_Johns", "2006-10-29"),  # from 00:01 back to 23:01 of the day before
        ("America/St_Johns", "2006-04-02"),
        ("Asia/Pyongyang", "2018-05-04"),  # half an hour, to midnight
        ("Pacific/Apia", "2011-12-30"),  # this day was left out
        ("Africa/Cairo", "2026-04-24"),
    ],
)
@pytest.mark.parametrize("window", ["day", "week", "month"])
def test_each_minute_around_a_change_of_clocks_is_in_one_window(
    window: str, zone: str, day: str
) -> None:
    noon = int(datetime.fromisoformat(f"{day}T12:00:00Z").timestamp())
    for at in range(noon - 43_200, noon + 86_400, 60):
        start, end = window_at(window, zone, at)
        assert start <= at < end
        assert window_at(window, zone, end - 1) == (start, end)


@pytest.mark.parametrize(
    "limits",
    [
        {"window": "year"},
        {"time_zone": BERLIN},
        {"window": "day", "time_zone": "Europe/Atlantis"},
        {"window": "day", "time_zone": "../../etc/passwd"},
        {"on_short": "beg"},
    ],
)
def test_a_window_that_is_none_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        BudgetLimits.of(usd=1, **limits)


@pytest.fixture
def clock() -> Iterator[Any]:
    one = SimpleNamespace(now=datetime.fromisoformat("2026-11-23T22:50:00Z").timestamp())
    with shared_clock(lambda: one.now):
        yield one


def test_a_new_day_begins_with_nothing_spent_and_is_on_record(
    ledger: LedgerClient, clock: Any
) -> None:
    keeper = TokenBudgeter(ledger)
    keeper.allocate(SESSION, limits=BudgetLimits(tokens=100, window="day", time_zone=BERLIN))
    keeper.reserve(SESSION, "1", amount=Amount(90))
    keeper.settle("1", TokenUsage(80, 0, cost_nano=7))
    with pytest.raises(BudgetRefusedError, match="20 tokens left"):
        keeper.reserve(SESSION, "2", amount=Amount(90))
    clock.now += 600  # midnight in Berlin
    (state,) = keeper.status(SESSION)
    assert (state.spent_tokens, state.turns) == (0, 0)  # seen before anybody has spent in it
    assert len(ledger.read_by_event_type("BUDGET_ALLOCATED")) == 1
    keeper.reserve(SESSION, "2", amount=Amount(90))
    _, reset = ledger.read_by_event_type("BUDGET_ALLOCATED")
    assert reset.decision == "RESET"
    told = reset.metadata
    assert (told["window"], told["time_zone"], told["token_limit"]) == ("day", BERLIN, 100)
    assert told["window_end"] == "2026-11-24T23:00:00Z"
    assert told["passed"] == {
        "window_end": "2026-11-23T23:00:00Z", "spent_tokens": 80, "spent_usd": 7e-9, "turns": 1,
    }  # fmt: skip


async def test_a_call_across_midnight_is_told_the_same_by_the_ledger(
    ledger: LedgerClient, clock: Any
) -> None:
    keeper = TokenBudgeter(ledger)
    keeper.allocate(SESSION, limits=BudgetLimits(tokens=10_000, window="day", time_zone=BERLIN))

    gateway = LLMGateway(ledger, keeper, RouterConfig(), dev_mode=True)
    slow = MockProvider(delay_s=0.2, input_tokens=10, output_tokens=5)
    gateway.register_provider("mock", slow)
    first = asyncio.ensure_future(gateway.aroute(prompt_request()))
    await asyncio.sleep(0.1)
    clock.now += 600
    second = await gateway.aroute(prompt_request())
    assert {(await first).outcome, second.outcome} == {RouteOutcome.SUCCESS}
    (state,) = keeper.status(SESSION)
    assert (state.spent_tokens, state.reserved_tokens, state.turns) == (15, 0, 1)
    assert audit_budgets(ledger).equal
    clock.now += 86_400
    assert audit_budgets(ledger).equal  # that a day has passed is no difference


def test_a_change_of_the_window_begins_one_anew_and_a_change_of_the_limit_does_not(
    ledger: LedgerClient, clock: Any
) -> None:
    keeper = TokenBudgeter(ledger)

    def spent_after(**limits: Any) -> int:
        keeper.allocate(SESSION, limits=BudgetLimits(tokens=100, **limits))
        assert audit_budgets(ledger).equal
        spent = keeper.status(SESSION)[0].spent_tokens
        keeper.debit(SESSION, TokenUsage(10, 0))
        return spent

    assert spent_after() == 0
    assert spent_after(turns=5) == 10
    assert spent_after(window="day") == 0
    assert spent_after(window="day", turns=7) == 10
    assert spent_after(window="day", time_zone=BERLIN) == 0
    assert spent_after(window="month", time_zone=BERLIN) == 0
    assert spent_after() == 0


# -- lowered to what is left -----------------------------------------------------------------------


class _Answers:
    def __init__(self) -> None:
        self.asked: list[int | None] = []

    async def asend(self, request: ProviderRequest, *, on_text: object = None) -> ProviderResponse:
        self.asked.append(request.max_tokens)
        await asyncio.sleep(0.02)
        return ProviderResponse("x", request.model_id, 10, min(request.max_tokens or 0, 700))


def _priced_gateway(ledger: LedgerClient, keeper: TokenBudgeter, provider: Any) -> LLMGateway:
    config = RouterConfig(default_provider="openai", default_model="gpt-4o-mini")
    gateway = LLMGateway(ledger, keeper, config, dev_mode=True)
    gateway.register_provider("openai", provider)
    return gateway


def _ask(**more: Any) -> PromptRequest:
    return prompt_request(prompt="x", **more)


async def test_calls_are_lowered_to_what_is_left_and_then_refused(ledger: LedgerClient) -> None:
    keeper = TokenBudgeter(ledger)
    keeper.allocate(SESSION, limits=BudgetLimits(tokens=2_000, on_short="clamp"))
    gateway = _priced_gateway(ledger, keeper, provider := _Answers())
    room = gateway.input_bound(_ask())
    asked = (gateway.aroute(_ask(max_tokens=3_000)) for _ in range(6))
    responses = await asyncio.gather(*asked)
    (state,) = keeper.status(SESSION)
    assert state.spent_tokens <= 2_000
    assert state.reserved_tokens == 0
    # One after the other: each asks for what the ones before have left.
    assert provider.asked == [2_000 - room, 2_000 - room - 710, 2_000 - room - 1_420]
    codes = [one.error_code for one in responses]
    assert codes.count(None) == 3
    assert set(codes) - {None} == {"BUDGET_EXHAUSTED"}
    for entry in ledger.read_by_event_type("EXCHANGE"):
        (change,) = entry.metadata["changed"]
        assert change["path"].startswith("/max_")
    assert audit_budgets(ledger).equal


async def test_dollars_that_are_left_lower_a_call_too(ledger: LedgerClient) -> None:
    keeper = TokenBudgeter(ledger)
    keeper.allocate(SESSION, limits=BudgetLimits.of(usd="0.001", on_short="clamp"))
    gateway = _priced_gateway(ledger, keeper, provider := _Answers())
    response = await gateway.aroute(_ask(max_tokens=16_000))
    assert response.outcome is RouteOutcome.SUCCESS
    (most,) = provider.asked
    assert most is not None
    assert 500 < most < 16_000
    bounds = [
        gateway.cost_bound(_ask(max_tokens=count), "openai", "gpt-4o-mini")
        for count in (most, most + 1)
    ]
    assert bounds[0] is not None
    assert bounds[1] is not None
    assert bounds[0] <= 1_000_000 < bounds[1]  # as long as it could be


@pytest.mark.parametrize(
    ("members", "lowered"),
    [
        ('"max_tokens":  900', '"max_tokens":  %d'),
        ('"max_completion_tokens":900', '"max_completion_tokens":%d'),
        ('"n": 1', None),
    ],
)
async def test_a_clients_body_is_changed_in_its_limit_alone_and_the_record_says_so(
    ledger: LedgerClient, members: str, lowered: str | None
) -> None:
    keeper = TokenBudgeter(ledger)
    keeper.allocate(SESSION, limits=BudgetLimits(tokens=500, on_short="clamp"))
    raw = '{ "model": "gpt-4o-mini",\n"messages":[{"role":"user", "content":"h\\u0069"}],' + members
    answer = {
        "id": "1", "model": "gpt-4o-mini", "choices": [{"message": {"content": "x"}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
    }  # fmt: skip
    with serve(answer) as server:
        provider = openai_provider(server.url)
        gateway = _priced_gateway(ledger, keeper, provider)
        body = Body.read(CHAT, (raw + "}").encode())
        response = await gateway.aroute(
            prompt_request(prompt="", model_id="gpt-4o-mini", max_tokens=None, body=body)
        )
        await provider.aclose()
    assert response.outcome is RouteOutcome.SUCCESS, response
    sent = server.calls[0].body
    (name,) = [name for name in sent if name.startswith("max_")]
    assert 1 <= sent[name] < 500
    (exchange,) = ledger.read_by_event_type("EXCHANGE")
    (change,) = exchange.metadata["changed"]
    assert change["path"] == f"/{name}"
    assert change.get("was") == (None if lowered is None else "900")
    assert (keeper.status(SESSION)[0].spent_tokens, audit_budgets(ledger).equal) == (12, True)
