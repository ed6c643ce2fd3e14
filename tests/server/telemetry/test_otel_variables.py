"""OpenTelemetry's standard variables, as a platform sets them around ``remit serve``."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from remit.server.telemetry import set_up_tracing
from tests.server.running import Served, serving
from tests.server.telemetry.collector import Collector
from tests.support.upstream import upstream

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


@pytest.mark.parametrize(
    ("variables", "toml", "name"),
    [
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=by-attribute"}, "", "by-attribute"),
        ({}, "", "remit"),
        ({"OTEL_SERVICE_NAME": "of-platform"}, 'service_name = "of-file"', "of-file"),
    ],
)
def test_the_file_goes_over_the_variables(
    tmp_path: Path, variables: dict[str, str], toml: str, name: str
) -> None:
    with Collector() as collector:
        settings = f'[telemetry]\notlp_endpoint = "{{url}}"\n{toml}\n'
        elsewhere = {ENDPOINT: "http://127.0.0.1:9", **variables}
        with traced(tmp_path / "root", collector, elsewhere, settings):
            pass
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
def test_no_span_leaves(tmp_path: Path, variables: dict[str, str]) -> None:
    with Collector() as collector:
        with traced(tmp_path / "root", collector, {ENDPOINT: "{url}", **variables}):
            pass
        assert collector.got == []


def test_disabled_goes_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "True")
    assert set_up_tracing("http://127.0.0.1:9", "x") is None


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "4318"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "http/protobuf"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "otlp"),
    ],
)
def test_what_it_does_not_speak_is_said(
    name: str,
    value: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setenv(name, value)
    with caplog.at_level(logging.WARNING):
        assert set_up_tracing() is None
    assert said in caplog.text
