"""Candidates behind one upstream that does what a model's name orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from remit.gateway import CircuitBreakerConfig, LLMGateway, RouterConfig
from remit.ledger import LedgerClient
from remit.routing import Candidate, RouteOptions, create_thought_record_emitter
from tests.support.requests import openai_provider
from tests.support.upstream import Upstream

__all__ = ["candidate", "emitting", "gateway_to", "nine"]


def candidate(name: str, ability: int, order: str = "", **more: Any) -> Candidate:
    """A candidate at the provider of its own name; ``order`` is what the upstream shall do."""
    fields: dict[str, Any] = {"provider_id": f"at-{name}", **more}
    served = f"gpt-{name}@{order}" if order else f"gpt-{name}"
    return Candidate(name, abilities={"general": ability}, served_as=served, **fields)


def nine(orders: Mapping[str, str]) -> tuple[Candidate, ...]:
    """Nine, the best ``a``, the worst ``i``."""
    return tuple(
        candidate(name, 90 - 5 * place, orders.get(name, ""))
        for place, name in enumerate("abcdefghi")
    )


@contextmanager
def gateway_to(
    ledger: LedgerClient,
    upstream: Upstream,
    candidates: tuple[Candidate, ...],
    **changes: Any,
) -> Iterator[LLMGateway]:
    """A gateway with a provider for each candidate."""
    breaker = changes.pop("breaker", CircuitBreakerConfig())
    config = RouterConfig(circuit_breaker=breaker, retry_base_ms=1, retry_max_ms=2, **changes)
    gateway = LLMGateway(ledger, config=config, dev_mode=True)
    for one in candidates:
        gateway.register_provider(one.provider_id, openai_provider(upstream.url))
    yield gateway


def emitting(ledger: LedgerClient, gateway: LLMGateway, models: Any, **more: Any) -> RouteOptions:
    """Options whose decisions go into the trail of ``TASK-1``."""
    emitter = create_thought_record_emitter(ledger, task_id="TASK-1", agent_id="agent-1")
    return RouteOptions(gateway, models, decision_emitter=emitter, **more)
