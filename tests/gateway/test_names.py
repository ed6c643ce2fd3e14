"""Names of models: a call never reaches another provider than the one whose model is named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.gateway import (
    LLMGateway,
    PromptResponse,
    RouteOutcome,
    RouterConfig,
    outgoing_requests,
)
from remit.kernel.errors import ConfigError, RemitError
from remit.kernel.settings import default_settings
from remit.ledger import LedgerClient
from remit.providers import Body, MockProvider, Outgoing, ProviderError
from remit.providers.wire import CHAT
from remit.routing import Candidate, RouteOptions, route_request
from remit.runtime.providers import Providers, assemble_providers, choose_model
from tests.support.requests import openai_provider, prompt_request
from tests.support.roots import new_root

pytestmark = pytest.mark.any_store


# Every form of a name, and the provider that is meant by it.
NAMES: Mapping[str, str] = {
    "claude-sonnet-5": "anthropic",
    "claude-3-5-haiku-20241022": "anthropic",
    "claude-opus-latest": "anthropic",
    "Claude-Sonnet-5": "anthropic",
    "CLAUDE-SONNET-5": "anthropic",
    " claude-sonnet-5": "anthropic",
    "anthropic/claude-sonnet-5": "anthropic",
    "anthropic/gpt-4o": "anthropic",
    "anthropic/anything/else": "anthropic",
    "gpt-4o": "openai",
    "GPT-4o-mini": "openai",
    "gpt-4o-2024-08-06": "openai",
    "ft:gpt-4o-mini:acme::A1b2": "openai",
    "chatgpt-4o-latest": "openai",
    "o1": "openai",
    "o3-mini": "openai",
    "text-embedding-3-small": "openai",
    "openai/claude-sonnet-5": "openai",
    "local/smollm2-135m": "local",
    "smollm2-135m": "local",
    "mock/anything": "mock",
    "mock-model-1": "mock",
    "nobody-knows": "mock",  # the default provider
    "elsewhere/model": "elsewhere",
    " anthropic/claude-sonnet-5": "anthropic",
    "/claude-sonnet-5": "anthropic",
    "\u200bclaude-sonnet-5": "anthropic",
    "anthropic:claude-sonnet-5": "anthropic",
    "Anthropic: claude-sonnet-5": "anthropic",
    "\u200banthropic:claude-sonnet-5": "anthropic",
    "anthropic:gpt-4o": "anthropic",
    "anthropic:anything/else": "anthropic",
    "anthropic/claude:beta": "anthropic",
    "anthropic": "anthropic",
    "anthropic/": "anthropic",
    "anthropic:": "anthropic",
    "openai": "openai",
    "openai/": "openai",
    "openai:claude-sonnet-5": "openai",
    "local:smollm2-135m": "local",
    "llama3:8b": "mock",  # no provider is called so
    # Names of other hosts of a family, and a family behind a provider that nobody set up.
    "anthropic.claude-sonnet-4-5-20250929-v1:0": "anthropic",
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0": "anthropic",
    "global.anthropic.claude-opus-4-1": "anthropic",
    "EU.Anthropic.Claude-3-haiku-20240307-v1:0:48k": "anthropic",
    "anthropic.unheard-of-v1:0": "anthropic",
    "us.openai.gpt-oss-120b-1:0": "openai",
    "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-3-haiku-v1:0": "anthropic",
    "arn:aws-us-gov:bedrock:us-gov-west-1:1:inference-profile/us.anthropic.x-v1:0": "anthropic",
    "arn:aws:bedrock:us-east-1::foundation-model/meta.llama3-8b-instruct-v1:0": "bedrock",
    "arn:aws:bedrock:us-east-1:123456789012:provisioned-model/abc": "bedrock",
    "vertex_ai:claude-sonnet-5": "anthropic",
    "bedrock:anthropic.claude-sonnet-5": "anthropic",
    "claude-sonnet-4-5@20250929": "anthropic",
    "bedrock/anthropic.claude-sonnet-5": "bedrock",
    "meta.llama3-8b-instruct-v1:0": "mock",  # no family that a prefix states
    "qwen2.5-7b": "mock",
    "elsewhere/": "mock",
    "/model": "mock",
}


def gateway(ledger: LedgerClient, *names: str, **settings: Any) -> dict[str, Any]:
    made = LLMGateway(ledger, config=RouterConfig(**settings), dev_mode=True)
    providers = {name: MockProvider() for name in names}
    for name, provider in providers.items():
        made.register_provider(name, provider)
    return {"": made, **providers}


def ask(gateway: LLMGateway, model_id: str) -> PromptResponse:
    return gateway.route(prompt_request(model_id=model_id))


@pytest.mark.parametrize(
    ("provider", "help_"),
    [
        ("anthropic", "set ANTHROPIC_API_KEY"),
        ("openai", "set OPENAI_API_KEY"),
        ("local", "run `remit model pull`"),
        ("elsewhere", "add [providers.elsewhere] to remit.toml"),
    ],
)
def test_the_refusal_states_how_to_set_the_provider_up(
    ledger: LedgerClient, provider: str, help_: str
) -> None:
    answer = ask(gateway(ledger, "mock")[""], f"{provider}/model-1")
    assert answer.error_message == (
        f"model-1 belongs to {provider}, which is not configured; {help_}"
    )
    refused = ledger.read(answer.exchange_entry_id)
    assert refused.event_type == "PROMPT_REJECTED"


def test_a_fallback_is_not_asked_in_place_of_a_provider_that_is_not_set_up(
    ledger: LedgerClient,
) -> None:
    made = gateway(ledger, "mock", fallbacks={"claude-sonnet-5": ["mock/other"]})
    assert ask(made[""], "claude-sonnet-5").error_code == "PROVIDER_NOT_FOUND"
    assert not made["mock"].call_count


def test_a_fallback_that_is_not_set_up_is_passed_over(ledger: LedgerClient) -> None:
    made = gateway(
        ledger, "openai", fallbacks={"mock-model-1": ["claude-sonnet-5", "gpt-4o"]}, max_retries=0
    )
    failing = MockProvider(responses=[ProviderError("SERVER_ERROR", "down")])
    made[""].register_provider("mock", failing)
    assert ask(made[""], "mock-model-1").provider_id == "openai"


def test_the_python_api_means_the_same_provider() -> None:
    settings, providers = default_settings(), Providers({}, ("openai", "anthropic"), {})
    for name, meant in NAMES.items():
        if meant not in ("mock", "local"):
            assert choose_model(settings, name, providers)[0] == meant, name


@pytest.mark.parametrize(
    "name", ["claude-sonnet-5", "elsewhere/model", "openrouter/anthropic/claude-x",
             "Anthropic/claude-sonnet-5", " anthropic/claude-sonnet-5", "anthropic/"],
)  # fmt: skip
def test_an_agent_of_another_provider_asks_nobody(tmp_path: Path, name: str) -> None:
    mine = MockProvider()
    with (
        Runtime.open(new_root(tmp_path / "root"), providers={"mine": mine}) as runtime,
        pytest.raises(RemitError),
    ):
        runtime.agent("clerk", model=name).run("Hello")
    assert not mine.call_count


def test_an_agent_of_a_provider_that_is_not_set_up_is_refused(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    with (
        Runtime.open(root, providers={"mine": MockProvider()}) as runtime,
        pytest.raises(RemitError, match="Set ANTHROPIC_API_KEY"),
    ):
        runtime.agent("clerk", model="claude-sonnet-5")


def test_a_host_name_that_cannot_be_resolved_leads_to_the_fallback(ledger: LedgerClient) -> None:
    config = RouterConfig(fallbacks={"openai/gpt-4o": ["mock/other"]}, max_retries=0)
    made = LLMGateway(ledger, config=config, dev_mode=True)
    made.register_provider("openai", openai_provider("http://no-such-host.invalid"))
    made.register_provider("mock", MockProvider())
    response = made.route(prompt_request(model_id="openai/gpt-4o"))
    assert (response.outcome, response.provider_id) == (RouteOutcome.SUCCESS, "mock")
    assert response.fallback_from == (("gpt-4o", "LOCAL_ERROR"),)


def test_an_adapter_that_fails_leads_to_the_fallback_and_else_to_a_recorded_refusal(
    ledger: LedgerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("a secret")

    config = RouterConfig(fallbacks={"openai/gpt-4o": ["mock/other"]}, max_retries=0)
    made = LLMGateway(ledger, config=config, dev_mode=True)
    made.register_provider("openai", adapter := openai_provider("http://127.0.0.1:1"))
    made.register_provider("mock", MockProvider())
    monkeypatch.setattr(adapter, "outgoing", broken)
    assert made.route(prompt_request(model_id="openai/gpt-4o")).provider_id == "mock"
    chain = [Candidate("gpt-4o", "openai", {"general": 9}), Candidate("other", "mock")]
    assert route_request("Hello", RouteOptions(made, chain)).model_id == "other"
    response = made.route(prompt_request(model_id="openai/gpt-4"))
    refused = ledger.read(response.exchange_entry_id)
    assert (refused.event_type, refused.metadata["error_code"]) == (
        "PROMPT_REJECTED", "PROVIDER_ERROR"
    )  # fmt: skip
    assert "KeyError" in refused.metadata["error_message"]
    assert "secret" not in refused.metadata["error_message"]


@pytest.mark.parametrize("has_body", [False, True])
@pytest.mark.parametrize("made", [5, None, Outgoing(None, {}, False)])  # type: ignore[arg-type]
def test_an_adapter_that_returns_no_request_begins_no_call(
    ledger: LedgerClient, monkeypatch: pytest.MonkeyPatch, made: Any, has_body: bool
) -> None:
    gateway = LLMGateway(ledger, config=RouterConfig(max_retries=0), dev_mode=True)
    gateway.register_provider("openai", adapter := openai_provider("http://127.0.0.1:1"))
    monkeypatch.setattr(adapter, "outgoing", lambda _: made)
    body = b'{"model":"openai/gpt-4o","messages":[{"role":"user","content":"hi"}]}'
    more: Any = {"body": Body.read(CHAT, body), "prompt": ""} if has_body else {}
    response = gateway.route(prompt_request(model_id="openai/gpt-4o", **more))
    assert (response.outcome, response.error_code) == (RouteOutcome.REJECTED, "PROVIDER_ERROR")
    assert "its adapter returned no request" in (response.error_message or "")
    assert [entry.event_type for entry in ledger.read_all()] == ["PROMPT_REJECTED"]


def test_a_fault_in_a_translation_is_not_its_adapters(
    ledger: LedgerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = LLMGateway(ledger, config=RouterConfig(max_retries=0), dev_mode=True)
    gateway.register_provider("mock", MockProvider())
    monkeypatch.setattr(outgoing_requests, "in_neutral_form", lambda _: {}["a secret"])
    body = b'{"model":"mock/m","messages":[{"role":"user","content":"hi"}]}'
    request = prompt_request(model_id="mock/m", body=Body.read(CHAT, body), prompt="")
    message = gateway.route(request).error_message or ""
    assert message.endswith("its translation raised KeyError")


@pytest.mark.parametrize(
    "url",
    ["localhost:9/v1", "ftp://host/v1", "http://", "http:///v1", "http://[::1", "http://host:a/v1"],
)
def test_a_base_url_that_cannot_be_one_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match=r"base URL of provider openai is .* not an http"):
        assemble_providers(default_settings(), None, {"OPENAI_BASE_URL": url})


@pytest.mark.parametrize("url", [" http://host/v1 ", "http://host/v1\r\n"])
def test_blanks_around_a_base_url_do_not_count(url: str) -> None:
    found = [
        repr(assemble_providers(default_settings(), None, {"OPENAI_BASE_URL": one}).reachable)
        for one in (url, "http://host/v1")
    ]
    assert found[0] == found[1]
    assert "http://host/v1" in found[0]
