"""Prometheus metrics of the calls (SPEC 12; names after prometheus.io/docs/practices/naming)."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from remit.gateway import CallReport, CircuitBreaker, CircuitState
from remit.kernel.exchange import RouteOutcome
from remit.server.telemetry._processes import VARIABLE, dead_processes, forget, several_processes
from remit.server.telemetry._series import WHO, Add, Families, ModelSeries
from remit.server.telemetry._text import name_of

__all__ = ["CallMetrics"]

_log = logging.getLogger("remit.telemetry")

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OTHER = "other"
_STATES = {CircuitState.CLOSED: 0, CircuitState.HALF_OPEN: 1, CircuitState.OPEN: 2}
# Part of the public interface, as the names are: a dashboard counts on them.
_DURATIONS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600)
_FIRST_TOKENS_S = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 20, 40, 60)

_Pair = tuple[str, str]


class CallMetrics:
    """Counts what ends at the gateway; an observer of :attr:`LLMGateway.observers`.

    Clients name models, so labels are bounded: a model gets a label of its own when it has
    answered, or when ``known`` vouches for it, until there are ``max_models``; everything else is
    ``other``. A rejected call, which nobody answered, is ``other`` at ``other``.

    Several processes of one host are seen as one if ``PROMETHEUS_MULTIPROC_DIR`` named a
    directory before this module was imported. Each process then has its own bound.

    Args:
        max_models: most pairs of provider and model that get labels, and most error codes.
        known: whether a provider has such a model, for calls that failed; say, whether it has a
            price.
        durations_s: upper bounds of the histogram of call durations, in seconds, ascending.
        first_tokens_s: the same for the time to the first token.

    Raises:
        ConfigError: ``PROMETHEUS_MULTIPROC_DIR`` was set too late, or names no directory.
    """

    def __init__(
        self,
        *,
        max_models: int = 200,
        known: Callable[[str, str], bool] | None = None,
        durations_s: Sequence[float] = _DURATIONS_S,
        first_tokens_s: Sequence[float] = _FIRST_TOKENS_S,
    ) -> None:
        self._several = several_processes()
        self._max = max_models
        self._known = known
        self._lock = threading.Lock()
        self._models: dict[_Pair, ModelSeries] = {}
        self._others: dict[str, ModelSeries] = {}
        self._codes: set[str] = set()
        self._ended: dict[tuple[str, str, str, str], Add] = {}
        self._rejected: dict[str, Add] = {}
        self._breakers: Callable[[], Mapping[_Pair, CircuitBreaker]] | None = None
        self._shown_breakers: set[_Pair] = set()
        self._registry = registry = _Registry()
        self._at_scrape = _AtScrape()
        registry.register(self._at_scrape)
        self._calls = Counter(
            "remit_calls_total", "Calls that ended.", (*WHO, "outcome", "error_code"),
            registry=registry,
        )  # fmt: skip
        self._families = Families(registry, durations_s, first_tokens_s)
        self._add_attempts = Counter(
            "remit_attempts_total", "Requests sent to providers, retries and fallbacks included.",
            registry=registry,
        ).inc  # fmt: skip
        self._rejections = Counter(
            "remit_rejections_total", "Calls that were refused before anything was sent.",
            ("code",), registry=registry,
        )  # fmt: skip
        self._in_progress = Gauge(
            "remit_requests_in_progress", "HTTP requests being answered.",
            registry=registry, multiprocess_mode="livesum",
        )  # fmt: skip
        self._refused_keys = Counter(
            "remit_refused_keys_total", "HTTP requests without a valid key.", registry=registry
        )
        self._breaker_state = Gauge(
            "remit_breaker_state",
            "Circuit breaker: 0 closed, 1 half open, 2 open; of all processes.",
            WHO, registry=registry, multiprocess_mode="livemax",
        )  # fmt: skip

    # -- the hot path ------------------------------------------------------------------

    def __call__(self, report: CallReport) -> None:
        """Count one call that has ended."""
        response = report.response
        outcome = response.outcome
        code = response.error_code or ""
        if outcome is RouteOutcome.REJECTED:
            code = self._bounded_code(code)
            self._add_end(_OTHER, _OTHER, "rejected", code)
            add = self._rejected.get(code)
            if add is None:
                add = self._rejected[code] = self._rejections.labels(code).inc
            add(1)
            return
        succeeded = outcome is RouteOutcome.SUCCESS
        series = self._models.get((response.provider_id, response.model_id))
        if series is None:
            series = self._series(response.provider_id, response.model_id, succeeded)
        if response.replayed:  # nothing was sent, used or paid
            self._add_end(series.provider, series.model, "replayed", "")
            return
        if code:
            code = self._bounded_code(code)
        self._add_end(series.provider, series.model, outcome.value, code)
        self._add_attempts(report.attempts)
        series.add_duration(max(0, time.time_ns() - report.started_ns) / 1e9)
        if report.first_after_ms is not None:
            series.add_first_token(report.first_after_ms / 1000)
        if response.input_tokens:
            series.add_input(response.input_tokens)
        if response.output_tokens:
            series.add_output(response.output_tokens)
        if response.cached_input_tokens:
            series.add_cached(response.cached_input_tokens)
        if response.reasoning_tokens:
            series.add_reasoning(response.reasoning_tokens)
        certainty = response.cost_certainty
        if certainty:
            series.add_cost(certainty, response.cost_incurred)

    def _add_end(self, provider: str, model: str, outcome: str, code: str) -> None:
        key = (provider, model, outcome, code)
        add = self._ended.get(key)
        if add is None:
            add = self._ended[key] = self._calls.labels(*key).inc
        add(1)

    def _series(self, provider_id: str, model_id: str, answered: bool) -> ModelSeries:
        """The series of a model that has none of its own yet."""
        pair = (provider_id, model_id)
        if not answered and self._known is not None:
            answered = self._known(provider_id, model_id)
        with self._lock:
            series = self._models.get(pair)
            if series is not None:
                return series
            if answered and len(self._models) < self._max:
                series = ModelSeries(self._families, name_of(provider_id), name_of(model_id))
                self._models[pair] = series
                return series
            # Something was sent, so the provider is one of those that an operator registered.
            series = self._others.get(provider_id)
            if series is None:
                series = ModelSeries(self._families, name_of(provider_id), _OTHER)
                self._others[provider_id] = series
            return series

    def _bounded_code(self, code: str) -> str:
        """``code``, or ``other`` when a provider of somebody's own makes up too many."""
        if code in self._codes:
            return code
        with self._lock:
            if len(self._codes) < self._max and name_of(code) == code:
                self._codes.add(code)
                return code
        return _OTHER

    # -- what others tell --------------------------------------------------------------

    def began(self) -> None:
        """An HTTP request came in."""
        self._in_progress.inc()

    def ended(self) -> None:
        """An HTTP request was answered, or its client is gone."""
        self._in_progress.dec()

    def refused_key(self, count: int = 1) -> None:
        """So many HTTP requests had no valid key."""
        self._refused_keys.inc(count)

    def set_breaker_states(self, states: Mapping[tuple[str, str], CircuitState]) -> None:
        """Show these circuit breakers, by provider and model, instead of those shown before.

        Models without a label of their own share one series, which shows the worst of them.
        """
        shown: dict[_Pair, int] = {}
        for pair, state in states.items():
            series = self._models.get(pair) or self._series(*pair, answered=False)
            label = (series.provider, series.model)
            shown[label] = max(shown.get(label, 0), _STATES[state])
        with self._lock:
            for gone in self._shown_breakers - shown.keys():
                self._breaker_state.labels(*gone).set(0)
            self._shown_breakers |= shown.keys()
        for label, number in shown.items():
            self._breaker_state.labels(*label).set(number)

    def watch(
        self,
        *,
        breakers: Callable[[], Mapping[tuple[str, str], CircuitBreaker]] | None = None,
        in_flight_calls: Callable[[], int] | None = None,
        ledger_entries: Callable[[], int] | None = None,
    ) -> None:
        """Ask for these when somebody reads the metrics.

        Args:
            breakers: the root's circuit breakers, by provider and model. Where several
                processes are seen as one, each has to call :meth:`refresh` now and then.
            in_flight_calls: calls that are out, of all processes.
            ledger_entries: entries of the ledger.
        """
        if breakers is not None:
            self._breakers = breakers
        if in_flight_calls is not None:
            self._at_scrape.add(
                "remit_in_flight_calls", "Calls on record that have not ended.", in_flight_calls
            )
        if ledger_entries is not None:
            self._at_scrape.add("remit_ledger_entries", "Entries of the ledger.", ledger_entries)

    def refresh(self) -> None:
        """Show the watched circuit breakers as they stand now."""
        if self._breakers is not None:
            self.set_breaker_states(
                {pair: breaker.state for pair, breaker in self._breakers().items()}
            )

    def worker_ended(self, pid: int) -> None:
        """Forget what the process ``pid``, now dead, had in progress; what it counted stays.

        :meth:`render` finds dead processes of this host by itself; this is for who knows sooner.
        """
        if self._several:
            forget(pid)

    # -- reading -----------------------------------------------------------------------

    def render(self) -> tuple[bytes, str]:
        """All metrics in Prometheus' text form, and its content type.

        Asks what is watched and may read the database: not for the event loop.
        """
        self.refresh()
        if not self._several:
            return generate_latest(self._registry), _CONTENT_TYPE
        for pid in dead_processes(Path(os.environ[VARIABLE])):
            forget(pid)
        registry = CollectorRegistry()
        registry.register(self._at_scrape)
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry), _CONTENT_TYPE


class _Registry(CollectorRegistry):
    """Without the library's ``_created`` series, which double what is scraped."""

    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric


class _AtScrape(Collector):
    """Numbers that are asked for when somebody reads; one that cannot be told is left out."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[str, Callable[[], int]]] = {}

    def add(self, name: str, meaning: str, ask: Callable[[], int]) -> None:
        self._asked[name] = (meaning, ask)

    def collect(self) -> Iterator[Metric]:
        for name, (meaning, ask) in self._asked.items():
            try:
                value = ask()
            except Exception as error:  # noqa: BLE001 - the other metrics are needed all the more
                _log.warning("%s could not be told: %s", name, type(error).__name__)
                continue
            yield GaugeMetricFamily(name, meaning, value)

    def describe(self) -> Iterator[Metric]:
        """Nothing yet: to register must not ask."""
        return iter(())
