"""Real gateways whose calls are watched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from remit.gateway import CallReport, LLMGateway, RouterConfig
from remit.gateway.auth import Identity
from remit.gateway.budget import TokenBudgeter
from remit.kernel.exchange import PromptResponse, RouteOutcome
from remit.ledger import LedgerClient
from tests.support.requests import openai_provider, prompt_request
from tests.support.wire import Step, serve

__all__ = ["call_report", "watched_gateway"]


@contextmanager
def watched_gateway(
    directory: Path, answer: Step, *observers: Any, **changes: Any
) -> Iterator[LLMGateway]:
    """A gateway before an OpenAI provider that answers so."""
    config = RouterConfig(
        default_provider="openai",
        default_model="gpt-4o-mini",
        **{"max_retries": 0, "retry_base_ms": 1, "retry_max_ms": 2, **changes},
    )
    with serve(answer) as server, LedgerClient(directory / "ledger.db") as ledger:
        gateway = LLMGateway(
            ledger, TokenBudgeter(ledger), config, dev_mode=True, budget_mode="warn"
        )
        gateway.register_provider("openai", openai_provider(server.url))
        gateway.observers.extend(observers)
        yield gateway


def call_report(**changes: Any) -> CallReport:
    """A report as the gateway makes it; changes go to the request or the response."""
    response: dict[str, Any] = {
        "content": "Hello.",
        "outcome": RouteOutcome.SUCCESS,
        "input_tokens": 13,
        "output_tokens": 5,
        "model_id": "gpt-4o-mini",
        "provider_id": "openai",
        "latency_ms": 12.5,
        "timestamp": "2026-01-01T00:00:00.000000Z",
        "exchange_entry_id": "LED-00000002",
        "dispatch_entry_id": "LED-00000001",
        "cost_incurred": 0.25,
        "cost_certainty": "measured",
    }
    identity = Identity("someone", "agent", key_id="KEY-1")
    first = changes.pop("first_after_ms", None)
    attempts = changes.pop("attempts", 1)
    started = changes.pop("started_ns", 1_700_000_000_000_000_000)
    answer = {name: changes.pop(name) for name in list(changes) if name in _RESPONSE}
    return CallReport(
        prompt_request(**changes),
        PromptResponse(**{**response, **answer}),
        identity,
        started,
        first,
        attempts,
    )


_RESPONSE = frozenset(PromptResponse.__dataclass_fields__)
