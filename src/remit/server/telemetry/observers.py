"""The observers of a runtime's calls: metrics, traces and the log."""

from __future__ import annotations

from typing import Any

from remit.runtime import Runtime
from remit.server.telemetry import CallLog, CallMetrics, set_up_tracing, tracing_observer


def call_metrics(runtime: Runtime) -> CallMetrics:
    """Return new metrics for a runtime's calls.

    A model that answered or has a price gets a label of its own, up to ``[telemetry] max_models``;
    others count as ``other`` of their provider. Nothing is observed yet (:func:`observe_calls`).

    Args:
        runtime: the open root.

    Raises:
        ConfigError: ``PROMETHEUS_MULTIPROC_DIR`` was set too late, or names no directory.
    """
    return CallMetrics(
        max_models=runtime.loaded.settings.telemetry.max_models,
        known=lambda provider, model: runtime.prices.find(provider, model) is not None,
    )


def watch_runtime(metrics: CallMetrics, runtime: Runtime) -> None:
    """Have metrics read the runtime's circuits, calls in flight and entries when they are shown.

    Args:
        metrics: the metrics.
        runtime: the open root.
    """
    metrics.watch(
        breakers=lambda: runtime.gateway.breakers,
        in_flight_calls=runtime.gateway.in_flight.count,
        ledger_entries=lambda: (runtime.ledger.head() or (-1,))[0] + 1,
    )


def observe_calls(runtime: Runtime, metrics: CallMetrics) -> Any:
    """Add observers to the gateway that count, trace and log calls.

    Calls are traced if the settings or OpenTelemetry's variables ask for spans, and logged if the
    log level is ``info`` or ``debug``.

    Args:
        runtime: the open root.
        metrics: the observer that counts.

    Returns:
        The tracer provider, which must be shut down; ``None`` without traces. If only the variables
        ask, and ``otel`` is missing or the protocol is not supported, a warning is logged.

    Raises:
        ConfigError: the setting ``otlp_endpoint`` is no HTTP URL, or is set and the extra ``otel``
            is missing. The metrics observe calls already then.
    """
    settings, observers = runtime.loaded.settings, runtime.gateway.observers
    observers.append(metrics)
    telemetry = settings.telemetry
    traces = set_up_tracing(telemetry.otlp_endpoint, telemetry.service_name)
    if traces is not None:
        observer = tracing_observer(traces, capture_content=telemetry.capture_content)
        if observer is not None:
            observers.append(observer)
    if settings.server.log_level in ("debug", "info"):
        observers.append(CallLog())
    return traces
