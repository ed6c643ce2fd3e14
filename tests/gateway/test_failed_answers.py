"""Answers that a provider ended with a failure of its own: each word, each API, one outcome."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from msgspec import structs

from remit.gateway import LLMGateway, RouterConfig
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter
from remit.kernel.exchange import RouteOutcome
from remit.ledger import LedgerClient
from remit.providers import MockProvider, ProviderError, ProviderResponse
from remit.providers.dialects import read_answer
from remit.providers.upstream_errors import error_of_event
from remit.providers.wire import answer_facts, stream_sum
from tests.support.odd_answers import (
    Call,
    Odd,
    chat,
    chat_stream,
    messages,
    messages_stream,
    responses,
    responses_events,
)
from tests.support.requests import anthropic_provider, openai_provider, prompt_request
from tests.support.wire import completion, message, serve

pytestmark = pytest.mark.any_store

WORDS = [
    # Providers and servers, and the words by which each ends an answer that failed.
    *(("OpenRouter, vLLM", word) for word in ("error", "abort")),
    ("Mistral", "error"),
    ("GLM", "network_error"),
    ("DeepSeek", "insufficient_system_resource"),
    *(("Cohere", word) for word in ("ERROR", "TIMEOUT", "USER_CANCEL")),
    *(("Gemini", word) for word in (
        "OTHER", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS",
        "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE",
        "function_call_filter: MALFORMED_FUNCTION_CALL",
    )),
    *(("Bedrock", word) for word in ("malformed_model_output", "malformed_tool_use")),
    *(("watsonx", word) for word in ("cancelled", "time_limit")),
]  # fmt: skip
OTHERS = {
    "stop": ("stop", "STOP", "COMPLETE", "eos", "eos_token", "end_turn", "STOP_SEQUENCE"),
    "length": ("length", "MAX_TOKENS", "model_length", "ERROR_LIMIT", "token_limit",
               "model_context_window_exceeded"),
    "content_filter": (
        "content_filter", "SAFETY", "RECITATION", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII",
        "LANGUAGE", "IMAGE_SAFETY", "sensitive", "ERROR_TOXIC", "guardrail_intervened", "refusal",
        "content_filter: PROHIBITED_CONTENT",
    ),
}  # fmt: skip

ANSWER = Odd("", "I will", (Call("ping", "{}"),))


def _sent(endpoint: str, word: str) -> dict[str, Any]:
    """Return a whole answer of an API that ended with a word."""
    if endpoint == "openai.responses":
        return {**responses(ANSWER), "status": "incomplete", "incomplete_details": {"reason": word}}
    body = chat(ANSWER) if endpoint == "openai.chat" else json.loads(messages(ANSWER).body)
    if endpoint == "openai.chat":
        body["choices"][0]["finish_reason"] = word
    else:
        body["stop_reason"] = word
    return body


@pytest.mark.parametrize("endpoint", ["openai.chat", "anthropic.messages", "openai.responses"])
def test_each_word_has_one_meaning_in_every_api(endpoint: str) -> None:
    expected = {word: "error" for _, word in WORDS}
    expected |= {word: reason for reason, words in OTHERS.items() for word in words}
    for word, reason in expected.items():
        calls = {"openai.chat": "tool_use", "openai.responses": "length"}
        if reason == "stop" and endpoint in calls:
            reason = calls[endpoint]  # a call is a call; and an incomplete answer is not whole
        body = _sent(endpoint, word)
        for found in (answer_facts(endpoint, body), read_answer(endpoint, body)):
            assert found.finish_reason == reason, word
            assert found.failure == (word if reason == "error" else ""), word


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_response_that_failed_without_an_error_is_no_answer(status: str) -> None:
    assert (
        answer_facts("openai.responses", {**responses(ANSWER), "status": status}).failure == status
    )
    total = stream_sum("openai.responses")
    for event in responses_events(Odd("", "I will", (Call("ping", "{}"),), stop="error")):
        total.add(event["type"], json.dumps(event).encode())
    assert answer_facts("openai.responses", total.answer()).finish_reason == "error"


@pytest.mark.parametrize("output", [[], responses(ANSWER)["output"]])
def test_a_failed_response_is_an_error_also_if_it_names_none(output: list[Any]) -> None:
    error = error_of_event({**responses(ANSWER), "output": output, "status": "failed"})
    assert error is not None
    assert (error.code, error.message) == ("SERVER_ERROR", "an error without a message")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", ["chat", "messages"])
def test_an_answer_that_failed_is_recorded_as_a_failure_and_not_paid_twice(
    ledger: LedgerClient, api: str, streamed: bool
) -> None:
    odd = Odd("", "I will", (Call("ping", "{}"),), stop="network_error")
    sent = {("chat", False): chat, ("chat", True): chat_stream,
            ("messages", False): messages, ("messages", True): messages_stream}  # fmt: skip
    provider = openai_provider if api == "chat" else anthropic_provider
    heard: list[str] = []
    with serve(sent[api, streamed](odd), completion("fine") if api == "chat" else message("fine"),
               ) as server:  # fmt: skip
        gateway = LLMGateway(ledger, config=RouterConfig(retry_base_ms=0), dev_mode=True)
        gateway.register_provider("mock", provider(server.url))
        listener = heard.append if streamed else None
        response = gateway.route(prompt_request(), on_text=listener)
    first = ledger.read_by_event_type("EXCHANGE")[0].metadata
    assert (first["outcome"], first["error_code"]) == ("error", "SERVER_ERROR")
    assert (first["finish_reason"], first["response"]) == ("error", "I will")
    assert "'network_error'; received so far: I will" in first["error_message"]
    assert first["output_tokens"] > 0  # what was put out is paid for
    assert (response.outcome, response.attempts) == (RouteOutcome.ERROR, 1)
    assert "".join(heard) == ("I will" if streamed else "")


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    ("stated", "certainty"),
    [({"served": None}, "measured"), ({"served": {"service_tier": None}}, "measured"),
     ({"served": {5: "x"}}, "measured"),
     *((counts, "upper_bound") for counts in (
         {"input_tokens": -1}, {"input_tokens": 1.5}, {"input_tokens": None},
         {"output_tokens": None}, {"output_tokens": 2**60}, {"cached_input_tokens": -5},
         {"reasoning_tokens": "3"}, {"cache_write_short_tokens": True},
         {"audio_seconds": float("nan")}, {"server_tool_uses": {"web_search": -5}},
         {"server_tool_uses": {"web_search": "x"}}, {"server_tool_uses": None}))],
)  # fmt: skip
def test_odd_usage_ends_no_call_and_odd_words_discard_no_counts(
    ledger: LedgerClient, stated: dict[str, Any], certainty: str, fails: bool
) -> None:
    """Of an answer, and of the answer with a provider object's own error."""
    answer = structs.replace(ProviderResponse("paid", "gpt-4o-mini", 10, 1), **stated)
    error = ProviderError("SERVER_ERROR", "m", maybe_billed=True)
    error.answer = answer

    class Failing:
        def send(self, request: Any) -> Any:
            raise error

    budgeter = TokenBudgeter(ledger)
    budgeter.allocate(BudgetScope("SES-TESTTEST"), limits=BudgetLimits(nano=10**9))
    gateway = LLMGateway(ledger, budgeter, RouterConfig(max_retries=0), dev_mode=True)
    provider: Any = Failing() if fails else MockProvider(responses=[answer])
    gateway.register_provider("openai", provider)
    response = gateway.route(prompt_request(model_id="openai/gpt-4o-mini", max_tokens=9))
    assert (response.outcome is RouteOutcome.ERROR) == fails
    assert response.cost_certainty == certainty
    recorded = ledger.read(response.exchange_entry_id).metadata
    assert recorded["response"] == "paid"
    if certainty == "upper_bound":
        assert response.output_tokens == 9
        assert not stated.keys() & recorded.keys() - {"input_tokens", "output_tokens"}
    (state,) = budgeter.status(BudgetScope("SES-TESTTEST"))
    assert state.reserved_nano == 0
    assert state.spent_nano > 0


