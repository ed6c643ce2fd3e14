"""What a call can be billed for is bounded, or refused where there is a limit."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from hypothesis import given, strategies as st

from remit.gateway import LLMGateway, RouteOutcome, RouterConfig
from remit.gateway.billing import Billing, estimated_output
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter
from remit.kernel.exchange import TextDelta
from remit.ledger import LedgerClient
from remit.providers import MockProvider, ProviderError, ProviderResponse
from remit.providers.prices import PriceTable
from remit.providers.wire import MESSAGES, RESPONSES
from remit.providers.wire.body import Body
from tests.support.requests import openai_provider, prompt_request
from tests.support.wire import completion, serve

pytestmark = pytest.mark.any_store

SESSION = BudgetScope("SES-TESTTEST")


def _gateway(ledger: LedgerClient, provider: Any) -> LLMGateway:
    budgeter = TokenBudgeter(ledger)
    budgeter.allocate(SESSION, limits=BudgetLimits(tokens=200_000))
    config = RouterConfig(retry_base_ms=1, retry_max_ms=1)
    gateway = LLMGateway(ledger, budgeter, config, dev_mode=True)
    gateway.register_provider("mock", provider)
    return gateway


def _holding(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


def _told(block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t", "content": [block]}


@pytest.mark.parametrize(
    "changes",
    [
        {"tools": [{"type": "web_search_20250305", "name": "t", "input_schema": {}}]},
        {"tools": [{"type": "bespoke_20250124", "name": "t", "input_schema": {}}]},
        _holding({"type": "document", "source": {"type": "url", "url": "https://example.org/a"}}),
        _holding({"type": "document", "source": {"type": "base64", "data": "AAAA"}}),
        _holding({"type": "image", "source": {"type": "file", "file_id": "f"}}),
        _holding({"type": "file", "file": {"file_id": "f"}}),
        _holding({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
        _holding(_told({"type": "document", "source": {}})),
    ],
)
def test_what_nobody_can_bound_is_refused_under_a_limit(
    ledger: LedgerClient, changes: dict[str, Any]
) -> None:
    provider = MockProvider()
    response = _gateway(ledger, provider).route(prompt_request(**changes))
    assert (response.outcome, response.error_code) == (RouteOutcome.REJECTED, "UNBOUNDED")
    assert provider.call_count == 0


async def test_one_callers_bad_id_harms_nobody_else(ledger: LedgerClient) -> None:
    gateway = _gateway(ledger, MockProvider())
    calls = [gateway.aroute(prompt_request()) for _ in range(8)]
    calls.append(gateway.aroute(prompt_request(work_order_id="WO-\ud800")))
    *good, bad = await asyncio.gather(*calls)
    assert {response.outcome for response in good} == {RouteOutcome.SUCCESS}
    assert bad.error_code == "INVALID_INPUT"


class _Raises:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def astream(self, request: Any, on_event: Any) -> ProviderResponse:
        raise self.error


class _RaisesInAThread:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def send(self, request: Any) -> ProviderResponse:
        raise self.error


@pytest.mark.parametrize(
    ("provider", "error", "code"),
    [
        (_Raises, ProviderError("X" * 70_000, "no"), "PROVIDER_ERROR"),
        (_Raises, ProviderError("SERVER_ERROR", "no", retry_after_s=float("inf")), "SERVER_ERROR"),
        (_Raises, ProviderError("SERVER_ERROR", "no", True, retry_after_s="5"), "SERVER_ERROR"),  # type: ignore[arg-type]
        (_Raises, asyncio.CancelledError(), "SERVER_ERROR"),
        (_Raises, SystemExit(3), "PROVIDER_ERROR"),
        (_Raises, KeyboardInterrupt(), "PROVIDER_ERROR"),
        (_Raises, RuntimeError("boom"), "PROVIDER_ERROR"),
        (_Raises, ValueError("\ud800"), "PROVIDER_ERROR"),
        (_RaisesInAThread, SystemExit(3), "PROVIDER_ERROR"),
        (_RaisesInAThread, KeyboardInterrupt(), "PROVIDER_ERROR"),
    ],
)
async def test_whatever_a_provider_raises_the_pair_is_whole(
    ledger: LedgerClient, provider: Any, error: BaseException, code: str
) -> None:
    gateway = _gateway(ledger, provider(error))
    response = await gateway.aroute(prompt_request())
    assert response.error_code == code
    counts = ledger.count_by_event()
    assert counts["DISPATCH"] == counts["EXCHANGE"]
    assert TokenBudgeter(ledger).status(SESSION)[0].reserved_tokens == 0


class _BreaksOff:
    """A stream that ends in the middle."""

    async def astream(self, request: Any, on_event: Any) -> ProviderResponse:
        on_event(TextDelta("one two"))
        raise ProviderError("SERVER_ERROR", "cut", maybe_billed=True)


@pytest.mark.parametrize(
    ("model", "certainty"), [("gpt-4o-mini", "estimated"), ("o3", "upper_bound")]
)
async def test_what_was_thought_and_not_shown_is_charged(
    ledger: LedgerClient, model: str, certainty: str
) -> None:
    budgeter = TokenBudgeter(ledger)
    budgeter.allocate(SESSION, 10**6)
    config = RouterConfig(thinking_models=("o3",), default_provider="openai")
    gateway = LLMGateway(ledger, budgeter, config, dev_mode=True)
    gateway.register_provider("openai", _BreaksOff())
    request = prompt_request(model_id=model, max_tokens=20_000)
    await gateway.aroute(request, on_text=lambda text: None)
    (exchange,) = ledger.read_by_event_type("EXCHANGE")
    told = exchange.metadata
    assert (told["cost_certainty"], told["response"]) == (certainty, "one two")
    assert (told["output_tokens"] == 20_000) == (certainty == "upper_bound")
    assert told["output_tokens"] >= 2


@pytest.mark.parametrize(("model", "takes"), [("gpt-5-mini", True), ("gpt-4o-mini", False)])
def test_a_model_that_thinks_gets_its_limit_by_the_name_it_takes(
    ledger: LedgerClient, model: str, takes: bool
) -> None:
    with serve(completion("x") | {"model": model}) as server:
        gateway = _gateway(ledger, MockProvider())
        gateway.register_provider("openai", openai_provider(server.url))
        request = prompt_request(provider_id="openai", model_id=model, max_tokens=50)
        assert gateway.route(request).outcome is RouteOutcome.SUCCESS
    sent = server.calls[0].body
    assert ("max_completion_tokens" in sent, "max_tokens" in sent) == (takes, not takes)
    assert ("temperature" in sent) == (not takes)


@pytest.mark.parametrize(
    ("provider", "model", "uses", "tools", "nano"),
    [
        ("openai", "gpt-4o-mini", {"code_interpreter": 2}, None, 60_000_000),
        ("openai", "gpt-4o-mini", {"code_interpreter": 2},
         [{"type": "code_interpreter", "container": {"memory_limit": "4g"}}, "x", {"type": []},
          {"type": "code_interpreter", "container": {"type": "auto"}}], 240_000_000),
        ("openai", "gpt-4o-mini", {"code_interpreter": 1, "shell": 1},
         [{"type": "code_interpreter", "container": "cntr_1"}], 1_950_000_000),
        ("openai", "gpt-4o-mini", {"code_interpreter": 1},
         [{"type": "namespace", "tools": [
             {"type": "code_interpreter", "container": {"memory_limit": "64g"}}]}], 1_920_000_000),
        ("openai", "gpt-4o-mini", {"web_search": 2},
         [{"type": "web_search_preview_2025_03_11"}, {"type": "web_search"}], 50_000_000),
        ("openai", "gpt-4o-mini", {"shell": 2},
         [{"type": "shell", "environment": {"type": "local"}},
          {"type": "shell", "environment": {"memory_limit": "4g"}}], 240_000_000),
        ("openai", "gpt-4o-mini", {"shell": 2},
         [{"type": "shell", "environment": {"type": "local"}}], 0),
        ("google", "gemini-2.5-flash", {"web_search": 3, "google_maps": 1}, None, 60_000_000),
        ("google", "gemini-3-flash-preview", {"web_search": 3}, None, 42_000_000),
        ("anthropic", "claude-sonnet-4-5", {"code_execution": 1}, None, 50_000_000),
        ("anthropic", "claude-sonnet-4-5", {"code_execution": 1, "web_search": 1},
         [{"type": "web_search_20250305"}], 60_000_000),
        ("anthropic", "claude-sonnet-4-5", {"code_execution": 1},
         [{"type": "web_search"}, {"type": "web_fetch_20250910"}], 50_000_000),
        ("anthropic", "claude-sonnet-4-5", {"code_execution": 1, "web_search": 1},
         [{"type": "code_execution_20250825"}, {"type": "web_search_20260209"}], 10_000_000),
        ("anthropic", "claude-sonnet-4-5", {"code_execution": 1},
         [{"type": "web_fetch_20260318"}, {"type": "code_execution_20260521"}], 0),
    ],
)  # fmt: skip
def test_uses_of_tools_are_billed_by_container_by_call_or_one_by_one(
    provider: str, model: str, uses: dict[str, int], tools: Any, nano: int
) -> None:
    tariff = Billing(PriceTable.shipped(), RouterConfig()).of(provider, model)
    plain, used = (
        tariff.measured(ProviderResponse("x", model, 1_000, 500, server_tool_uses=each),
                        {"tools": tools}, (2_000, 1_000, nano))
        for each in ({}, uses)
    )  # fmt: skip
    assert plain is not None
    assert used is not None
    assert used.usage.cost_nano - plain.usage.cost_nano == nano
    assert used.certainty == "measured"


def test_containers_that_an_item_of_the_input_brought_are_billed_by_their_size() -> None:
    tariff = Billing(PriceTable.shipped(), RouterConfig()).of("openai", "gpt-4o-mini")
    answer = ProviderResponse("x", "m", 9, 2, server_tool_uses={"code_interpreter": 5})
    tool = {"type": "code_interpreter", "container": {"memory_limit": "64g"}}
    asked = {"input": [{"type": "additional_tools", "tools": [tool]}]}
    bill = tariff.measured(answer, asked, (100, 100, 10 * 1_920_000_000))
    assert bill is not None
    assert (bill.usage.cost_nano or 0) > 5 * 1_920_000_000


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"code_interpreter": {}, "container": {"memory_limit": "64g"}}]},
        {"input": [{"type": "additional_tools", "tools": [{"type": "code_interpreter"}]}]},
    ],
)
def test_a_batch_has_no_discount_on_tools_that_the_provider_runs(more: dict[str, Any]) -> None:
    tariff = Billing(PriceTable.shipped(), RouterConfig()).of("openai", "gpt-4o-mini")
    value = {"model": "gpt-4o-mini", "input": "x", "max_output_tokens": 9, "max_tool_calls": 1}
    body = Body.read(RESPONSES, orjson.dumps({**value, **more}))
    in_batch, alone = tariff.batch_bound(body), tariff.body_bound(body)
    assert in_batch.amount.bounded
    assert tariff.price is not None
    container = 1_920_000_000 if "tools" in more else 30_000_000
    assert in_batch.amount.nano == tariff.price.bound_nano(*alone.tokens) + container


def test_a_batch_has_no_discount_on_a_tool_that_a_message_adds() -> None:
    tool = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    block = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool}}
    value = {"model": "claude-sonnet-4-5", "max_tokens": 9,
             "messages": [{"role": "user", "content": [block]}]}  # fmt: skip
    tariff = Billing(PriceTable.shipped(), RouterConfig()).of("anthropic", "claude-sonnet-4-5")
    bound = tariff.batch_bound(Body.read(MESSAGES, orjson.dumps(value)))
    assert bound.amount.bounded
    assert tariff.price is not None
    assert (bound.amount.nano or 0) >= tariff.price.bound_nano(*bound.tokens) + 30_000_000


@pytest.mark.parametrize(
    ("more", "certainty"),
    [
        ({}, "measured"),
        ({"size": "3840x2160"}, "estimated"),
        ({"output_format": "gif"}, "estimated"),
    ],
)
def test_a_picture_without_a_price_makes_the_bill_an_estimate(
    more: dict[str, str], certainty: str
) -> None:
    tariff = Billing(PriceTable.shipped(), RouterConfig()).of("openai", "gpt-5")
    assert tariff.price is not None
    price = tariff.price.server_tools["image_generation"]
    answer = ProviderResponse("x", "gpt-5", 9, 2, server_tool_uses={"image_generation": 2})
    asked = {"tools": [{"type": "image_generation", **more}]}
    bill = tariff.measured(answer, asked, (100, 100, 2 * price))
    assert bill is not None
    assert bill.certainty == certainty
    assert bill.usage.cost_nano >= 2 * price


def test_a_host_bills_the_tools_of_a_models_maker_unless_it_states_its_own() -> None:
    own = b"""version = 2026-11-29
