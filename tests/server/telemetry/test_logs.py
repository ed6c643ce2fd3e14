"""Lines and spans of real calls: nobody forges them, and no secret gets into them."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, strategies as st
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from remit.kernel.exchange import RouteOutcome
from remit.kernel.secrets import redact_secrets
from remit.server.telemetry import (
    CallLog,
    context_from_headers,
    set_up_logging,
    set_up_tracing,
    tracing_observer,
    with_parent,
)
from tests.server.running import Served, serving
from tests.server.telemetry.collector import Collector, call_report, watched_gateway
from tests.support.requests import prompt_request
from tests.support.secrets import KEYS
from tests.support.soak import sample
from tests.support.upstream import upstream
from tests.support.wire import Raw, completion, function_call

Form = Literal["text", "json"]
FORMS: tuple[Form, Form] = ("text", "json")
SECRETS = [  # each with a part of it that must not be seen
    ("sk-remit-" + "a_B-9" * 8, "a_B-9a_B"),
    ("sk-ant-api03-abcdefgh", "abcdefgh"),
    ("rat1.eyJzdWIiOiJhIn0.c2lnbmF0dXJl", "c2lnbmF0"),
    ("Bearer abc.def/ghi+jkl==", "def/ghi"),
    ("bearer  x1y2z3secret", "x1y2z3"),
    ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpw"),
    ("x-api-key: abcdef123", "abcdef12"),
    ("postgresql://remit:hunter2secret@db/remit", "hunter2secret"),
    ("-----BEGIN PRIVATE KEY-----\nMC4CAQAw\n-----END PRIVATE KEY-----", "MC4CAQAw"),
    *((key, key[-12:]) for key in KEYS),
]


@pytest.fixture(autouse=True)
def _own_logger() -> Iterator[None]:
    logger = logging.getLogger("remit")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = before


def _logged(form: Form, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    set_up_logging(level, form, stream=stream)
    return stream


def _read(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_call_is_one_line_of_json(tmp_path: Path) -> None:
    stream = _logged("json")
    with watched_gateway(tmp_path, completion("An ANSWER."), CallLog()) as gateway:
        response = gateway.route(prompt_request(prompt="a QUESTION", auth_token="sk-mine-1234"))
    (line,) = _read(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line.pop("latency_ms") == response.latency_ms
    assert line == {
        "level": "info", "logger": "remit.calls", "message": "call ended",
        "outcome": "success", "error_code": "", "provider": "openai", "model": "gpt-test-1",
        "input_tokens": 13, "output_tokens": 5, "attempts": 1,
        "cost_usd": response.cost_incurred, "cost_certainty": "measured",
        "session_id": "SES-TESTTEST", "agent_id": "agent-1", "key_id": "",
        "dispatch_entry_id": response.dispatch_entry_id,
        "exchange_entry_id": response.exchange_entry_id,
    }  # fmt: skip
    for never in ("ANSWER", "QUESTION", "sk-mine"):
        assert never not in stream.getvalue()


@pytest.mark.parametrize("form", FORMS)
def test_a_failure_is_told_without_what_the_error_says(tmp_path: Path, form: Form) -> None:
    stream = _logged(form)
    body = json.dumps({"error": {"message": "your prompt QUESTION is odd"}}).encode()
    with watched_gateway(tmp_path, Raw(body, status=400), CallLog()) as gateway:
        response = gateway.route(prompt_request(prompt="QUESTION"))
    assert response.error_code
    text = stream.getvalue()
    assert "call failed" in text
    assert response.error_code in text
    assert "QUESTION" not in text
    stream = _logged("json", "warning")  # Below the level nothing is said.
    CallLog()(call_report())
    assert stream.getvalue() == ""


def test_text_is_for_people() -> None:
    stream = _logged("text")
    CallLog()(call_report(agent_id="the one", work_order_id=""))
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert " INFO remit.calls: call ended outcome=success provider=openai " in text
    assert ' agent_id="the one" ' in text
    assert "cost_usd=0.25" in text
    assert "error_code" not in text


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("secret", "part"), SECRETS)
def test_secrets_are_blotted_wherever_they_come_from(form: Form, secret: str, part: str) -> None:
    assert part in secret
    stream = _logged(form)
    log = logging.getLogger("remit.test")
    log.info("in a message: %s.", secret)
    log.info("in a field", extra={"session_id": secret, "more": {"deep": [secret]}})
    try:
        raise ValueError(f"in an exception: {secret}")
    except ValueError:
        log.exception("failed")
        log.info("again", exc_info=True, stack_info=True)
    CallLog()(call_report(session_id=secret, agent_id=f"x {secret}"))
    text = stream.getvalue()
    assert part not in text
    assert text.count("[secret]") >= 6
    assert "in a message" in text
    assert "ValueError" in text


@given(
    st.text(max_size=50),
    st.dictionaries(
        st.text(min_size=1, max_size=5).map("x_".__add__),
        st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=20), st.binary()),
        max_size=4,
    ),
)
def test_whatever_is_logged_is_one_line_of_json(message: str, extra: dict[str, Any]) -> None:
    stream = io.StringIO()
    handler = set_up_logging("info", "json", stream=stream)
    record = logging.makeLogRecord({"msg": message, "levelname": "INFO", **extra})
    handler.handle(record)
    assert len(stream.getvalue().splitlines()) == 1
    line = json.loads(stream.getvalue(), parse_constant=lambda name: pytest.fail(name))
    assert set(extra) <= set(line)


def test_an_unpriced_call_has_no_cost_and_a_fallback_is_told() -> None:
    stream = _logged("json")
    passed = {"replayed": True, "fallback_from": (("gpt-9", "TIMEOUT"),)}
    CallLog()(call_report(cost_certainty="unpriced", cost_incurred=0.0, **passed))
    (line,) = _read(stream)
    assert line["cost_usd"] is None
    assert line["replayed"] is True
    assert line["key_id"] == "KEY-1"
    assert line["fallback_from"] == {"gpt-9": "TIMEOUT"}


@pytest.mark.soak
def test_blotting_takes_time_in_proportion() -> None:
    starts = ["sk-", "Bearer ", "a://", "-----BEGIN ", "rat1.", "x-api-key ", "Basic" + " " * 9]
    beginnings = (key[:size] for key in KEYS for size in (4, 5, 12, 24))
    marked = (f"{key}{mark}" for key in KEYS for mark in "-_.")
    for start in sample([*starts, *beginnings, *marked], 5):
        redact_secrets(start * 100_000)  # the test's time limit is the bound


FORGERIES = [
    "x\n2026-01-01T00:00:00.000Z INFO remit.calls: call ended outcome=success",
    "x\r\nforged", "x\x1b[2K\x1b[1Aforged", "x\u2028forged", "x\x85forged", "x\u202eforged",
    "x\x00forged", "x\ud800forged", 'x" outcome="success', "x outcome=success",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("forgery", FORGERIES)
def test_no_id_forges_a_line(form: Form, forgery: str) -> None:
    stream = _logged(form)
    failed = {"outcome": RouteOutcome.REJECTED, "error_code": "INVALID_INPUT"}
    CallLog()(call_report(**failed, session_id=forgery, agent_id=forgery, model_id=forgery))
    logging.getLogger("remit.test").info("about %s", forgery)
    text = stream.getvalue()
    assert len(text.splitlines()) == 2
    assert text.count("\n") == 2
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e\ud800]", text)
    line = text.splitlines()[0]
    if form == "json":
        assert json.loads(line)["outcome"] == "rejected"
    else:
        assert re.findall(r" outcome=(\w+)", re.sub(r'"(?:[^"\\]|\\.)*"', "", line)) == ["rejected"]


@pytest.mark.parametrize("form", FORMS)
def test_an_exception_forges_no_line_either(form: Form) -> None:
    stream = _logged(form)
    try:
        raise ValueError("x\n2026-01-01T00:00:00.000Z INFO forged\r2026 forged")
    except ValueError:
        logging.getLogger("remit.test").exception("failed")
    lines = stream.getvalue().splitlines()
    assert len([line for line in lines if not line.startswith("    ")]) == 1


def test_no_field_passes_for_one_of_the_records_own_and_odd_arguments_are_shown() -> None:
    stream = _logged("json")
    logging.getLogger("remit.test").warning("true", extra={"level": "debug", "time": "never"})
    record = logging.LogRecord("remit.x", 30, "", 1, "%d of %d", ("sk-12345678",), None)
    logging.getLogger("remit").handle(record)
    own, odd = _read(stream)
    assert own["level"] == "warning"
    assert own["time"] != "never"
    assert odd["message"] == "%d of %d ('[secret]',)"


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
