"""What a call can be billed for is bounded, or refused where there is a limit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remit.budget import BudgetLimits, BudgetScope, TokenBudgeter
from remit.gateway import LLMGateway, RouteOutcome, RouterConfig
from remit.ledger import LedgerClient
from remit.providers import MockProvider, ProviderError, ProviderResponse
from tests.support.requests import openai_provider, prompt_request
from tests.support.wire import Raw, serve

SESSION = BudgetScope("SES-TESTTEST")
URL = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
INLINE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "A" * 40_000},
}
UNKNOWN = [
    {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
    {"type": "document", "source": {"type": "base64", "data": "AAAA"}},
    {"type": "image", "source": {"type": "file", "file_id": "f"}},
    {"type": "file", "file": {"file_id": "f"}},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "document", "source": {}}]},
]


def _gateway(ledger: LedgerClient, provider: Any) -> LLMGateway:
    budgeter = TokenBudgeter(ledger)
    budgeter.allocate(SESSION, limits=BudgetLimits(tokens=200_000))
    config = RouterConfig(retry_base_ms=1, retry_max_ms=1)
    gateway = LLMGateway(ledger, budgeter, config, dev_mode=True)
    gateway.register_provider("mock", provider)
    return gateway


@pytest.mark.parametrize("block", UNKNOWN)
def test_what_nobody_can_bound_is_refused_under_a_limit(
    ledger: LedgerClient, block: dict[str, Any]
) -> None:
    provider = MockProvider()
    request = prompt_request(messages=[{"role": "user", "content": [block]}])
    response = _gateway(ledger, provider).route(request)
    assert (response.outcome, response.error_code) == (RouteOutcome.REJECTED, "UNBOUNDED")
    assert provider.call_count == 0


@pytest.mark.parametrize("image", [URL, INLINE])
@pytest.mark.parametrize("inside", [False, True])
def test_every_image_counts_for_the_most_that_one_can(
    ledger: LedgerClient, image: dict[str, Any], inside: bool
) -> None:
    block = {"type": "tool_result", "tool_use_id": "t", "content": [image]} if inside else image
    gateway = _gateway(ledger, MockProvider())
    bound = gateway.input_bound(prompt_request(messages=[{"role": "user", "content": [block]}]))
    most = RouterConfig().image_tokens
    assert most >= 48_169  # one image in high detail, as the dearest model counts it
    assert most < bound < most + 1_000  # its bytes say nothing of its tokens


@pytest.mark.parametrize("kind", ["web_search_20250305", "computer_20250124"])
def test_a_tool_of_the_providers_own_is_not_bounded_by_having_a_schema(
    ledger: LedgerClient, kind: str
) -> None:
    tool = {"type": kind, "name": "t", "input_schema": {}}
    response = _gateway(ledger, MockProvider()).route(prompt_request(tools=[tool]))
    assert response.error_code == "UNBOUNDED"


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


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProviderError("X" * 70_000, "no"), "PROVIDER_ERROR"),
        (ProviderError("SERVER_ERROR", "no", retry_after_s=float("inf")), "SERVER_ERROR"),
        (ProviderError("SERVER_ERROR", "no", True, retry_after_s="5"), "SERVER_ERROR"),  # type: ignore[arg-type]
        (asyncio.CancelledError(), "SERVER_ERROR"),
        (SystemExit(3), "PROVIDER_ERROR"),
        (KeyboardInterrupt(), "PROVIDER_ERROR"),
    ],
)
async def test_whatever_a_provider_raises_the_pair_is_whole(
    ledger: LedgerClient, error: BaseException, code: str
) -> None:
    gateway = _gateway(ledger, _Raises(error))
    response = await gateway.aroute(prompt_request())
    assert response.error_code == code
    counts = ledger.count_by_event()
    assert counts["DISPATCH"] == counts["EXCHANGE"]
    assert TokenBudgeter(ledger).status(SESSION)[0].reserved_tokens == 0


def test_a_key_that_a_server_sends_back_is_blotted_before_the_text_is_cut(
    ledger: LedgerClient,
) -> None:
    key = "sk-upstream-0123456789abcdef"
    body = b'{"error":{"message":"' + b"x" * 480 + key.encode() + b'"}}'
    with serve(Raw(body, 401)) as server:
        response = _gateway(ledger, openai_provider(server.url, key)).route(prompt_request())
    assert "sk-upstream" not in (response.error_message or "")


def test_an_endless_retry_after_is_none(ledger: LedgerClient) -> None:
    busy = Raw(b"{}", 429, headers={"retry-after": "1e400"})
    with serve(busy) as server:
        response = _gateway(ledger, openai_provider(server.url)).route(prompt_request())
    assert (response.error_code, response.retry_after_s) == ("RATE_LIMITED", None)


def test_a_null_error_in_a_chunk_is_none(ledger: LedgerClient) -> None:
    chunks = [
        b'data: {"id":"1","model":"m","error":null,"choices":[{"delta":{"content":"hi"}}]}\n\n',
        b'data: {"id":"1","error":null,"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n',
        b"data: [DONE]\n\n",
    ]
    with serve(Raw(content_type="text/event-stream", chunks=chunks)) as server:
        heard: list[str] = []
        gateway = _gateway(ledger, openai_provider(server.url))
        response = gateway.route(prompt_request(), on_text=heard.append)
    assert (response.outcome, "".join(heard)) == (RouteOutcome.SUCCESS, "hi")
