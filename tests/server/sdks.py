"""What the tests of both SDKs share."""

from __future__ import annotations

from typing import Any

import anthropic
import openai

from remit.kernel.settings import default_settings
from remit.ledger import LedgerEntry
from tests.server.running import Served

__all__ = [
    "DEFAULTS", "HARD", "MODELS", "anthropic_at", "costs", "is_whole", "openai_at",
    "rates", "snapshot",
]  # fmt: skip

MODELS = ("gpt-4o-mini", "claude-sonnet-4-5")
"""One that the OpenAI upstream answers, one that the Anthropic upstream does."""

DEFAULTS = tuple(
    default_settings().providers[name].default_model for name in ("openai", "anthropic")
)
"""The models that are listed: those that the providers are set up with."""

HARD = {"max_retries": 0, "timeout": 30}
"""Of every client: what goes wrong shows at once."""

_WIRE = {"openai": "openai.chat", "anthropic": "anthropic.messages"}
_USD_PER_MILLION = {"gpt-4o-mini": (0.15, 0.60), "claude-sonnet-4-5": (3.0, 15.0)}


opened: list[Any] = []
"""Clients of the test that runs; a fixture closes them."""


def openai_at(served: Served, key: str = "", session: str = "") -> openai.OpenAI:
    """The official client, closed when the test ends."""
    named = {"x-remit-session": session} if session else {}
    client = openai.OpenAI(
        base_url=f"{served.url}/v1", api_key=key or served.token, default_headers=named, **HARD
    )
    opened.append(client)
    return client


def anthropic_at(served: Served, key: str = "", session: str = "") -> anthropic.Anthropic:
    """The official client, closed when the test ends."""
    named = {"x-remit-session": session} if session else {}
    client = anthropic.Anthropic(
        base_url=served.url, api_key=key or served.token, default_headers=named, **HARD
    )
    opened.append(client)
    return client


def snapshot(model: str, number: int) -> str:
    """A dated name of the model: its price, but a circuit of its own."""
    month, day = 1 + number // 28, 1 + number % 28
    if model.startswith("claude"):
        return f"{model}-2025{month:02}{day:02}"
    return f"{model}-2024-{month:02}-{day:02}"


def rates(model: str, tokens_in: int, tokens_out: int) -> float:
    """What so many tokens cost by the providers' public price lists, in USD."""
    given, made = _USD_PER_MILLION[model]
    return (tokens_in * given + tokens_out * made) / 1e6


def costs(entry: LedgerEntry, model: str) -> None:
    """The bill of a measured exchange: nano-dollars, rounded up."""
    told = entry.metadata
    exact = rates(model, told["input_tokens"], told["output_tokens"])
    assert exact - 1e-12 <= told["cost_usd"] <= exact + 1.001e-9
    assert told["cost_certainty"] == "measured"
    assert told["price_version"]


def is_whole(
    served: Served, session: str, model: str, dialect: str, **expected: Any
) -> LedgerEntry:
    """The one exchange of a session, with all that a successful call leaves."""
    entry = served.exchange(session)
    told = entry.metadata
    assert (entry.decision, entry.reason, told["outcome"]) == (
        "SUCCESS", "Exchange completed", "success",
    )  # fmt: skip
    assert entry.submission_id == told["contract_id"] == "PRC-PASSTHROUGH-001"
    assert told["model_id"] == model
    assert told["provider_id"] == ("openai" if model.startswith("gpt") else "anthropic")
    assert told["key_id"].startswith("KEY-")
    assert told["wire"] == _WIRE["openai" if model.startswith("gpt") else "anthropic"]
    reasons = [change["reason"] for change in told.get("changed", ())]
    translated = told["wire"] != _WIRE[dialect]
    assert (f"translated from {_WIRE[dialect]}" in reasons) == translated
    assert told["tier"] == "ho1"
    assert told["latency_ms"] > 0
    assert len(told["context_hash"]) == 64
    costs(entry, model)
    for name, value in expected.items():
        assert told[name] == value, name
    return entry