class _Wordless:
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("message", ["half \ud800 of a character", _Wordless()])
def test_a_message_that_is_no_text_leaves_no_dispatch_without_its_exchange(
    ledger: LedgerClient, message: Any
) -> None:
    class Failing:
        def send(self, request: Any) -> Any:
            raise ProviderError("SERVER_ERROR", message, maybe_billed=True)

    gateway = LLMGateway(ledger, config=RouterConfig(max_retries=0), dev_mode=True)
    gateway.register_provider("openai", cast("Any", Failing()))
    response = gateway.route(prompt_request(model_id="openai/gpt-4o-mini", max_tokens=9))
    assert response.outcome is RouteOutcome.ERROR
    stated = ledger.read(response.exchange_entry_id).metadata["error_message"]
    assert stated == response.error_message
    stated.encode()


def test_a_refusal_that_is_no_text_is_recorded(ledger: LedgerClient) -> None:
    class Refusing:
        def outgoing(self, request: Any) -> Any:
            raise ProviderError("INVALID_REQUEST", cast("Any", _Wordless()))

        async def send(self, outgoing: Any, timeouts: Any) -> Any: ...

    gateway = LLMGateway(ledger, dev_mode=True)
    gateway.register_provider("openai", cast("Any", Refusing()))
    response = gateway.route(prompt_request(model_id="openai/gpt-4o-mini", max_tokens=9))
    assert "without a readable message" in str(response.error_message)
    assert ledger.read_by_event_type("PROMPT_REJECTED")
