"""Prometheus metrics of calls (names after prometheus.io/docs/practices/naming)."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import time
from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.values import ValueClass

from remit.gateway import CallReport, CircuitBreaker, CircuitState
from remit.kernel.errors import ConfigError
from remit.kernel.exchange import RouteOutcome
from remit.server.telemetry.logs import name_of

_log = logging.getLogger("remit.telemetry")

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
_OTHER = "other"
_MODEL = ("provider", "model")
_TOKEN_TYPES = ("input", "output", "cached_input", "reasoning")
_STATES = {CircuitState.CLOSED: 0, CircuitState.HALF_OPEN: 1, CircuitState.OPEN: 2}
# Dashboards rely on these buckets, as on the names.
_DURATIONS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600)
_FIRST_TOKENS_S = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 20, 40, 60)

_WORDS = ("", "success")
_MAX_DURATIONS = 10_000  # Durations of calls that are stored between two flushes.

_Pair = tuple[str, str]


class CallMetrics:
    """Counters of ended calls; an observer of :attr:`LLMGateway.observers`.

    Counts appear after the next :meth:`flush`; :meth:`render` flushes first. :meth:`watch` names
    the sources of further numbers, and :meth:`of_tenant` makes an observer that counts by tenant.
    All methods may be called from any thread.

    Clients choose model names, so the number of labels is limited. A model gets a label of its own
    after it has answered, or if ``known`` confirms it, until there are ``max_models``. Other calls
    that were sent have their provider's label and the model ``other``. Calls that were refused
    before anything was sent have ``other`` for both.

    Several processes of one host count together if ``PROMETHEUS_MULTIPROC_DIR`` named a directory
    before this module was imported. Each process then has a limit of its own.

    Args:
        max_models: largest number of labelled pairs of provider and model, of error codes, and of
            tenants.
        known: returns True if a provider has a model, for calls that failed; for example, if it has
            a price.

    Attributes:
        shared: True if several processes count together.
        in_progress: HTTP requests that are being answered; the server sets it.
        refused_key: called by the server for each HTTP request without a valid key.

    Raises:
        ConfigError: ``PROMETHEUS_MULTIPROC_DIR`` was set too late, or names no directory.
    """

    def __init__(
        self, *, max_models: int = 200, known: Callable[[str, str], bool] | None = None
    ) -> None:
        self.shared = _is_multiprocess()
        self._max = max_models
        self._known = known
        self._lock = threading.Lock()
        self._sums: dict[tuple[_Pair, str, str, str], _Sums] = {}
        self._models: dict[_Pair, _Pair] = {}
        self._codes: set[str] = set()
        self._breakers: Callable[[], Mapping[_Pair, CircuitBreaker]] = dict
        self._shown_breakers: set[_Pair] = set()
        self._registry = registry = _Registry()

        # Label lookups cost more than counting, so they are cached.
        def labelled(kind: Any, name: str, meaning: str, *labels: str, **more: Any) -> Any:
            metric = kind(name, meaning, (*_MODEL, *labels), registry=registry, **more)
            return functools.cache(metric.labels)

        self._calls = labelled(
            Counter, "remit_calls_total", "Number of completed calls.", "outcome", "error_code"
        )
        self._duration = labelled(
            Histogram, "remit_call_duration_seconds",
            "Time from the arrival of a call to its end, retries included.", buckets=_DURATIONS_S,
        )  # fmt: skip
        self._first_token = labelled(
            Histogram, "remit_time_to_first_token_seconds",
            "Time from sending to the first chunk of a stream.", buckets=_FIRST_TOKENS_S,
        )  # fmt: skip
        self._tokens = labelled(
            Counter, "remit_tokens_total",
            "Tokens of the calls' last attempts; cached_input is a part of input, reasoning of "
            "output.", "type",
        )  # fmt: skip
        self._cost = labelled(
            Counter, "remit_cost_usd_total", "Cost of the calls' last attempts in US dollars.",
            "certainty",
        )  # fmt: skip
        self._unpriced = labelled(
            Counter, "remit_unpriced_calls_total", "Number of calls without a known cost."
        )
        self._attempts = Counter(
            "remit_attempts_total", "Number of requests to providers, with retries and fallbacks.",
            registry=registry,
        )  # fmt: skip
        self._passed_over = labelled(
            Counter, "remit_fallbacks_total",
            "Number of fallbacks to this model, by reason.", "error_code",
        )  # fmt: skip
        self._rejections = Counter(
            "remit_rejections_total", "Number of calls refused before anything was sent.",
            ("code",), registry=registry,
        )  # fmt: skip
        self._in_progress = Gauge(
            "remit_requests_in_progress", "Number of HTTP requests in progress.",
            registry=registry, multiprocess_mode="livesum",
        )  # fmt: skip
        self._refused_keys = Counter(
            "remit_refused_keys_total",
            "Number of HTTP requests without a valid key.",
            registry=registry,
        )
        self._breaker_state = Gauge(
            "remit_breaker_state",
            "State of the circuit breaker, shared by all processes: 0 closed, 1 half open, 2 open.",
            _MODEL, registry=registry, multiprocess_mode="livemax",
        )  # fmt: skip
        self._tenants: set[str] = set()
        self._of_tenants: tuple[Counter, Counter, Counter] | None = None
        self.in_progress = 0
        self.refused_key = self._refused_keys.inc

    def __call__(self, report: CallReport) -> None:
        """Count an ended call, its attempts, tokens, cost and duration.

        The call is added to sums in memory, which are shown after the next :meth:`flush`; every
        10,000 calls with the same labels are flushed at once. Of a refused or replayed call only
        the call itself is counted.

        Args:
            report: the ended call.
        """
        response = report.response
        outcome = response.outcome
        code = response.error_code or ""
        if code:
            code = self._bounded_code(code)
        if outcome is RouteOutcome.REJECTED:
            model, word = (_OTHER, _OTHER), "rejected"
        else:
            pair = (response.provider_id, response.model_id)
            model = self._models.get(pair) or self._labels_of(
                *pair, outcome is RouteOutcome.SUCCESS
            )
            # Of what is replayed nothing was sent, used or paid.
            word = "replayed" if response.replayed else _WORDS[outcome is RouteOutcome.SUCCESS]
            word = word or outcome.value
        key = (model, word, code, response.cost_certainty)
        seconds = max(0, time.time_ns() - report.started_ns) / 1e9
        with self._lock:
            sums = self._sums.get(key)
            if sums is None:
                sums = self._sums[key] = _Sums()
            sums.calls += 1
            sums.attempts += report.attempts
            sums.input += response.input_tokens
            sums.output += response.output_tokens
            sums.cached_input += response.cached_input_tokens
            sums.reasoning += response.reasoning_tokens
            sums.cost += response.cost_incurred
            sums.seconds.append(seconds)
            if report.first_after_ms is not None:
                sums.first_seconds.append(report.first_after_ms / 1000)
            if response.fallback_from:
                sums.passed_over += [why for _, why in response.fallback_from]
            full = len(sums.seconds) >= _MAX_DURATIONS
        if full:
            self.flush()

    def of_tenant(self, name: str) -> Callable[[CallReport], None]:
        """Return an observer for a tenant's gateway that counts the tenant's calls and their cost.

        The first ``max_models`` tenants get a label of their own; all further ones share
        ``_other``. A replayed or refused call counts as a call, without tokens and cost. The series
        of tenants exist from the first call of this method on, and are counted without a flush.

        Args:
            name: name of the tenant.
        """
        with self._lock:
            if self._of_tenants is None:  # A host without tenants shows none of these series.
                self._of_tenants = _tenant_counters(self._registry)
            if name not in self._tenants and len(self._tenants) >= self._max:
                name = "_other"  # No tenant can have this name.
            self._tenants.add(name)
        calls, tokens, total = self._of_tenants
        sums = {kind: tokens.labels(name, kind) for kind in ("input", "output")}
        cost = total.labels(name)

        def count(report: CallReport) -> None:
            response = report.response
            outcome = "replayed" if response.replayed else response.outcome.value
            calls.labels(name, outcome.lower()).inc()
            if response.replayed or response.outcome is RouteOutcome.REJECTED:
                return  # Nothing was sent to a provider.
            sums["input"].inc(response.input_tokens)
            sums["output"].inc(response.output_tokens)
            cost.inc(response.cost_incurred)

        return count

    def flush(self) -> None:
        """Add the sums since the last flush to the metrics library, whose own counting is slow.

        The gauge of requests in progress is set too. Refused and replayed calls are counted without
        attempts, tokens, cost and duration. If several processes count together, each must flush
        periodically. Any thread may call this.
        """
        with self._lock:
            counted, self._sums = self._sums, {}
        self._in_progress.set(self.in_progress)
        for (model, word, code, certainty), sums in counted.items():
            self._calls(*model, word, code).inc(sums.calls)
            if word == "rejected":
                self._rejections.labels(code).inc(sums.calls)
            if word in ("rejected", "replayed"):
                continue
            for why in sums.passed_over:
                self._passed_over(*model, self._bounded_code(why)).inc()
            self._attempts.inc(sums.attempts)
            for kind in _TOKEN_TYPES:
                self._tokens(*model, kind).inc(getattr(sums, kind))
            _observe(self._duration(*model), sums.seconds)
            if sums.first_seconds:
                _observe(self._first_token(*model), sums.first_seconds)
            if certainty == "unpriced":
                self._unpriced(*model).inc(sums.calls)
            elif certainty:
                self._cost(*model, certainty).inc(sums.cost)

    def watch(
        self,
        *,
        breakers: Callable[[], Mapping[tuple[str, str], CircuitBreaker]] | None = None,
        in_flight_calls: Callable[[], int] | None = None,
        ledger_entries: Callable[[], int] | None = None,
    ) -> None:
        """Set the functions that are called whenever the metrics are read.

        A function that is left out stays as it was. The functions are called in the thread of the
        reader. An error of ``in_flight_calls`` or ``ledger_entries`` is logged and leaves out the
        number; an error of ``breakers`` is raised by :meth:`refresh`.

        Args:
            breakers: returns the root's circuit breakers, keyed by (provider, model). If several
                processes count together, each must call :meth:`refresh` periodically.
            in_flight_calls: returns the number of calls in flight, of all processes.
            ledger_entries: returns the number of entries of the ledger.
        """
        if breakers is not None:
            self._breakers = breakers
        if in_flight_calls is not None:
            self._registry.readers["remit_in_flight_calls"] = (
                "Number of recorded calls that have not ended.", in_flight_calls,
            )  # fmt: skip
        if ledger_entries is not None:
            entries = ("Number of ledger entries.", ledger_entries)
            self._registry.readers["remit_ledger_entries"] = entries

    def refresh(self) -> None:
        """Flush, and set the gauges to the current states of the watched circuit breakers.

        If several breakers share a label, the worst state is shown. A label without a breaker now
        is set to closed. An error of ``breakers`` is raised.
        """
        self.flush()
        shown: dict[_Pair, int] = {}
        for pair, breaker in self._breakers().items():
            label = self._models.get(pair) or self._labels_of(*pair, answered=False)
            shown[label] = max(shown.get(label, 0), _STATES[breaker.state])
        with self._lock:
            for gone in self._shown_breakers - shown.keys():
                self._breaker_state.labels(*gone).set(0)
            self._shown_breakers |= shown.keys()
        for label, number in shown.items():
            self._breaker_state.labels(*label).set(number)

    def render(self, tenant: str = "") -> tuple[bytes, str]:
        """Return all metrics in Prometheus' text format, and its content type.

        Do not call this on the event loop: reading the watched numbers may block. Sums are flushed
        first. An error of ``breakers`` is raised. If several processes count together, files of
        dead processes' gauges are deleted.

        Args:
            tenant: show only the series with this label, if several processes count together;
                empty for all.
        """
        self.refresh()
        if not self.shared:
            return generate_latest(self._registry), _CONTENT_TYPE
        _forget_dead_processes(Path(os.environ[_MULTIPROCESS]))
        registry = _Registry(tenant)
        if not tenant:
            registry.readers = self._registry.readers
        registry.register(MultiProcessCollector(None))  # type: ignore[no-untyped-call]
        return generate_latest(registry), _CONTENT_TYPE

    def _labels_of(self, provider_id: str, model_id: str, answered: bool) -> _Pair:
        """Return the labels of a model without any of its own; give it some if allowed."""
        pair = (provider_id, model_id)
        if not answered and self._known is not None:
            answered = self._known(provider_id, model_id)
        with self._lock:
            if pair not in self._models and answered and len(self._models) < self._max:
                self._models[pair] = (name_of(provider_id), name_of(model_id))
            # A request was sent, so an operator has configured the provider.
            labels = self._models.get(pair, (name_of(provider_id), _OTHER))
        for kind in _TOKEN_TYPES:
            self._tokens(*labels, kind)  # Shows 0 before the first token.
        return labels

    def _bounded_code(self, code: str) -> str:
        """Return ``code``, or ``other`` if there are too many codes already."""
        if not code or code in self._codes:
            return code
        with self._lock:
            if len(self._codes) < self._max and name_of(code) == code:
                self._codes.add(code)
                return code
        return _OTHER


class _Sums:
    """The sums over calls with the same labels since the last flush."""

    __slots__ = (
        "attempts", "cached_input", "calls", "cost", "first_seconds", "input", "output",
        "passed_over", "reasoning", "seconds",
    )  # fmt: skip

    def __init__(self) -> None:
        self.calls = self.attempts = 0
        self.input = self.output = self.cached_input = self.reasoning = 0
        self.cost = 0.0
        self.seconds: list[float] = []
        self.first_seconds: list[float] = []
        self.passed_over: list[str] = []


def _tenant_counters(registry: CollectorRegistry) -> tuple[Counter, Counter, Counter]:
    """Return the counters of calls, tokens and cost with the label ``tenant``."""
    calls = Counter(
        "remit_tenant_calls_total", "Number of completed calls of a tenant.", ("tenant", "outcome"),
        registry=registry,
    )  # fmt: skip
    tokens = Counter(
        "remit_tenant_tokens_total", "Tokens of the last attempts of a tenant's calls.",
        ("tenant", "type"), registry=registry,
    )  # fmt: skip
    cost = Counter(
        "remit_tenant_cost_usd_total",
        "Cost of the last attempts of a tenant's calls in US dollars.", ("tenant",),
        registry=registry,
    )  # fmt: skip
    return calls, tokens, cost


def _observe(histogram: Any, values: list[float]) -> None:
    """Add all values to a histogram together."""
    bounds = histogram._upper_bounds
    for at, count in Counts(bisect_left(bounds, value) for value in values).items():
        histogram._buckets[at].inc(count)
    histogram._sum.inc(sum(values))


class _Registry(CollectorRegistry):
    """A registry that shows a part of its series.

    The library's ``_created`` series, which double each scrape, are never shown.

    Args:
        tenant: show only the series of this tenant; empty for all series.

    Attributes:
        readers: meaning and reader of each number that is read at a scrape, keyed by name. A
            number that cannot be read is logged and left out.
    """

    def __init__(self, tenant: str = "") -> None:
        super().__init__()
        self._tenant = tenant
        self.readers: dict[str, tuple[str, Callable[[], int]]] = {}

    def collect(self) -> Iterator[Metric]:
        for name, (meaning, read) in self.readers.items():
            try:
                yield GaugeMetricFamily(name, meaning, read())
            except Exception as error:  # noqa: BLE001 - the other metrics are still shown
                _log.warning("%s cannot be read: %s", name, type(error).__name__)
        for metric in super().collect():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            if self._tenant:
                of = self._tenant
                metric.samples = [s for s in metric.samples if s.labels.get("tenant") == of]
                if not (metric.samples and metric.name.startswith("remit_tenant_")):
                    continue
            yield metric


def _is_multiprocess() -> bool:
    """Return True if the library writes to files that several processes share.

    Raises:
        ConfigError: ``PROMETHEUS_MULTIPROC_DIR`` was set too late, or names no directory.
    """
    shared = bool(ValueClass._multiprocess)
    directory = os.environ.get(_MULTIPROCESS, "")
    if directory and not shared:
        raise ConfigError(
            f"{_MULTIPROCESS} was set after the metrics library had been loaded.",
            next_step="Set the variable before Python starts, or do not set it.",
        )
    if shared and not os.path.isdir(directory):
        raise ConfigError(
            f"{_MULTIPROCESS} does not name a directory.",
            next_step="Create the directory, empty, before the processes start.",
        )
    return shared


def _forget_dead_processes(directory: Path) -> None:
    """Delete the gauges of processes that have ended; their counters stay."""
    for path in directory.glob("gauge_live*_*.db"):
        pid = path.stem.rpartition("_")[2]
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            # Another process may have deleted the file.
            with contextlib.suppress(FileNotFoundError):
                mark_process_dead(int(pid))  # type: ignore[no-untyped-call]
        except (PermissionError, ValueError):  # Another user's process, or no process id.
            continue
