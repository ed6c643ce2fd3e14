"""What is counted of real calls, and what clients cannot do to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from prometheus_client.parser import text_string_to_metric_families

from remit.kernel.exchange import RouteOutcome
from remit.ledger import LedgerClient
from remit.server.telemetry import CallMetrics
from tests.server.telemetry.collector import call_report, watched_gateway
from tests.support.requests import prompt_request
from tests.support.wire import Raw, completion, completion_stream

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
WHO = {"provider": "openai", "model": "gpt-4o-mini"}


def _read(body: bytes) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def _samples(metrics: CallMetrics) -> Samples:
    body, kind = metrics.render()
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    return _read(body)


def _get(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


def _all(samples: Samples, name: str) -> list[dict[str, str]]:
    return [dict(labels) for found, labels in samples if found == name]


def test_a_call_is_counted_with_tokens_cost_and_time(tmp_path: Path) -> None:
    metrics = CallMetrics()
    answer = {**completion("Hello."), "model": "gpt-4o-mini"}
    answer["usage"] = {
        "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 40},
        "completion_tokens_details": {"reasoning_tokens": 8},
    }  # fmt: skip
    with watched_gateway(tmp_path, answer, metrics) as gateway:
        responses = [gateway.route(prompt_request()) for _ in range(3)]
    spent = sum(response.cost_incurred for response in responses)
    assert spent > 0
    who = {"provider": "openai", "model": "gpt-4o-mini"}
    got = _samples(metrics)
    assert _get(got, "remit_calls_total", **who, outcome="success", error_code="") == 3
    assert _get(got, "remit_tokens_total", **who, type="input") == 300
    assert _get(got, "remit_tokens_total", **who, type="output") == 60
    assert _get(got, "remit_tokens_total", **who, type="cached_input") == 120
    assert _get(got, "remit_tokens_total", **who, type="reasoning") == 24
    assert _get(got, "remit_cost_usd_total", **who, certainty="measured") == pytest.approx(spent)
    assert _get(got, "remit_attempts_total") == 3
    assert _get(got, "remit_call_duration_seconds_count", **who) == 3
    took = _get(got, "remit_call_duration_seconds_sum", **who)
    assert took is not None
    assert 0 < took < 60
    assert _all(got, "remit_time_to_first_token_seconds_count") == []
    assert not [name for name, _ in got if name.endswith("_created")]


async def test_a_stream_has_a_time_to_its_first_token(tmp_path: Path) -> None:
    metrics = CallMetrics()
    answer = {**completion("Hello there."), "model": "gpt-4o-mini"}
    with watched_gateway(tmp_path, completion_stream(answer), metrics) as gateway:
        await gateway.aroute(prompt_request(), on_text=lambda text: None)
        await gateway.providers["openai"].aclose()  # type: ignore[union-attr]
    name = "remit_time_to_first_token_seconds_count"
    assert _get(_samples(metrics), name, provider="openai", model="gpt-4o-mini") == 1


def test_retries_failures_and_rejections(tmp_path: Path) -> None:
    metrics = CallMetrics()
    with watched_gateway(tmp_path, Raw(status=500), metrics, max_retries=2) as gateway:
        failed = gateway.route(prompt_request())
        gateway.route(prompt_request(prompt=" ", model_id="made-up"))
    got = _samples(metrics)
    other = {"provider": "other", "model": "other"}
    code = failed.error_code
    assert code
    # Nobody ever answered under that name: it gets no label of its own.
    assert _get(got, "remit_calls_total", provider="openai", model="other", outcome="error",
                error_code=code) == 1  # fmt: skip
    assert _get(got, "remit_attempts_total") == 3
    assert _get(got, "remit_rejections_total", code="INVALID_INPUT") == 1
    assert _get(got, "remit_calls_total", **other, outcome="rejected",
                error_code="INVALID_INPUT") == 1  # fmt: skip


def test_a_known_model_and_one_that_has_answered_have_their_labels() -> None:
    metrics = CallMetrics(known=lambda provider, model: (provider, model) == ("openai", "gpt-9"))
    for model in ("gpt-9", "made-up"):
        metrics(call_report(outcome=RouteOutcome.ERROR, error_code="TIMEOUT", model_id=model))
    seen = {each["model"] for each in _all(_samples(metrics), "remit_calls_total")}
    assert seen == {"gpt-9", "other"}
    metrics(call_report())
    metrics(call_report(outcome=RouteOutcome.TIMEOUT, error_code="TIMEOUT"))
    assert _get(_samples(metrics), "remit_calls_total", **WHO, outcome="timeout",
                error_code="TIMEOUT") == 1  # fmt: skip


def test_labels_have_a_bound_whatever_clients_name() -> None:
    metrics = CallMetrics(max_models=3)
    for number in range(50):
        metrics(call_report(model_id=f"m-{number}"))
        metrics(call_report(outcome=RouteOutcome.ERROR, error_code=f"E{number}"))
        metrics(call_report(outcome=RouteOutcome.REJECTED, error_code=f"E{number}",
                            model_id=f"r-{number}", provider_id=f"r-{number}"))  # fmt: skip
    got = _samples(metrics)
    calls = _all(got, "remit_calls_total")
    assert {each["model"] for each in calls} == {"m-0", "m-1", "m-2", "other"}
    assert {each["provider"] for each in calls} == {"openai", "other"}
    assert {each["error_code"] for each in calls} == {"", "E0", "E1", "E2", "other"}
    assert len(_all(got, "remit_rejections_total")) == 4
    assert sum(v for (name, _), v in got.items() if name == "remit_calls_total") == 150


def test_breakers_and_numbers_are_asked_for_at_each_scrape(tmp_path: Path) -> None:
    metrics = CallMetrics(known=lambda provider, model: model == "gpt-4o-mini")
    with (
        watched_gateway(tmp_path, Raw(status=500), metrics) as gateway,
        LedgerClient(tmp_path / "ledger.db") as ledger,
    ):
        metrics.watch(
            breakers=lambda: gateway.breakers,
            in_flight_calls=gateway.in_flight.count,
            ledger_entries=ledger.count,
        )
        gateway.route(prompt_request())
        who = {"provider": "openai", "model": "gpt-4o-mini"}
        first = _samples(metrics)
        assert _get(first, "remit_breaker_state", **who) == 0
        assert _get(first, "remit_in_flight_calls") == 0
        for _ in range(5):
            gateway.route(prompt_request())
        then = _samples(metrics)
        assert _get(then, "remit_breaker_state", **who) == 2
        assert _get(then, "remit_ledger_entries") == ledger.count()
        assert ledger.count() > (_get(first, "remit_ledger_entries") or 0) > 0


_WORKER = """
import json, sys
from types import SimpleNamespace
from remit.gateway import CircuitState
from remit.server.telemetry import CallMetrics
from remit.server.tenants.metrics import TenantMetrics
from tests.server.telemetry.collector import call_report

