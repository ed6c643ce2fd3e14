"""OpenTelemetry spans of calls, named by the GenAI conventions (``gen_ai.*``).

OpenTelemetry is the extra ``otel``. Without it nothing is traced, and no function fails.
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
from remit.kernel.errors import ConfigError, excerpt
from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome
from remit.kernel.secrets import redact_secrets
from remit.server.telemetry.logs import name_of

_installed = find_spec("opentelemetry") is not None

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
    from opentelemetry.trace import TracerProvider


_log = logging.getLogger("remit.telemetry")

INSTALL = "Run `pip install 'remit[otel]'`."
_TRACES_PATH = "/v1/traces"  # The path of OTLP/HTTP if an endpoint has none.
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"

_parent: ContextVar[Any] = ContextVar("remit_trace_parent", default=None)


def context_from_headers(traceparent: str | None, tracestate: str | None = None) -> object | None:
    """Return the caller's trace context from its W3C headers, for :func:`with_parent`.

    Args:
        traceparent: value of the header; ``None`` without it.
        tracestate: value of the header; ``None`` without it.

    Returns:
        ``None`` without ``traceparent``, for invalid headers, and without OpenTelemetry.
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
    """Make calls routed in the block children of a trace.

    The block's tasks and threads see the parent if they copy the context variables.

    Args:
        context: a result of :func:`context_from_headers`, or any OpenTelemetry context; ``None``
            changes nothing.
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
    """Return a tracer provider that sends spans by OTLP/HTTP in batches, from a thread of its own.

    The provider is not the global one of the process. Each process needs its own, made after a
    fork; ``shutdown()`` sends the queued spans. OpenTelemetry's ``OTEL_…`` variables set what the
    arguments leave out: endpoint, headers, TLS, compression, timeouts, service name, resource,
    sampling, batches and limits. No span is sent, and the collector is not contacted, before the
    first batch.

    Args:
        endpoint: URL of the collector; ``/v1/traces`` is added if it has no path. Empty: the
            variables decide.
        service_name: ``service.name`` of the spans. Empty: from the variables, else ``remit``.

    Returns:
        ``None`` if nothing asks for spans, ``OTEL_SDK_DISABLED`` is true, or only the variables ask
            for spans and the extra ``otel`` is missing or does not support them (logged as a
            warning).

    Raises:
        ConfigError: ``endpoint`` is given and is not an HTTP URL, or the extra ``otel`` is not
            installed.
    """
    if _variable("OTEL_SDK_DISABLED") == "true" or not (endpoint or _asked_by_variables()):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        if not endpoint:  # Variables are often set for a whole machine.
            _log.warning("calls are not traced: OpenTelemetry is not installed. %s", INSTALL)
            return None
        raise ConfigError(
            "Tracing is enabled, but OpenTelemetry is not installed.", next_step=INSTALL
        ) from error
    url = signal_url(endpoint, _TRACES_PATH) if endpoint else None
    exporter = OTLPSpanExporter(endpoint=url)
    provider = TracerProvider(resource=made_resource(service_name))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _asked_by_variables() -> bool:
    """Return True if the ``OTEL_…`` variables alone ask for spans that can be sent.

    Logs a warning if they ask for an unsupported exporter or protocol.
    """
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


def made_resource(service_name: str) -> Resource:
    """Return the resource of spans and logs, with the attributes of the ``OTEL_…`` variables.

    OpenTelemetry must be installed. The resource also has the version of Remit.

    Args:
        service_name: ``service.name``. Empty: from the variables, else ``remit``.
    """
    from opentelemetry.sdk.resources import Resource

    resource = Resource.create({"service.version": __version__})
    named = str(resource.attributes.get("service.name", ""))
    if service_name or named.startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": service_name or "remit"}))
    return resource


def signal_url(endpoint: str, path: str) -> str:
    """Return the URL of an OTLP endpoint, with ``path`` if the endpoint has none.

    Args:
        endpoint: URL of the collector.
        path: path of the signal, such as ``/v1/logs``.

    Raises:
        ConfigError: the endpoint is not an HTTP URL.
    """
    try:
        parts = urlsplit(endpoint)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # brackets without an IPv6 address, or a port that is no number
        is_valid = False
    if not is_valid:
        raise ConfigError(
            f"The OTLP endpoint {excerpt(redact_secrets(endpoint), 60)!r} is not an http or https "
            "URL. OTLP over gRPC is not supported.",
            next_step="Use a URL such as http://host:4318.",
        )
    return parts._replace(path=path).geturl() if parts.path in ("", "/") else endpoint


def tracing_observer(
    tracer_provider: TracerProvider | None = None, *, capture_content: bool = False
) -> Callable[[CallReport], None] | None:
    """Return an observer that makes a span for each ended call.

    A span has the ids of the call and its entries, the model, the usage, the cost and the kind of
    error. It begins when the call arrived. The names follow the conventions ``gen_ai.*``, and
    Remit's own begin with ``remit.``.

    Args:
        tracer_provider: receives the spans; the process's global provider if left out.
        capture_content: True to put prompts, answers and error texts on the spans. Content that has
            left Remit cannot be erased.

    Returns:
        The function, for :attr:`LLMGateway.observers`; ``None`` without OpenTelemetry, with a
            warning in the log.
    """
    if not _installed:
        _log.warning("calls are not traced: OpenTelemetry is not installed. %s", INSTALL)
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
    if response.replayed:  # The usage was counted at the first answer.
        found["remit.replayed"] = True
    elif response.outcome is not RouteOutcome.REJECTED:
        found["gen_ai.usage.input_tokens"] = response.input_tokens
        found["gen_ai.usage.output_tokens"] = response.output_tokens
        if response.cost_certainty not in ("", "unpriced"):
            found["remit.cost_usd"] = response.cost_incurred
    return found


def _error_type(response: PromptResponse) -> str:
    return name_of(response.error_code) or "_OTHER"


_FINISHED = {"tool_use": "tool_call"}  # The name in the conventions.


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
    """Return neutral content as the message parts of the conventions."""
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
    """Return the text without lone surrogates, which would make the exporter drop a batch."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
