"""OpenTelemetry spans of the calls, by the ``gen_ai.*`` names of its GenAI conventions.

OpenTelemetry is the extra ``otel``; without it nothing here is traced, and nothing fails.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from remit._version import __version__
from remit.gateway import CallReport
from remit.kernel.errors import ConfigError
from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome
from remit.server.telemetry.logs import name_of

_installed = find_spec("opentelemetry") is not None

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
    from opentelemetry.trace import TracerProvider


_log = logging.getLogger("remit.telemetry")

_INSTALL = "Install it with: pip install 'remit[otel]'."
_TRACES_PATH = "/v1/traces"  # OTLP/HTTP's own path, where an endpoint names none
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"

_parent: ContextVar[Any] = ContextVar("remit_trace_parent", default=None)


def context_from_headers(traceparent: str | None, tracestate: str | None = None) -> object | None:
    """The caller's trace, from its W3C headers, for :func:`with_parent`.

    ``None`` without headers, with invalid headers, and without OpenTelemetry.
    """
    if not traceparent or not _installed:
        return None
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {"traceparent": traceparent}
    if tracestate:
        carrier["tracestate"] = tracestate
    found = TraceContextTextMapPropagator().extract(carrier, Context())
    return found if trace.get_current_span(found).get_span_context().is_valid else None


@contextmanager
def with_parent(context: object | None) -> Iterator[None]:
    """Make calls routed in the block part of that trace; ``None`` changes nothing.

    Args:
        context: what :func:`context_from_headers` gave, or any OpenTelemetry context.
    """
    if context is None:
        yield
        return
    token = _parent.set(context)
    try:
        yield
    finally:
        _parent.reset(token)


def set_up_tracing(endpoint: str = "", service_name: str = "") -> SdkTracerProvider | None:
    """A tracer provider that sends spans by OTLP/HTTP, in batches, from a thread.

    It is Remit's own, not the process's global one. Each process needs one, made after a fork;
    its ``shutdown()`` sends what is still queued. What is not given comes from OpenTelemetry's
    standard ``OTEL_…`` variables: endpoint, headers, TLS, compression, timeouts, service name,
    attributes of the resource, sampling, batches and limits.

    Args:
        endpoint: URL; ``/v1/traces`` is added when it has no path. Empty: the variables decide.
        service_name: ``service.name`` of the spans. Empty: that of the variables, else ``remit``.

    Returns:
        ``None`` where no spans are asked for, ``OTEL_SDK_DISABLED`` is true, or the variables
        ask for what Remit has not (then a warning says so).

    Raises:
        ConfigError: the endpoint is no HTTP URL, or the extra ``otel`` is not installed.
    """
    if _variable("OTEL_SDK_DISABLED") == "true" or not (endpoint or _asked_by_variables()):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        if not endpoint:  # variables are often set for a whole machine
            _log.warning("calls are not traced: OpenTelemetry is not installed. %s", _INSTALL)
            return None
        raise ConfigError(
            "Traces are asked for, and OpenTelemetry is not installed.", next_step=_INSTALL
        ) from error
    attributes = {"service.version": __version__}
    resource = Resource.create(attributes)
    named = str(resource.attributes.get("service.name", ""))
    if service_name or named.startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": service_name or "remit"}))
    exporter = OTLPSpanExporter(endpoint=_url(endpoint) if endpoint else None)
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _asked_by_variables() -> bool:
    """Whether the ``OTEL_…`` variables alone ask for spans that can be sent from here."""
    exporters = {name.strip() for name in _variable("OTEL_TRACES_EXPORTER").split(",")} - {""}
    if not exporters and not any(_variable(name) for name in _ENDPOINTS):
        return False
    if exporters and "otlp" not in exporters:
        if exporters != {"none"}:
            _log.warning("calls are not traced: OTEL_TRACES_EXPORTER has no 'otlp', the only one")
        return False
    protocol = next((value for name in _PROTOCOLS if (value := _variable(name))), _PROTOCOL)
    if protocol != _PROTOCOL:
        _log.warning(
            "calls are not traced: OTEL_EXPORTER_OTLP_PROTOCOL is not %s, the only one. Set it, "
            "and the endpoint's port for HTTP (4318).", _PROTOCOL,
        )  # fmt: skip
        return False
    return True


def _variable(name: str) -> str:
    return os.environ.get(name, "").strip().lower()


def _url(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(
            "The endpoint for traces is not an http or https URL.",
            next_step="Give it as http://host:4318.",
        )
    return parts._replace(path=_TRACES_PATH).geturl() if parts.path in ("", "/") else endpoint


def tracing_observer(
    tracer_provider: TracerProvider | None = None, *, capture_content: bool = False
) -> Callable[[CallReport], None] | None:
    """An observer that makes one span of each call, when it has ended.

    Args:
        tracer_provider: where spans go; the process's global provider when left out.
        capture_content: put prompts, answers and the texts of errors on the spans. No erasure
            reaches what has left Remit.

    Returns:
        ``None``, and a warning in the log, without OpenTelemetry.
    """
    if not _installed:
        _log.warning("calls are not traced: OpenTelemetry is not installed. %s", _INSTALL)
        return None
    from opentelemetry import trace

    tracer = trace.get_tracer("remit", __version__, tracer_provider)

    def observe(report: CallReport) -> None:
        request, response = report.request, report.response
        model = name_of(request.model_id) or name_of(response.model_id)
        span = tracer.start_span(
            f"chat {model}".rstrip(),
            context=_parent.get(),
            kind=trace.SpanKind.CLIENT,
            attributes=_attributes(report, model),
            start_time=report.started_ns,
        )
        if span.is_recording():
            if response.outcome is not RouteOutcome.SUCCESS:
                # The text of an error may quote what was sent.
                about = _plain(response.error_message or "") if capture_content else ""
                status = trace.Status(trace.StatusCode.ERROR, about or _error_type(response))
                span.set_status(status)
            if capture_content:
                span.set_attribute("gen_ai.input.messages", _json(_input(request)))
                if response.content or response.content_blocks:
                    span.set_attribute("gen_ai.output.messages", _json(_output(response)))
        span.end(max(time.time_ns(), report.started_ns))

    return observe


def _attributes(report: CallReport, model: str) -> dict[str, Any]:
    request, response = report.request, report.response
    found: dict[str, Any] = {"gen_ai.operation.name": "chat", "remit.attempts": report.attempts}
    for key, text in (
        ("gen_ai.provider.name", response.provider_id),
        ("gen_ai.request.model", model),
        ("gen_ai.conversation.id", request.session_id),
        ("gen_ai.agent.id", request.agent_id),
        ("gen_ai.agent.name", request.agent_id),
        ("remit.work_order_id", request.work_order_id),
        ("remit.contract_id", request.contract_id),
        ("remit.key_id", report.identity.key_id if report.identity else ""),
        ("remit.dispatch_entry_id", response.dispatch_entry_id),
        ("remit.exchange_entry_id", response.exchange_entry_id),
        ("remit.decision_entry_id", response.decision_entry_id),
        ("remit.cost_certainty", response.cost_certainty),
    ):
        if text:
            found[key] = name_of(text)
    if isinstance(request.max_tokens, int):
        found["gen_ai.request.max_tokens"] = request.max_tokens
    if isinstance(request.temperature, (int, float)):
        found["gen_ai.request.temperature"] = float(request.temperature)
    if response.outcome is RouteOutcome.SUCCESS:
        found["gen_ai.response.model"] = name_of(response.model_id)
        found["gen_ai.response.finish_reasons"] = (name_of(response.finish_reason),)
    else:
        found["error.type"] = _error_type(response)
    if response.replayed:  # its usage must not be added up again
        found["remit.replayed"] = True
    elif response.outcome is not RouteOutcome.REJECTED:
        found["gen_ai.usage.input_tokens"] = response.input_tokens
        found["gen_ai.usage.output_tokens"] = response.output_tokens
        if response.cost_certainty not in ("", "unpriced"):
            found["remit.cost_usd"] = response.cost_incurred
    return found


def _error_type(response: PromptResponse) -> str:
    return name_of(response.error_code) or "_OTHER"


_FINISHED = {"tool_use": "tool_call"}  # the conventions' word for it


def _input(request: PromptRequest) -> list[dict[str, Any]]:
    messages = request.messages or [{"role": "user", "content": request.prompt}]
    return [
        {"role": message.get("role"), "parts": _parts(message.get("content"))}
        for message in messages
        if isinstance(message, Mapping)
    ]


def _output(response: PromptResponse) -> list[dict[str, Any]]:
    failed = response.outcome is not RouteOutcome.SUCCESS
    reason = "error" if failed else _FINISHED.get(response.finish_reason, response.finish_reason)
    parts = _parts(response.content_blocks or response.content)
    return [{"role": "assistant", "parts": parts, "finish_reason": reason}]


def _parts(content: Any) -> list[dict[str, Any]]:
    """Neutral content as the conventions' parts of a message."""
    if isinstance(content, (list, tuple)):
        return [_part(block) for block in content if isinstance(block, Mapping)]
    return [{"type": "text", "content": content}]


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "content": block.get("text")}
    if kind == "thinking":
        return {"type": "reasoning", "content": block.get("thinking")}
    if kind == "tool_use":
        return {"type": "tool_call", "id": block.get("id"), "name": block.get("name"),
                "arguments": block.get("input")}  # fmt: skip
    if kind == "tool_result":
        return {"type": "tool_call_response", "id": block.get("tool_use_id"),
                "response": block.get("content")}  # fmt: skip
    if kind == "image" and isinstance(source := block.get("source"), Mapping):
        if source.get("type") == "url":
            return {"type": "uri", "modality": "image", "uri": source.get("url")}
        return {"type": "blob", "modality": "image", "mime_type": source.get("media_type"),
                "content": source.get("data")}  # fmt: skip
    return dict(block)


def _json(value: Any) -> str:
    return _plain(json.dumps(value, ensure_ascii=False, default=str))


def _plain(text: str) -> str:
    """Without lone surrogates: one would make the exporter drop the whole batch."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
