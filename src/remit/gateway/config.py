"""How a gateway is set up: its defaults, limits, retries, breakers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from remit.kernel.settings import Settings, default_settings

__all__ = ["CircuitBreakerConfig", "RouterConfig"]


@dataclass(frozen=True, slots=True)
class CircuitBreakerConfig:
    """When a circuit opens and closes. Times in milliseconds.

    Attributes:
        failure_threshold: failures in a row that open it.
        recovery_timeout_ms: how long it then lets no call through.
        half_open_max: calls let through after that, to try it.
        poll_s: how old what a process knows of others' failures may be, in seconds.
        keep_hours: how long a circuit that is well is remembered.
        most_rows: how many circuits are remembered.
    """

    failure_threshold: int = 3
    recovery_timeout_ms: int = 30_000
    half_open_max: int = 1
    poll_s: float = 0.1
    keep_hours: float = 24.0
    most_rows: int = 4_096


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """Defaults and limits of calls. Times in milliseconds.

    Attributes:
        default_provider: who is asked when neither request nor model name says.
        default_model: the model asked when the request names none.
        default_timeout_ms: longest wait for an answer to begin; of one in neutral form, to end.
        connect_timeout_ms: longest wait for a connection.
        idle_timeout_ms: longest wait between bytes of an answer.
        max_retries: attempts after the first, for retryable failures only.
        default_models: by provider, the model asked when only the provider is named.
        model_prefixes: model name prefix → provider; the longest counts.
        set_up_by: provider → the variable, setting or command that sets it up.
        orphan_policy: what the reservation of an unanswered call becomes.
        fallbacks: model → models tried in turn when it fails in a way that another may not.
        budget_wait_ms: longest wait for money that other calls only hold.
        free_providers: those whose models cost nothing, such as one's own machine.
        estimated_bytes_per_token: for what arrived of a stream that broke off.
        server_tool_uses: how often a call may use a tool that the provider runs, where it does
            not say.
        thinking_models: name prefixes of models that think unseen, besides those of which the
            table of prices says so: a stream of one that broke off is charged at its bound.
        idempotency_hours: how long an idempotency key answers from the record.
        policy_epoch: which each exchange names, where it is above 0.
    """

    default_provider: str = "mock"
    default_model: str = "mock-model-1"
    default_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    idle_timeout_ms: int = 60_000
    max_retries: int = 2
    retry_base_ms: int = 100
    retry_max_ms: int = 4_000
    lease_margin_ms: int = 30_000
    orphan_policy: Literal["charge", "release"] = "charge"
    fallbacks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    budget_wait_ms: int = 30_000
    free_providers: Collection[str] = frozenset({"local"})
    estimated_bytes_per_token: float = 3.0
    server_tool_uses: int = 10
    thinking_models: Sequence[str] = ()
    idempotency_hours: float = 24.0
    default_models: Mapping[str, str] = field(default_factory=dict)
    model_prefixes: Mapping[str, str] = field(
        default_factory=lambda: default_settings().model.prefixes
    )
    set_up_by: Mapping[str, str] = field(default_factory=lambda: set_up_by(default_settings()))
    circuit_breaker: CircuitBreakerConfig = field(default_factory=CircuitBreakerConfig)
    policy_epoch: int = 0

    @classmethod
    def from_settings(
        cls, settings: Settings, provider: str, model: str, policy_epoch: int = 0
    ) -> RouterConfig:
        """The configuration that ``remit.toml`` asks for, with the default model resolved."""
        gateway = settings.gateway
        return cls(
            default_provider=provider,
            default_model=model,
            default_timeout_ms=gateway.timeout_ms,
            connect_timeout_ms=gateway.connect_timeout_ms,
            idle_timeout_ms=gateway.idle_timeout_ms,
            max_retries=gateway.max_retries,
            retry_base_ms=gateway.retry_base_ms,
            retry_max_ms=gateway.retry_max_ms,
            lease_margin_ms=gateway.lease_margin_ms,
            orphan_policy=gateway.orphan_policy,
            fallbacks=gateway.fallbacks,
            budget_wait_ms=settings.budget.wait_ms,
            free_providers=frozenset(settings.budget.free_providers),
            estimated_bytes_per_token=settings.budget.estimated_bytes_per_token,
            server_tool_uses=settings.budget.server_tool_uses,
            thinking_models=settings.budget.thinking_models,
            idempotency_hours=gateway.idempotency_hours,
            default_models={
                **{name: one.default_model for name, one in settings.providers.items()},
                "local": settings.local.model,
            },
            model_prefixes=settings.model.prefixes,
            set_up_by=set_up_by(settings),
            circuit_breaker=CircuitBreakerConfig(
                gateway.failure_threshold, gateway.recovery_timeout_ms
            ),
            policy_epoch=policy_epoch,
        )


def set_up_by(settings: Settings) -> dict[str, str]:
    """Return what sets up each provider that ``remit.toml`` or Remit itself knows."""
    found = {
        name: f"set {one.api_key_env}" if one.api_key_env else f"give [providers.{name}] an api_key"
        for name, one in settings.providers.items()
    }
    return {**found, "local": "run `remit model pull`"}
