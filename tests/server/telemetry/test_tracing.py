"""Spans of real calls, as OpenTelemetry's own SDK gets them and sends them on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from remit.kernel.exchange import RouteOutcome
from remit.server.telemetry import (
    context_from_headers,
    set_up_tracing,
    tracing_observer,
    with_parent,
)
from tests.server.running import Served, serving
from tests.server.telemetry.calls import call_report, watched_gateway
from tests.server.telemetry.collector import Collector
from tests.support.requests import prompt_request
from tests.support.upstream import upstream
from tests.support.wire import Raw, completion, function_call

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class _Seen:
    """A provider of spans in memory, and an observer for it."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def observer(self, **options: Any) -> Any:
        observer = tracing_observer(self.provider, **options)
        assert observer is not None
        return observer

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())


@pytest.fixture
def seen() -> Iterator[_Seen]:
    kept = _Seen()
    yield kept
    kept.provider.shutdown()


def test_a_call_is_one_span_by_the_conventions(tmp_path: Path, seen: _Seen) -> None:
    before = time.time_ns()
    with watched_gateway(
        tmp_path, {**completion("Hello."), "model": "gpt-4o-mini-2024-07-18"}, seen.observer()
    ) as gateway:
        response = gateway.route(prompt_request(model_id="gpt-4o-mini", temperature=0.5))
    (span,) = seen.spans
    assert (span.name, span.kind) == ("chat gpt-4o-mini", SpanKind.CLIENT)
    assert span.status.status_code is StatusCode.UNSET
    assert span.parent is None
    assert span.start_time is not None
    assert span.end_time is not None
    assert before <= span.start_time < span.end_time <= time.time_ns()
    told = dict(span.attributes or {})
    assert told.pop("remit.cost_usd") == response.cost_incurred > 0
    assert told == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o-mini",
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.model": "gpt-4o-mini-2024-07-18",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 13,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.conversation.id": "SES-TESTTEST",
        "gen_ai.agent.id": "agent-1",
        "gen_ai.agent.name": "agent-1",
        "remit.attempts": 1,
        "remit.contract_id": "PRC-TEST-001",
        "remit.work_order_id": "WO-SES-TESTTEST-001",
        "remit.dispatch_entry_id": response.dispatch_entry_id,
        "remit.exchange_entry_id": response.exchange_entry_id,
        "remit.cost_certainty": "measured",
    }


def test_a_failure_is_an_error_that_quotes_nothing(tmp_path: Path, seen: _Seen) -> None:
    body = json.dumps({"error": {"message": "your prompt TOPSECRET is odd", "type": "x"}}).encode()
    with watched_gateway(tmp_path, Raw(body, status=400), seen.observer()) as gateway:
        response = gateway.route(prompt_request(prompt="TOPSECRET"))
        gateway.route(prompt_request(prompt=" ", model_id=None))
    assert response.outcome is RouteOutcome.ERROR
    failed, rejected = seen.spans
    assert failed.status.status_code is StatusCode.ERROR
    told, refused = dict(failed.attributes or {}), dict(rejected.attributes or {})
    assert told["error.type"] == response.error_code
    assert "gen_ai.response.finish_reasons" not in told
    assert "TOPSECRET" not in failed.to_json()
    assert (rejected.name, refused["error.type"]) == ("chat", "INVALID_INPUT")
    assert not [key for key in refused if key.startswith("gen_ai.usage")]


def test_content_only_when_asked_for(tmp_path: Path, seen: _Seen) -> None:
    answer = completion("Let me see.", [function_call("read_file", '{"path": "ä.txt"}')])
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [
            {"type": "text", "text": "What is in it?"},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        ]},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "c1", "name": "read_file", "input": {"path": "b"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "empty"},
        ]},
    ]  # fmt: skip
    with watched_gateway(
        tmp_path, answer, seen.observer(), seen.observer(capture_content=True)
    ) as gateway:
        gateway.route(prompt_request(messages=messages, prompt=""))
    without, with_it = seen.spans
    assert "brief" not in without.to_json()
    assert with_it.attributes is not None
    assert json.loads(str(with_it.attributes["gen_ai.input.messages"])) == [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {"role": "user", "parts": [
            {"type": "text", "content": "What is in it?"},
            {"type": "uri", "modality": "image", "uri": "https://example.com/a.png"},
        ]},
        {"role": "assistant", "parts": [
            {"type": "tool_call", "id": "c1", "name": "read_file", "arguments": {"path": "b"}},
        ]},
        {"role": "user", "parts": [
            {"type": "tool_call_response", "id": "c1", "response": "empty"},
        ]},
    ]  # fmt: skip
    assert json.loads(str(with_it.attributes["gen_ai.output.messages"])) == [
        {"role": "assistant", "finish_reason": "tool_call", "parts": [
            {"type": "text", "content": "Let me see."},
            {"type": "tool_call", "id": "call_1", "name": "read_file",
             "arguments": {"path": "ä.txt"}},
        ]},
    ]  # fmt: skip