[models."native/gpt-5-mini"]
provider = "native"
date = 2026-11-29
input = "1"
output = "4"
"""
    shipped = PriceTable.shipped()
    answer = ProviderResponse("x", "m", 9, 2, server_tool_uses={"code_interpreter": 1})
    for more, nano, certainty in (
        (b"", 30_000_000, "estimated"),
        (b'[same_prices]\nnative = "openai"\n', 30_000_000, "measured"),
        (b'[server_tools.native.code_interpreter]\nper_use = "0.5"\ndate = 2026-11-29\n',
         500_000_000, "measured"),
        (b'[server_tools.native.web_search]\nper_use = "0.5"\ndate = 2026-11-29\n', 0,
         "estimated"),
    ):  # fmt: skip
        table = shipped.overlaid(PriceTable.overlay(own + more, "own", shipped))
        bill = Billing(table, RouterConfig()).of("native", "gpt-5-mini").measured(
            answer, {}, (100, 100, nano)
        )  # fmt: skip
        assert bill is not None
        assert bill.usage.cost_nano == 9_000 + 8_000 + nano
        assert bill.certainty == certainty


# -- The charge of a stream that broke off -----------------------------------------------------


@given(st.integers(0, 100_000), st.integers(0, 1_000), st.integers(1, 5_000))
def test_an_estimate_is_within_the_reserved_bound(text_bytes: int, pieces: int, most: int) -> None:
    tokens = estimated_output(RouterConfig(), text_bytes, pieces, most)
    assert min(pieces, most) <= tokens <= most


def test_without_an_output_bound_all_that_came_is_charged() -> None:
    assert estimated_output(RouterConfig(), 4_000, 10, 0) >= 1_000
