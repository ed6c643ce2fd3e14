"""The pipeline against real HTTP providers: what is sent, what is recorded, in what order."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from pathlib import Path
from typing import Any

import pytest

from remit.gateway import CircuitBreakerConfig, LLMGateway, RouteOutcome, RouterConfig
from remit.gateway.auth import AuthenticationError, Identity, LocalOperator
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter
from remit.ledger import LedgerClient
from remit.providers import MockProvider, ProviderError, ProviderResponse
from tests.support.requests import anthropic_provider, openai_provider, prompt_request
from tests.support.stores import files_hold
from tests.support.wire import Raw, completion, message, serve, tool_use

pytestmark = pytest.mark.any_store

EXCHANGE_KEYS = {
    "agent_id", "session_id", "work_order_id", "tier", "contract_id", "framework_id", "prompt",
    "response", "outcome", "input_tokens", "output_tokens", "context_hash", "dispatch_entry_id",
    "model_id", "finish_reason", "latency_ms",
}  # fmt: skip
NEVER = {
    "agent_class", "package_id", "prompt_pack_id", "max_tokens", "temperature", "domain_tags",
    "request_id",
}  # fmt: skip
QUICK = {"retry_base_ms": 1, "retry_max_ms": 2}


def _gateway(ledger: LedgerClient, provider: Any, **changes: Any) -> LLMGateway:
    config = RouterConfig(default_provider="p", default_model="model-1", **{**QUICK, **changes})
    gateway = LLMGateway(ledger, config=config, dev_mode=True)
    gateway.register_provider("p", provider)
    return gateway


def _events(ledger: LedgerClient) -> list[str]:
    return [entry.event_type for entry in ledger.read_all()]


def test_a_successful_call_is_a_pair_with_exactly_the_tabled_keys(ledger: LedgerClient) -> None:
    with serve(message("A scoped order.")) as server:
        gateway = _gateway(ledger, anthropic_provider(server.url))
        response = gateway.route(prompt_request(provider_id="p", model_id="claude-test-1"))
    dispatch, exchange = ledger.read_all()
    assert (dispatch.event_type, dispatch.decision) == ("DISPATCH", "DISPATCHED")
    assert dispatch.reason == "Dispatching to p/claude-test-1"
    assert set(dispatch.metadata) == {"contract_id", "agent_id", "session_id"}
    assert (exchange.event_type, exchange.decision) == ("EXCHANGE", "SUCCESS")
    assert exchange.reason == "Exchange completed"
    assert set(exchange.metadata) == EXCHANGE_KEYS
    assert exchange.metadata["prompt"] == "What is a remit?"
    assert exchange.metadata["response"] == "A scoped order."
    assert exchange.metadata["outcome"] == "success"
    assert exchange.metadata["dispatch_entry_id"] == dispatch.id
    assert exchange.metadata["finish_reason"] == "stop"
    assert dispatch.submission_id == exchange.submission_id == "PRC-TEST-001"
    assert dispatch.prompts_used == exchange.prompts_used == ["PRM-TEST-001"]
    assert response.outcome is RouteOutcome.SUCCESS
    assert response.content == "A scoped order."
    assert (response.input_tokens, response.output_tokens) == (11, 7)
    assert (response.dispatch_entry_id, response.exchange_entry_id) == (dispatch.id, exchange.id)
    assert response.timestamp == exchange.timestamp  # so that a replay says the same
    expected = hashlib.sha256(b"What is a remit?").hexdigest()
    assert response.context_hash == exchange.metadata["context_hash"] == expected
    # what is derived from content is content: the record holds no unsalted hash of a short text
    assert expected.encode() not in ledger.read_record(exchange.id)


def test_messages_tools_and_blocks_are_what_is_sent_and_recorded(ledger: LedgerClient) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hello"},
    ]
    tools = [{"name": "read_file", "description": "d", "input_schema": {"type": "object"}}]
    use = tool_use("read_file", {"path": "a"})
    with serve(message("Looking.", use)) as server:
        gateway = _gateway(ledger, anthropic_provider(server.url))
        request = prompt_request(prompt="ignored", messages=messages, tools=tools)
        response = gateway.route(request)
        assert server.calls[0].body["messages"] == [{"role": "user", "content": "hello"}]
    exchange = ledger.read(response.exchange_entry_id).metadata
    assert (exchange["prompt"], exchange["tools"]) == (messages, tools)
    assert exchange["content_blocks"][1] == use
    assert response.content_blocks == ({"type": "text", "text": "Looking."}, use)
    assert response.finish_reason == exchange["finish_reason"] == "tool_use"


def test_keys_are_added_only_when_they_apply(ledger: LedgerClient) -> None:
    with serve(message("hi", cache_read_input_tokens=5)) as server:
        gateway = _gateway(ledger, anthropic_provider(server.url))
        response = gateway.route(prompt_request())
    metadata = ledger.read(response.exchange_entry_id).metadata
    extra = {"provider_id", "requested_model_id", "cached_input_tokens"}
    assert set(metadata) == EXCHANGE_KEYS | extra
    assert metadata["requested_model_id"] == "model-1"
    assert metadata["model_id"] == "claude-test-1"
    assert not NEVER & set(metadata)


def test_the_intent_is_durable_before_a_byte_goes_out(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    seen: list[list[str]] = []

    def look(_: dict[str, Any]) -> dict[str, Any]:
        with LedgerClient(path) as other:
            seen.append(_events(other))
        return message("hi")

    with LedgerClient(path) as ledger, serve(look) as server:
        _gateway(ledger, anthropic_provider(server.url)).route(prompt_request())
    assert seen == [["DISPATCH"]]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": " \n"}, "prompt"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "content"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "role"),
        ({"messages": ["x"]}, "object"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "text"),
        ({"contract_id": ""}, "contract_id"),
        ({"session_id": " "}, "session_id"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 9.0}, "temperature"),
        ({"prompt": "\ud800"}, "surrogate"),
        ({"messages": [{"role": "user", "content": "\udfff"}]}, "surrogate"),
        ({"input_schema": {"required": ["name"]}, "template_variables": {}}, "required"),
        ({"input_schema": {"type": "nonsense"}, "template_variables": {}}, "schema"),
        ({"contract_id": "PRC-\x00"}, "contract_id"),
        ({"agent_id": "a" * 70_000}, "agent_id"),
        ({"work_order_id": 7}, "work_order_id"),
        ({"session_id": "S" * 600}, "session_id"),
        ({"tier": "\x00"}, "tier"),
        ({"model_id": "m" * 600}, "model_id"),
    ],
)
def test_invalid_input_is_rejected_and_nothing_is_sent(
    ledger: LedgerClient, changes: dict[str, Any], word: str
) -> None:
    provider = MockProvider()
    response = _gateway(ledger, provider).route(prompt_request(**changes))
    assert (response.outcome, response.error_code) == (RouteOutcome.REJECTED, "INVALID_INPUT")
    assert word in str(response.error_message)
    (entry,) = ledger.read_all()
    assert (entry.event_type, entry.decision) == ("PROMPT_REJECTED", "REJECTED")
    assert set(entry.metadata) == {
        "agent_id", "session_id", "contract_id", "error_code", "error_message",
    }  # fmt: skip
    assert entry.reason == f"INVALID_INPUT: {response.error_message}"
    assert response.exchange_entry_id == entry.id
    assert response.dispatch_entry_id == ""
    assert provider.call_count == 0


class _Door:
    def authenticate(self, token: str | None) -> Identity:
        if token != "right":
            raise AuthenticationError("the token is not known")
        return Identity("someone", "agent")


class _BrokenDoor:
    def authenticate(self, token: str | None) -> Identity:
        raise KeyError(token)


def test_who_asks_is_checked(ledger: LedgerClient) -> None:
    provider = MockProvider()
    for auth in (None, _Door(), _BrokenDoor()):
        gateway = LLMGateway(ledger, auth_provider=auth)
        gateway.register_provider("mock", provider)
        response = gateway.route(prompt_request(auth_token="wrong"))
        assert (response.outcome, response.error_code) == (RouteOutcome.REJECTED, "AUTH_ERROR")
    assert provider.call_count == 0
    for auth, token in ((_Door(), "right"), (LocalOperator(), None)):
        gateway = LLMGateway(ledger, auth_provider=auth)
        gateway.register_provider("mock", provider)
        assert gateway.route(prompt_request(auth_token=token)).outcome is RouteOutcome.SUCCESS
    assert "wrong" not in repr(prompt_request(auth_token="wrong"))


def test_a_failure_has_all_keys_and_two_more(ledger: LedgerClient) -> None:
    with serve(Raw(b'{"error":{"message":"no such field: ssn"}}', 400)) as server:
        gateway = _gateway(ledger, anthropic_provider(server.url))
        response = gateway.route(prompt_request(provider_id="p"))
        assert len(server.calls) == 1  # only failures that may pass are retried
    assert (response.outcome, response.error_code) == (RouteOutcome.ERROR, "INVALID_REQUEST")
    dispatch, exchange = ledger.read_all()
    assert exchange.decision == "ERROR"
    assert exchange.reason == f"INVALID_REQUEST: {response.error_message}"
    assert set(exchange.metadata) == EXCHANGE_KEYS | {"error_code", "error_message"}
    assert exchange.metadata["outcome"] == "error"
    assert exchange.metadata["finish_reason"] == "error"
    assert (exchange.metadata["input_tokens"], exchange.metadata["output_tokens"]) == (0, 0)
    assert response.finish_reason == "stop"
    assert response.content_blocks is None
    assert b"ssn" not in ledger.read_record(exchange.id)  # it quotes a provider
    assert dispatch.id == exchange.metadata["dispatch_entry_id"]


async def test_a_provider_that_ignores_cancellation_cannot_hold_the_gateway(
    ledger: LedgerClient,
) -> None:
    class Stubborn:
        async def asend(self, request: Any, *, on_text: Any = None) -> ProviderResponse:
            while not released:
                try:
                    await asyncio.sleep(0.1)
                except asyncio.CancelledError:
                    continue
            return ProviderResponse("late", "m", 1, 1)

    released = False
    gateway = _gateway(ledger, Stubborn(), default_timeout_ms=100)
    response = await asyncio.wait_for(gateway.aroute(prompt_request()), 60)
    assert (response.outcome, response.error_code) == (RouteOutcome.TIMEOUT, "TIMEOUT")
    exchange = ledger.read(response.exchange_entry_id)
    assert (exchange.decision, exchange.metadata["outcome"]) == ("TIMEOUT", "timeout")
    assert exchange.metadata["cost_certainty"] == "upper_bound"
    assert exchange.metadata["output_tokens"] == 100
    released = True
    await asyncio.sleep(0)


def test_each_attempt_is_a_pair(ledger: LedgerClient) -> None:
    overloaded = Raw(b'{"error":{"message":"overloaded"}}', 529)
    with serve(overloaded, overloaded, message("at last")) as server:
        gateway = _gateway(ledger, anthropic_provider(server.url))
        response = gateway.route(prompt_request())
        assert len(server.calls) == 3
    assert response.content == "at last"
    assert _events(ledger) == ["DISPATCH", "EXCHANGE"] * 3
    exchanges = ledger.read_by_event_type("EXCHANGE")
    assert "attempt" not in exchanges[0].metadata
    assert [e.metadata.get("attempt") for e in exchanges[1:]] == [2, 3]
    assert [e.metadata.get("retry_of") for e in exchanges[1:]] == [exchanges[0].id, exchanges[1].id]
    assert response.exchange_entry_id == exchanges[2].id


def test_the_breaker_is_asked_before_each_attempt(ledger: LedgerClient) -> None:
    config = CircuitBreakerConfig(failure_threshold=2, recovery_timeout_ms=60_000)
    with serve(Raw(b"{}", 500)) as server:
        gateway = _gateway(
            ledger, anthropic_provider(server.url), max_retries=5, circuit_breaker=config
        )
        response = gateway.route(prompt_request())
        assert (response.outcome, response.error_code) == (RouteOutcome.ERROR, "SERVER_ERROR")
        assert len(server.calls) == 2
        refused = gateway.route(prompt_request())
        assert (refused.outcome, refused.error_code) == (RouteOutcome.REJECTED, "CIRCUIT_OPEN")
        other = gateway.route(prompt_request(model_id="model-2"))
        assert other.error_code == "SERVER_ERROR"  # one breaker per model, never one for all
    assert _events(ledger)[4] == "PROMPT_REJECTED"


@pytest.mark.parametrize(
    ("answer", "fault"),
    [(None, "a NoneType, not"), ("text", "a str, not"), (7, "an? int, not"),
     ({"content": "x"}, "a dict, not"),
     (ProviderResponse(None, "m", 1, 1), "content$"),  # type: ignore[arg-type]
     (ProviderResponse("x", "m", 1, 1, content_blocks=("x",)),  # type: ignore[arg-type]
      "content_blocks$"),
     (ProviderResponse("x", "m" * 70_000, 1, 1), "model$"),
     (ProviderResponse("x", "m", 1, 1, "f" * 70_000), "finish_reason$"),
     (ProviderResponse("x", "m", 1, 1, request_id=object()),  # type: ignore[arg-type]
      "request_id$"),
     (ProviderResponse("x", "m", 1, 1, reply="x"), "reply$"),  # type: ignore[arg-type]
     (ProviderError("SERVER_ERROR", "m", reply="x"), "TypeError$")],  # type: ignore[arg-type]
)  # fmt: skip
def test_a_provider_that_breaks_its_protocol_is_on_record(
    ledger: LedgerClient, answer: Any, fault: str
) -> None:
    class Broken:
        def send(self, request: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

    budgeter = TokenBudgeter(ledger)
    budgeter.allocate(BudgetScope("SES-TESTTEST"), 100_000)
    gateway = LLMGateway(ledger, budgeter, RouterConfig(max_retries=0), dev_mode=True)
    gateway.register_provider("mock", Broken())
    response = gateway.route(prompt_request())
    assert response.outcome is RouteOutcome.ERROR
    assert re.search(fault, response.error_message or "")
    assert _events(ledger)[1:] == ["DISPATCH", "EXCHANGE"]
    assert budgeter.status(BudgetScope("SES-TESTTEST"))[0].reserved_tokens == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [("tools", "x"), ("tools", [5]), ("template_variables", 5), ("user_id", 5),
     ("user_id", "a\x00"), ("user_id", "u" * 513)],
)  # fmt: skip
def test_a_request_that_cannot_be_recorded_is_rejected(
    ledger: LedgerClient, field: str, value: Any
) -> None:
    gateway = _gateway(ledger, MockProvider())
    wrong: dict[str, Any] = {"input_schema": {}, field: value}
    response = gateway.route(prompt_request(**wrong))
    assert (response.outcome, response.error_code) == (RouteOutcome.REJECTED, "INVALID_INPUT")
    assert field in (response.error_message or "")
    assert _events(ledger) == ["PROMPT_REJECTED"]


def test_what_json_cannot_carry_is_recorded_in_words(ledger: LedgerClient) -> None:
    block = {"type": "tool_use", "id": "1", "name": "t", "input": {"n": 2**70, "x": float("nan")}}
    odd = ProviderResponse("a\ud800b", "m", 1, 1, content_blocks=(block,))
    tools = [{"name": "t", "input_schema": {}}]
    gateway = _gateway(ledger, MockProvider(responses=[odd]))
    response = gateway.route(prompt_request(tools=tools))
    assert response.outcome is RouteOutcome.SUCCESS
    exchange = ledger.read(response.exchange_entry_id)
    assert exchange.metadata["response"] == "a\ufffdb"
    assert exchange.metadata["content_blocks"][0]["input"] == {"n": str(2**70), "x": "nan"}
    assert ledger.verify().verified


def test_output_is_checked_and_returned_either_way(ledger: LedgerClient) -> None:
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}
    answers = ['{"a": 1}', '{"a": "one"}', "no JSON"]
    with serve(*[completion(text) for text in answers]) as server:
        gateway = _gateway(ledger, openai_provider(server.url))
        results = [gateway.route(prompt_request(output_schema=schema)) for _ in answers]
    assert [r.output_valid for r in results] == [True, False, False]
    assert [r.content for r in results] == answers
    assert "a fails 'type'" in results[1].output_validation_errors
    with serve(completion("no JSON")) as server:
        gateway = _gateway(ledger, openai_provider(server.url))
        assert gateway.route(prompt_request(output_schema={})).output_valid is False
    assert all(r.outcome is RouteOutcome.SUCCESS for r in results)


@pytest.mark.parametrize("name", ["output_schema", "input_schema"])
def test_a_schema_that_refers_nowhere_fetches_nothing(ledger: LedgerClient, name: str) -> None:
    with serve(message("never asked")) as server:
        schema = {"$ref": f"{server.url}/schema.json"}
        gateway = _gateway(ledger, MockProvider('{"a": 1}'))
        response = gateway.route(prompt_request(**{name: schema}, template_variables={}))
        assert server.calls == []
    if name == "output_schema":
        assert response.output_valid is False
        assert _events(ledger) == ["DISPATCH", "EXCHANGE"]
    else:
        assert response.error_code == "INVALID_INPUT"


def test_a_recorded_answer_needs_no_closed_circuit(ledger: LedgerClient) -> None:
    provider = MockProvider(responses=["Paid.", ProviderError("SERVER_ERROR", "down")])
    config = CircuitBreakerConfig(failure_threshold=1, recovery_timeout_ms=600_000)
    gateway = _gateway(ledger, provider, max_retries=0, circuit_breaker=config)
    first = gateway.route(prompt_request(idempotency_key="one"))
    assert gateway.route(prompt_request()).error_code == "SERVER_ERROR"
    again = gateway.route(prompt_request(idempotency_key="one"))
    assert (again.content, again.replayed) == ("Paid.", True)
    assert again.exchange_entry_id == first.exchange_entry_id
    other = gateway.route(prompt_request(idempotency_key="one", prompt="Another question?"))
    assert other.error_code == "IDEMPOTENCY_MISMATCH"
    assert gateway.route(prompt_request(idempotency_key="two")).error_code == "CIRCUIT_OPEN"
    assert len(provider.requests) == 2


async def test_a_refused_reservation_does_not_swallow_a_cancellation(ledger: LedgerClient) -> None:
    budgeter = TokenBudgeter(ledger)
    budgeter.allocate(BudgetScope("SES-TESTTEST"), 5_000)
    gateway = LLMGateway(ledger, budgeter, dev_mode=True)
    gateway.register_provider("mock", MockProvider(delay_s=0.05))
    tasks = [asyncio.create_task(gateway.aroute(prompt_request(max_tokens=4_000))) for _ in "ab"]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    ledger.flush()
    assert ledger.orphans() == []
    assert budgeter.status(BudgetScope("SES-TESTTEST"))[0].reserved_tokens == 0


def test_an_interrupted_call_is_ended_and_on_record(ledger: LedgerClient) -> None:
    import os
    import signal
    import threading

    gateway = _gateway(ledger, MockProvider(delay_s=600))
    # Of a process that was started in the background the signal may be ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            gateway.route(prompt_request())
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - started < 60
    assert _events(ledger) == ["DISPATCH", "EXCHANGE"]
    assert ledger.read("LED-00000001").metadata["error_code"] == "CANCELLED"


def test_a_refused_dispatch_frees_the_trial_it_took(ledger: LedgerClient) -> None:
    config = CircuitBreakerConfig(failure_threshold=1, recovery_timeout_ms=0)
    budgeter = TokenBudgeter(ledger)
    budgeter.allocate(BudgetScope("SES-TESTTEST"), 100_000)
    gateway = LLMGateway(
        ledger, budgeter, RouterConfig(max_retries=0, circuit_breaker=config), dev_mode=True
    )
    script = [ProviderError("SERVER_ERROR", "down")]
    gateway.register_provider("mock", MockProvider(responses=script))
    gateway.route(prompt_request())
    # the check passes, the reservation does not: another scope fills up in between
    check = budgeter.check
    budgeter.check = lambda scope: check(BudgetScope("SES-TESTTEST"))  # type: ignore[method-assign]
    assert gateway.route(prompt_request(max_tokens=500_000)).error_code == "BUDGET_EXHAUSTED"
    assert gateway.route(prompt_request()).outcome is RouteOutcome.SUCCESS


KEYS_BACK = {
    "an error in a 200": Raw(b'{"error":{"message":"bad key sk-secret"}}'),
    "an error in a stream": Raw(
        chunks=[b'data: {"error":{"message":"bad key sk-secret"},"type":"error"}\n\n'],
        content_type="text/event-stream",
    ),
    "a refusal": Raw(b'{"error":{"message":"bad key sk-secret"}}', 401),
    "a text": Raw(b"sk-secret", 500, "text/plain"),
}


@pytest.mark.parametrize("step", KEYS_BACK.values(), ids=KEYS_BACK.keys())
def test_a_server_that_sends_the_key_back(tmp_path: Path, step: Raw) -> None:
    with LedgerClient(tmp_path / "l.db") as ledger, serve(step) as server:
        url = server.url.replace("http://", "http://user:pass-secret@")
        for provider in (anthropic_provider(server.url), openai_provider(server.url),
                         openai_provider(url, "")):  # fmt: skip
            assert "secret" not in repr(provider)
            if "pass-secret" in repr(provider._http._base_url):
                continue
            for on_text in (None, print):
                gateway = _gateway(ledger, provider, max_retries=0)
                request = prompt_request(auth_token="tok-secret")
                response = gateway.route(request, on_text=on_text)
                if "secret" in repr(provider._http._headers):
                    assert "secret" not in repr(response)
                    assert not files_hold(tmp_path, "sk-secret")
                assert "pass-secret" not in repr(response)
        for entry in ledger.read_by_event_type("EXCHANGE")[:4]:
            assert "secret" not in str(entry)
    assert not files_hold(tmp_path, "tok-secret")


def test_a_spent_budget_is_reported_rather_than_an_open_circuit(ledger: LedgerClient) -> None:
    circuit = CircuitBreakerConfig(failure_threshold=1, recovery_timeout_ms=60_000)
    budgeter = TokenBudgeter(ledger)
    config = RouterConfig(
        default_provider="p", default_model="model-1", max_retries=0, circuit_breaker=circuit,
        fallbacks={"model-1": ["p/model-2"]}, **QUICK,
    )  # fmt: skip
    with serve(Raw(b"{}", 500), message("of the fallback")) as server:
        gateway = LLMGateway(ledger, config=config, dev_mode=True, budgeter=budgeter)
        gateway.register_provider("p", anthropic_provider(server.url))
        budgeter.allocate(BudgetScope("SES-1"), limits=BudgetLimits(tokens=100_000))
        gateway.route(prompt_request(session_id="SES-1"))
        budgeter.allocate(BudgetScope("SES-1"), limits=BudgetLimits(tokens=1))
        refused = gateway.route(prompt_request(session_id="SES-1"))
    assert refused.outcome is RouteOutcome.REJECTED
    assert refused.error_code == "BUDGET_EXHAUSTED"
