"""The time series of each provider and model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram

__all__ = ["WHO", "Add", "Families", "ModelSeries"]

WHO = ("provider", "model")

Add = Callable[[float], None]


class Families:
    """The metrics that have labels for provider and model alone, or those and one more."""

    def __init__(
        self,
        registry: CollectorRegistry,
        durations_s: Sequence[float],
        first_tokens_s: Sequence[float],
    ) -> None:
        self.duration = Histogram(
            "remit_call_duration_seconds", "From a call's coming in to its end, retries included.",
            WHO, registry=registry, buckets=durations_s,
        )  # fmt: skip
        self.first_token = Histogram(
            "remit_time_to_first_token_seconds", "From sending to the first piece of a stream.",
            WHO, registry=registry, buckets=first_tokens_s,
        )  # fmt: skip
        self.tokens = Counter(
            "remit_tokens_total",
            "Tokens of the calls' last attempts; cached_input is a part of input, reasoning of "
            "output.",
            (*WHO, "type"), registry=registry,
        )  # fmt: skip
        self.cost = Counter(
            "remit_cost_usd_total", "Cost of the calls' last attempts in US dollars.",
            (*WHO, "certainty"), registry=registry,
        )  # fmt: skip
        self.unpriced = Counter(
            "remit_unpriced_calls_total", "Calls whose cost nobody knows.", WHO,
            registry=registry,
        )  # fmt: skip


class ModelSeries:
    """The series of one provider and model, looked up once."""

    def __init__(self, families: Families, provider: str, model: str) -> None:
        self.provider = provider
        self.model = model
        self._families = families
        self._costs: dict[str, Add] = {}
        who = (provider, model)
        self.add_duration: Add = families.duration.labels(*who).observe
        self.add_input: Add = families.tokens.labels(*who, "input").inc
        self.add_output: Add = families.tokens.labels(*who, "output").inc
        self.add_cached: Add = families.tokens.labels(*who, "cached_input").inc
        self.add_reasoning: Add = families.tokens.labels(*who, "reasoning").inc
        self._first: Add | None = None

    def add_first_token(self, seconds: float) -> None:
        if self._first is None:  # many models never stream: no empty histogram for them
            self._first = self._families.first_token.labels(self.provider, self.model).observe
        self._first(seconds)

    def add_cost(self, certainty: str, usd: float) -> None:
        add = self._costs.get(certainty)
        if add is None:
            who = (self.provider, self.model)
            if certainty == "unpriced":
                add = self._families.unpriced.labels(*who).inc
            else:
                add = self._families.cost.labels(*who, certainty).inc
            self._costs[certainty] = add
        add(1 if certainty == "unpriced" else usd)
