"""What tried to get around the router, or made it lie; each was possible once."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from remit.gateway import CircuitState, LLMGateway
from remit.gateway.auth import Identity
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter
from remit.kernel.errors import ConfigError
from remit.kernel.exchange import RouteOutcome
from remit.kernel.settings import default_settings, load_settings
from remit.ledger import LedgerClient
from remit.routing import (
    Candidate,
    EnsembleOptions,
    FallbackChainExhaustedError,
    RouteOptions,
    explain,
    find_decision,
    replay,
    route_request,
)
from remit.runtime.routing import is_own
from tests.routing.models import candidate, emitting, gateway_to
from tests.support.requests import openai_provider, prompt_request
from tests.support.upstream import Upstream

pytestmark = pytest.mark.any_store


def test_a_stream_that_still_talks_is_neither_cut_nor_ill(
    ledger: LedgerClient, upstream: Upstream
) -> None:
    model = candidate("a", 90, "slow=0.2,tokens=8")
    with gateway_to(ledger, upstream, (model,)) as gateway:
        for _ in range(3):
            heard: list[str] = []
            result = route_request(
                "Hello",
                RouteOptions(gateway, (model,), model_timeout_s=0.5, on_text=heard.append),
            )
            assert result.response.outcome is RouteOutcome.SUCCESS
            assert len(heard) > 3
        assert gateway.breakers["at-a", model.provider_model].state is CircuitState.CLOSED


def test_a_stream_that_does_not_begin_in_time_is_passed_over(
    ledger: LedgerClient, upstream: Upstream
) -> None:
    models = (candidate("a", 90, "delay=60"), candidate("b", 10))
    with gateway_to(ledger, upstream, models) as gateway:
        began = time.monotonic()
        options = RouteOptions(gateway, models, model_timeout_s=0.5, on_text=lambda _: None)
        assert route_request("Hello", options).model_id == "b"
        assert time.monotonic() - began < 50


def test_whoever_is_refused_leaves_one_entry_and_no_prompt(
    ledger: LedgerClient, upstream: Upstream
) -> None:
    upstream.reset()
    budgeter = TokenBudgeter(ledger)
    budgeter.allocate(BudgetScope("SES-TESTTEST"), limits=BudgetLimits(nano=1))
    models = tuple(
        Candidate(name, "openai", {"general": 90})
        for name in ("gpt-4", "gpt-4o", "gpt-4o-mini", "gpt-4.1")
    )
    gateway = LLMGateway(ledger, budgeter, dev_mode=True)
    gateway.register_provider("openai", openai_provider(upstream.url))
    for mode in ("single", "ensemble"):
        before = ledger.count()
        with pytest.raises(FallbackChainExhaustedError):
            route_request(
                "A long secret", emitting(ledger, gateway, models, mode=mode,
                                          request=prompt_request())
            )  # fmt: skip
        entries = ledger.read_all()[before:]
        assert [one.event_type for one in entries] == ["PROMPT_REJECTED"]
        assert entries[0].metadata["error_code"] == "BUDGET_EXHAUSTED"
    assert upstream.count() == 0


def test_late_members_were_asked_and_are_paid_for(target: str, upstream: Upstream) -> None:
    with LedgerClient(target) as ledger:
        budgeter = TokenBudgeter(ledger)
        budgeter.allocate(BudgetScope("SES-TESTTEST"), limits=BudgetLimits(tokens=10**9))
        models = (
            Candidate("gpt-4o", "openai", {"general": 90}, served_as="gpt-4o@delay=5"),
            Candidate("gpt-4o-mini", "openai", {"general": 80}),
        )
        gateway = LLMGateway(ledger, budgeter, dev_mode=True)
        gateway.register_provider("openai", openai_provider(upstream.url))
        both = emitting(
            ledger, gateway, models, mode="ensemble", request=prompt_request(),
            ensemble=EnsembleOptions(size=2, timeout_s=0.8),
        )  # fmt: skip
        result = route_request("Hello", both)
        exchanges = ledger.read_by_event_type("EXCHANGE")
        known = [one.metadata["cost_usd"] for one in exchanges if "cost_usd" in one.metadata]
        assert result.cost_usd == pytest.approx(sum(known))
        assert len(exchanges) == 2
        assert result.response.cost_certainty == "upper_bound"  # of the late one
        assert not result.response.cost_known
        late = explain(ledger, result.decision_id)["candidates"][0]
        assert (late["status"], late["code"]) == ("failed", "TIMEOUT")
        assert late["exchange_entry_id"] in {one.id for one in exchanges}
        assert replay(find_decision(ledger, result.decision_id))["agrees"]
        slow = emitting(
            ledger, gateway, models[:1], mode="ensemble", request=prompt_request(),
            ensemble=EnsembleOptions(timeout_s=0.5),
        )  # fmt: skip
        with pytest.raises(FallbackChainExhaustedError) as raised:
            route_request("Hello", slow)
        (attempt,) = raised.value.attempts
        assert not attempt.skipped
        assert attempt.response is not None
        assert attempt.response.outcome is RouteOutcome.TIMEOUT
        assert ledger.read_by_event_type("PROMPT_REJECTED") == []
        told = explain(ledger, raised.value.decision_id)
        assert "None of the models answered in time" in " ".join(told["why"])
        assert replay(find_decision(ledger, raised.value.decision_id))["agrees"]


def test_a_judge_that_fails_makes_no_member_fail(ledger: LedgerClient, upstream: Upstream) -> None:
    class Prompts:
        def check(self, contract_id: str) -> None: ...

        def request(self, base: Any, contract_id: str, variables: Any) -> Any:
            from dataclasses import replace

            return replace(base, prompt="[[status=500]]", messages=None)

    models = (candidate("a", 90), candidate("b", 80))
    with gateway_to(ledger, upstream, models) as gateway:
        options = emitting(
            ledger, gateway, models, mode="ensemble", prompts=Prompts(),
            ensemble=EnsembleOptions(join="judge"),
        )  # fmt: skip
        result = route_request("Hello", options)
    told = explain(ledger, result.decision_id)
    assert [one["status"] for one in told["candidates"]] == ["answered", "answered"]
    assert "failed as judge" in " ".join(told["why"])
    assert replay(find_decision(ledger, result.decision_id))["agrees"]


def test_shipped_models_count_at_their_makers_address_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    shipped = default_settings().providers["openai"]
    assert is_own("openai", shipped)
    elsewhere = shipped.model_copy(update={"base_url": "http://127.0.0.1:1/v1"})
    assert not is_own("openai", elsewhere)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert not is_own("openai", shipped)


@pytest.mark.parametrize(
    "toml",
    [
        '[routing.routes.x]\nmodels = ["gpt-4o", "gpt-4o"]', "[routing.routes.x]\ntimeout_s = inf",
        "[routing.routes.x]\nmax_usd = inf", "[routing]\nmodel_timeout_s = inf",
        "[routing]\nemitter_timeout_s = nan",
        '[routing.models.x]\nprovider = "p"\ninput_usd_per_million = inf',
    ],
)  # fmt: skip
def test_configurations_that_would_fail_at_each_call(tmp_path: Path, toml: str) -> None:
    file = tmp_path / "remit.toml"
    file.write_text(toml)
    with pytest.raises(ConfigError):
        load_settings(file, environment={})


def test_a_rewritten_choice_is_found_by_its_calls(ledger: LedgerClient, upstream: Upstream) -> None:
    from dataclasses import replace

    from remit.routing import compute_decision_hash

    models = (candidate("a", 90, "status=500"), candidate("b", 80))
    with gateway_to(ledger, upstream, models) as gateway:
        result = route_request("Hello", emitting(ledger, gateway, models))
    entry = find_decision(ledger, result.decision_id)
    record = json.loads(entry.metadata["content"])
    inputs = {
        "prompt": entry.metadata["prompt"], "context": entry.metadata["context"],
        "rule_version_hash": record["rule_version_hash"],
        "candidates_considered": record["candidates_considered"],
    }  # fmt: skip
    for forged in (
        {"chosen_model_id": "a", "decision_hash": compute_decision_hash(inputs, "a")},
        {"fallback_attempts": 0},
    ):
        content = json.dumps({**record, **forged})
        told = replay(replace(entry, metadata={**entry.metadata, "content": content}))
        assert not told["agrees"]
        assert told["checks"]["attempts"] is False


def test_agents_keys_write_no_decision_into_chains_that_they_name() -> None:
    from remit.routing.router import _task_of

    held = Identity("k", "agent", key_id="K1")
    assert _task_of(prompt_request(work_order_id="SES-VICTIM"), held) == "SES-TESTTEST"
    assert _task_of(prompt_request(work_order_id="WO-VICTIM-1"), held) == "SES-TESTTEST"
    own = "WO-SES-TESTTEST-003"
    assert _task_of(prompt_request(work_order_id=own), held) == own
    assert _task_of(prompt_request(work_order_id="WO-BATCH-1"), None) == "WO-BATCH-1"


def test_a_listener_hears_an_ensembles_answer(ledger: LedgerClient, upstream: Upstream) -> None:
    heard: list[str] = []
    models = (candidate("a", 90), candidate("b", 80))
    with gateway_to(ledger, upstream, models) as gateway:
        options = RouteOptions(gateway, models, mode="ensemble", on_text=heard.append)
        assert route_request("Hello", options).response.content == "".join(heard)


def test_an_emitter_that_exits_ends_nothing(ledger: LedgerClient, upstream: Upstream) -> None:
    async def leaving(_: object) -> None:
        raise SystemExit(7)

    models = (candidate("a", 90),)
    with gateway_to(ledger, upstream, models) as gateway:
        options = RouteOptions(gateway, models, decision_emitter=leaving)
        assert route_request("Hello", options).model_id == "a"
