"""Spans of real calls, as OpenTelemetry's own SDK gets them and sends them on."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
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

from remit.gateway import CallReport
from remit.kernel.errors import ConfigError
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
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"


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


@pytest.mark.parametrize(
    "header",
    [None, "", "x", "00-" + "0" * 32 + f"-{SPAN}-01", f"00-{TRACE}-{SPAN}", "\ud800", "0" * 9999],
)
def test_headers_that_mean_nothing_are_nothing(header: str | None, seen: _Seen) -> None:
    assert context_from_headers(header, "x" * 9999) is None
    with with_parent(context_from_headers(header)):
        seen.observer()(call_report())
    assert seen.spans[0].parent is None


def test_a_report_can_hold_anything_and_a_replay_is_not_added_up(seen: _Seen) -> None:
    odd: CallReport = call_report(
        outcome=RouteOutcome.REJECTED, error_code=None, session_id=7, agent_id=None,
        messages=["no message", {"role": 3}], max_tokens="many", temperature="hot",
        content_blocks=({"type": "image", "source": None},),
    )  # fmt: skip
    seen.observer(capture_content=True)(odd)
    seen.observer()(call_report(replayed=True, attempts=0))
    told, replayed = (dict(span.attributes or {}) for span in seen.spans)
    assert (told["gen_ai.conversation.id"], told["error.type"]) == ("7", "_OTHER")
    assert replayed["remit.replayed"] is True
    assert not {"gen_ai.usage.input_tokens", "remit.cost_usd"} & replayed.keys()


def test_spans_with_odd_names_reach_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "region=north")
    with Collector() as collector:
        provider = set_up_tracing(collector.url, "my-gateway")
        assert provider is not None
        observe = tracing_observer(provider, capture_content=True)
        assert observe is not None
        with with_parent(context_from_headers(TRACEPARENT)):
            observe(call_report())
        bad = "a\ud800" + "b" * 100_000
        observe(call_report(outcome=RouteOutcome.REJECTED, error_code="INVALID_INPUT",
                            session_id=bad, prompt=bad, model_id=bad, error_message=bad,
                            content=""))  # fmt: skip
        provider.shutdown()
    ((path, headers, message),) = collector.got
    assert path == "/v1/traces"
    assert headers["x-team"] == "a"
    (of_resource,) = message.resource_spans
    resource = {each.key: each.value.string_value for each in of_resource.resource.attributes}
    assert (resource["service.name"], resource["region"]) == ("my-gateway", "north")
    first, second = of_resource.scope_spans[0].spans
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (TRACE, SPAN)
    session = [a.value.string_value for a in second.attributes if a.key == "gen_ai.conversation.id"]
    assert session[0].startswith("a?bbb")
    assert len(session[0]) == 512


def test_an_odd_endpoint_and_disabled_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    for endpoint in ("collector:4318", "ftp://x", "http://"):
        with pytest.raises(ConfigError, match="not an http"):
            set_up_tracing(endpoint, "x")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "True")
    assert set_up_tracing("http://127.0.0.1:9", "x") is None


def test_without_opentelemetry_nothing_is_traced_and_it_is_said_why() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from remit.server.telemetry import *\n"
        f"assert context_from_headers({TRACEPARENT!r}) is None\n"
        "with with_parent(None): pass\n"
        "assert tracing_observer() is None\n"
        "try: set_up_tracing('http://x', 'y')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "remit[otel]" in done.stderr
    assert done.stdout.startswith("ConfigError")
    assert "remit[otel]" in done.stdout


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
    ("variables", "name"),
    [
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=by-attribute"}, "by-attribute"),
        ({}, "remit"),
        ({"OTEL_SERVICE_NAME": "of-platform"}, "of-file"),
    ],
)
def test_the_file_goes_over_the_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], name: str
) -> None:
    elsewhere = {ENDPOINT: "http://127.0.0.1:9", **variables}
    if name == "of-file":
        with Collector() as collector:
            settings = '[telemetry]\notlp_endpoint = "{url}"\nservice_name = "of-file"\n'
            with traced(tmp_path / "root", collector, elsewhere, settings):
                pass
    else:
        collector = _sent(monkeypatch, elsewhere, "{url}")
    assert resource_of(collector)["service.name"] == name


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


def test_what_it_does_not_speak_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    for name, value, said in (
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "4318"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "http/protobuf"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "otlp"),
    ):
        caplog.clear()
        with monkeypatch.context() as only, caplog.at_level(logging.WARNING):
            only.setenv(name, value)
            assert set_up_tracing() is None
        assert said in caplog.text
