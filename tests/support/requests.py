"""Requests and gateways for tests."""

from __future__ import annotations

from typing import Any

from remit.kernel.exchange import PromptRequest
from remit.kernel.settings import ProviderSettings, default_settings
from remit.providers import ProviderRequest, UpstreamProvider


def prompt_request(**changes: Any) -> PromptRequest:
    fields: dict[str, Any] = {
        "prompt": "What is a remit?",
        "prompt_pack_id": "PRM-TEST-001",
        "contract_id": "PRC-TEST-001",
        "agent_id": "agent-1",
        "agent_class": "RESIDENT",
        "framework_id": "FMWK-TEST",
        "package_id": "PKG-TEST-001",
        "work_order_id": "WO-SES-TESTTEST-001",
        "session_id": "SES-TESTTEST",
        "tier": "ho1",
        "max_tokens": 100,
    }
    return PromptRequest(**{**fields, **changes})


def provider_settings(kind: str, **changes: Any) -> ProviderSettings:
    """The shipped settings of a kind, changed."""
    return default_settings().providers[kind].model_copy(update=changes)


def anthropic_provider(url: str, key: str = "sk-secret") -> UpstreamProvider:
    return UpstreamProvider(url, key, provider_settings("anthropic"))


def openai_provider(url: str, key: str = "sk-secret", **changes: Any) -> UpstreamProvider:
    """An adapter that talks to a test server; with other settings than the shipped ones."""
    settings = provider_settings("openai").model_copy(update=changes)
    return UpstreamProvider(f"{url}/v1", key, settings)


def provider_request(**changes: Any) -> ProviderRequest:
    fields: dict[str, Any] = {
        "model_id": "model-1",
        "messages": ({"role": "user", "content": "hi"},),
        "max_tokens": 64,
        "temperature": 0.0,
        "timeout_s": 5.0,
    }
    return ProviderRequest(**{**fields, **changes})