async def test_the_callers_trace_goes_on_each_in_its_own(tmp_path: Path, seen: _Seen) -> None:
    traces = [f"{number:032x}" for number in range(1, 6)]
    with watched_gateway(tmp_path, completion("Hello."), seen.observer()) as gateway:

        async def call(trace: str) -> None:
            with with_parent(context_from_headers(f"00-{trace}-{SPAN}-01", "vendor=1")):
                await gateway.aroute(prompt_request(session_id=f"SES-{trace}"))

        await asyncio.gather(*map(call, traces))
        await gateway.aroute(prompt_request())
        await gateway.providers["openai"].aclose()  # type: ignore[union-attr]
    for span in seen.spans[:-1]:
        assert span.parent is not None
        assert span.attributes is not None
        trace = f"{span.parent.trace_id:032x}"
        assert span.attributes["gen_ai.conversation.id"] == f"SES-{trace}"
        assert f"{span.parent.span_id:016x}" == SPAN
        assert span.context is not None
        assert span.context.trace_id == span.parent.trace_id
        assert span.context.trace_state.get("vendor") == "1"
    assert {f"{span.parent.trace_id:032x}" for span in seen.spans[:-1] if span.parent} == {*traces}
    assert seen.spans[-1].parent is None


def test_a_program_that_traces_itself_is_the_parent_and_heeded(seen: _Seen) -> None:
    with seen.provider.get_tracer("mine").start_as_current_span("mine") as mine:
        seen.observer()(call_report())
    assert seen.spans[0].parent == mine.get_span_context()
    before = len(seen.spans)
    with with_parent(context_from_headers(f"00-{TRACE}-{SPAN}-00")):  # samples nothing
        seen.observer()(call_report())
    assert len(seen.spans) == before


ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@contextmanager
def traced(
    root: Path, collector: Collector, variables: Mapping[str, str], toml: str = ""
) -> Iterator[Served]:
    """A server whose variables name the collector as ``{url}``; ended, all spans have been sent."""
    environment = {name: value.replace("{url}", collector.url) for name, value in variables.items()}
    with (
        upstream() as provider,
        serving(
            root, provider.url, toml=toml.replace("{url}", collector.url), environment=environment
        ) as served,
    ):
        assert served.call("openai", "hi")[0] == 200
        yield served


def resource_of(collector: Collector) -> dict[str, str]:
    ((_, _, message),) = collector.got
    (spans,) = message.resource_spans
    return {each.key: each.value.string_value for each in spans.resource.attributes}


def test_the_variables_alone_turn_spans_on_and_name_the_service(tmp_path: Path) -> None:
    with Collector() as collector:
        with traced(tmp_path / "root", collector, {
            ENDPOINT: "{url}/collect/", "OTEL_SERVICE_NAME": "house-gateway",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=prod,service.version=9",
            "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=blue,authorization=Basic%20abc",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }):  # fmt: skip
            pass
        ((path, headers, _),) = collector.got
        resource = resource_of(collector)
    assert path == "/collect/v1/traces"
    assert (headers["x-tenant"], headers["authorization"]) == ("blue", "Basic abc")
    assert resource["service.name"] == "house-gateway"
    assert resource["deployment.environment.name"] == "prod"


def _sent(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str], *own: str) -> Collector:
    """Send a span under variables, with the endpoint and the name of a file, if it has them."""
    with Collector() as collector:
        for name, value in variables.items():
            monkeypatch.setenv(name, value.replace("{url}", collector.url))
        provider = set_up_tracing(*(one.replace("{url}", collector.url) for one in own))
        if provider is not None:
            observe = tracing_observer(provider)
            assert observe is not None
            observe(call_report())
            provider.shutdown()
    return collector


@pytest.mark.parametrize(
    "header",
    [None, "", "x", "00-" + "0" * 32 + f"-{SPAN}-01", f"00-{TRACE}-{SPAN}", "\ud800", "0" * 9999],
)
def test_headers_that_mean_nothing_are_nothing(header: str | None, seen: _Seen) -> None:
    assert context_from_headers(header, "x" * 9999) is None
    with with_parent(context_from_headers(header)):
        seen.observer()(call_report())
    assert seen.spans[0].parent is None


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_SAMPLER": "always_off"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"},
    ],
)
def test_no_span_leaves(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    assert _sent(monkeypatch, {ENDPOINT: "{url}", **variables}).got == []
