"""The configuration of a gateway: defaults, limits, retries, circuit breakers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from remit.kernel.settings import Settings, default_settings


@dataclass(frozen=True, slots=True)
class CircuitBreakerConfig:
    """Thresholds of circuit breakers.

    Immutable; times in milliseconds unless their names say otherwise.

    Attributes:
        failure_threshold: consecutive failures that open a circuit.
        recovery_timeout_ms: time for which an open circuit refuses every call.
        half_open_max: calls that may then try the circuit.
        poll_s: longest age of what a process knows about failures elsewhere, in seconds.
        keep_hours: hours for which a healthy circuit is kept.
        most_rows: most circuits kept.
    """

    failure_threshold: int = 3
    recovery_timeout_ms: int = 30_000
    half_open_max: int = 1
    poll_s: float = 0.1
    keep_hours: float = 24.0
    most_rows: int = 4_096


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """Defaults and limits of calls.

    Immutable; times in milliseconds unless their names say otherwise. A root replaces these values
    by its settings, whose defaults differ (``HOT/config/defaults.toml`` of ``PKG-KERNEL-001``).

    Attributes:
        default_provider: the provider if neither request nor model name states one.
        default_model: the model if the request states none.
        default_timeout_ms: longest wait for an answer to begin; in neutral form, for its end.
        connect_timeout_ms: longest wait for a connection.
        idle_timeout_ms: longest wait between bytes of an answer.
        max_retries: attempts after the first; only retryable failures are retried.
        retry_base_ms: bound of the first wait before a retry; each retry doubles it.
        retry_max_ms: longest wait before a retry.
        lease_margin_ms: time after the timeout until the lease of a call expires.
        orphan_policy: whether the reservation of an unanswered call is charged or released.
        fallbacks: model → models tried in turn after a failure that another model may not have.
        budget_wait_ms: longest wait for money that other calls have reserved.
        free_providers: providers whose models cost nothing, such as the local one.
        estimated_bytes_per_token: for the part of a broken stream that arrived.
        server_tool_uses: how often a call may use a tool of the provider if it does not say.
        thinking_models: name prefixes of models that think unseen, in addition to those in the
            price table. A broken stream of such a model is charged at its bound.
        idempotency_hours: hours for which an idempotency key is answered from the ledger.
        record_streams: whether the events of streams are recorded as they came, too.
        cache_keys: names or ids of keys whose equal requests are answered from the record.
        cache_contracts: contracts whose equal requests are answered from the record.
        cache_s: greatest age of such an answer, in seconds.
        default_models: the default model of each provider, keyed by provider.
        model_prefixes: model name prefix → provider; the longest match applies.
        set_up_by: provider → the variable, setting or command that sets it up.
        circuit_breaker: thresholds of the circuit breakers.
        policy_epoch: the policy epoch recorded on every exchange; omitted when 0.
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
    record_streams: bool = False
    cache_keys: Collection[str] = ()
    cache_contracts: Collection[str] = ()
    cache_s: float = 3600.0
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
        """Return the configuration in ``remit.toml``.

        Of the circuit breakers, only ``failure_threshold`` and ``recovery_timeout_ms`` are read.

        Args:
            settings: the parsed file.
            provider: the default provider.
            model: the default model.
            policy_epoch: the policy epoch recorded on every exchange.
        """
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
            record_streams=gateway.record_streams,
            cache_keys=gateway.answer_cache.keys,
            cache_contracts=gateway.answer_cache.contracts,
            cache_s=gateway.answer_cache.max_age_s,
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
    """Return the instruction that sets up each known provider, keyed by provider id.

    An instruction names the environment variable or setting of the API key; ``local`` has a
    command.

    Args:
        settings: the parsed ``remit.toml``.
    """
    found = {
        name: f"set {one.api_key_env}" if one.api_key_env else f"give [providers.{name}] an api_key"
        for name, one in settings.providers.items()
    }
    return {**found, "local": "run `remit model pull`"}