metrics = CallMetrics()
metrics.watch(ledger_entries=lambda: 42)
for line in sys.stdin:
    order = json.loads(line)
    for _ in range(order.get("calls", 0)):
        metrics(call_report(first_after_ms=30.0))
        for tenant in ("acme", "globex"):
            metrics.of_tenant(tenant)(call_report())
    metrics.in_progress += order.get("began", 0)
    breaker = SimpleNamespace(state=CircuitState(order["breaker"]))
    metrics.watch(breakers=lambda: {("openai", "gpt-4o-mini"): breaker})
    of = order.get("of")
    shown = TenantMetrics(metrics, of) if of else metrics
    print(json.dumps(shown.render()[0].decode()), flush=True)
"""


class _Worker:
    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WORKER],
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(directory)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def do(self, **order: Any) -> Samples:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"breaker": "closed", **order}) + "\n")
        self.process.stdin.flush()
        return _read(json.loads(self.process.stdout.readline()).encode())

    def kill(self) -> None:
        self.process.kill()
        with self.process:
            pass


def test_several_processes_are_seen_as_one(tmp_path: Path) -> None:
    one, two = _Worker(tmp_path), _Worker(tmp_path)
    who = {"provider": "openai", "model": "gpt-4o-mini"}
    try:
        one.do(calls=2, began=3, breaker="open")
        got = two.do(calls=5, began=4)
        assert _get(got, "remit_calls_total", **who, outcome="success", error_code="") == 7
        assert _get(got, "remit_tokens_total", **who, type="input") == 7 * 13
        assert _get(got, "remit_call_duration_seconds_count", **who) == 7
        assert _get(got, "remit_time_to_first_token_seconds_bucket", **who, le="0.05") == 7
        assert _get(got, "remit_requests_in_progress") == 7
        assert _get(got, "remit_breaker_state", **who) == 2
        assert _get(got, "remit_ledger_entries") == 42
        assert _get(got, "remit_tenant_calls_total", tenant="acme", outcome="success") == 7
        own = two.do(of="acme")
        assert _get(own, "remit_tenant_tokens_total", tenant="acme", type="input") == 7 * 13
        assert {dict(labels).get("tenant") for _, labels in own} == {"acme"}
        one.kill()  # what it counted stays; what it was at is no more
        got = two.do()
        assert _get(got, "remit_calls_total", **who, outcome="success", error_code="") == 7
        assert _get(got, "remit_requests_in_progress") == 4
        assert _get(got, "remit_breaker_state", **who) == 0
    finally:
        one.kill()
        two.kill()


@given(st.lists(st.text(st.characters()), max_size=8))
def test_no_name_breaks_the_page(names: list[str]) -> None:
    metrics = CallMetrics()
    for name in [*names, "a\ud800\nb", 'quo"te\\']:
        metrics(call_report(model_id=name, provider_id=name, error_code=name))
    calls = sum(v for (name, _), v in _samples(metrics).items() if name == "remit_calls_total")
    assert calls == len(names) + 2


def test_what_is_replayed_or_has_no_price_is_not_paid() -> None:
    metrics = CallMetrics()
    metrics(call_report(replayed=True, attempts=0))
    got = _samples(metrics)
    assert _get(got, "remit_calls_total", **WHO, outcome="replayed", error_code="") == 1
    assert _get(got, "remit_tokens_total", **WHO, type="input") == 0
    assert _get(got, "remit_attempts_total") == 0
    metrics(call_report(cost_certainty="unpriced", cost_incurred=0.0))
    got = _samples(metrics)
    assert _all(got, "remit_cost_usd_total") == []
    assert _get(got, "remit_unpriced_calls_total", **WHO) == 1


def test_tenants_have_a_bound_number_of_labels() -> None:
    metrics = CallMetrics(max_models=2)
    for name in ("a", "b", "c", "d", "a"):
        metrics.of_tenant(name)(call_report())
    got = _samples(metrics)
    for name, calls in (("a", 2), ("b", 1), ("_other", 2), ("c", None)):
        assert _get(got, "remit_tenant_calls_total", tenant=name, outcome="success") == calls
