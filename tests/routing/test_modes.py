"""Ensembles and pipelines over real HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remit.contracts import ContractLoader
from remit.gateway import LLMGateway
from remit.ledger import LedgerClient
from remit.routing import (
    Candidate,
    EnsembleOptions,
    FallbackChainExhaustedError,
    Stage,
    StagePrompts,
    explain,
    find_decision,
    replay,
    route_request,
)
from tests.packages.shipped import SHIPPED
from tests.routing.models import candidate, emitting
from tests.support.requests import openai_provider, prompt_request
from tests.support.upstream import Upstream
from tests.support.wire import completion, serve

pytestmark = pytest.mark.any_store


def _saying(gateway: LLMGateway, stack: Any, **answers: str) -> tuple[Candidate, ...]:
    """Candidates that each answer one text; the first is the best."""
    models = []
    for place, (name, text) in enumerate(answers.items()):
        server = stack.enter_context(serve(*[completion(text)] * 4))
        gateway.register_provider(name, openai_provider(server.url))
        models.append(Candidate(name, name, {"general": 90 - place}, served_as="gpt-x"))
    return tuple(models)


@pytest.fixture
def prompts() -> StagePrompts:
    """The shipped contracts of judges and stages."""
    return StagePrompts(ContractLoader(SHIPPED / "PKG-ROUTER-001" / "HO1"))


# -- ensembles -----------------------------------------------------------------------------


def test_an_ensemble_votes(ledger: LedgerClient) -> None:
    import contextlib

    gateway = LLMGateway(ledger, dev_mode=True)
    with contextlib.ExitStack() as stack:
        models = _saying(gateway, stack, a="London", b="Paris", c="paris", d="Rome")
        result = route_request("The capital?", emitting(ledger, gateway, models, mode="ensemble"))
        assert (result.model_id, result.response.content) == ("b", "Paris")
        assert result.fallback_attempts == 2  # three were asked
        exchanges = ledger.read_by_event_type("EXCHANGE")
        assert {one.metadata["decision_id"] for one in exchanges} == {result.decision_id}
        assert len(exchanges) == 3
        assert result.response.input_tokens == sum(e.metadata["input_tokens"] for e in exchanges)
        told = explain(ledger, result.decision_id)
        assert told["routing_mode"] == "ensemble"
        assert told["chosen_model_id"] == "b"
        assert [one["status"] for one in told["candidates"]] == [*["answered"] * 3, "not_reached"]
        assert replay(find_decision(ledger, result.decision_id))["agrees"]


def test_an_ensemble_joins_fields(ledger: LedgerClient) -> None:
    import contextlib

    gateway = LLMGateway(ledger, dev_mode=True)
    with contextlib.ExitStack() as stack:
        models = _saying(
            gateway, stack, a='{"x": 1, "y": 1}', b='{"x": 2, "y": 1}', c='{"x": 2, "y": 3}'
        )
        options = emitting(
            ledger, gateway, models, mode="ensemble", ensemble=EnsembleOptions(join="fields")
        )
        result = route_request("JSON?", options)
        assert json.loads(result.response.content) == {"x": 2, "y": 1}
        assert result.model_id == "b"


@pytest.mark.parametrize(
    ("verdict", "chosen"),
    [('{"best": 2, "reason": "it is right"}', "b"), ("nonsense", "a"), ('{"best": 9}', "a"),
     ('{"best": true}', "a")],
)  # fmt: skip
def test_an_ensemble_is_judged(
    ledger: LedgerClient, prompts: StagePrompts, verdict: str, chosen: str
) -> None:
    import contextlib

    gateway = LLMGateway(ledger, dev_mode=True)
    with contextlib.ExitStack() as stack:
        models = _saying(gateway, stack, a="4", b="5")
        judges = _saying(gateway, stack, judge=verdict)
        options = emitting(
            ledger, gateway, models, mode="ensemble", prompts=prompts,
            ensemble=EnsembleOptions(join="judge", judge=judges),
        )  # fmt: skip
        result = route_request("2 + 3?", options)
    assert result.model_id == chosen
    exchanges = ledger.read_by_event_type("EXCHANGE")
    assert [one.metadata["contract_id"] for one in exchanges].count("PRC-JUDGE-001") == 1
    asked = exchanges[-1].metadata["prompt"][-1]["content"]
    assert "Answer 1:" in asked
    assert "2 + 3?" in asked
    assert replay(find_decision(ledger, result.decision_id))["agrees"]


def test_an_ensemble_asks_no_more_than_its_money_allows(
    ledger: LedgerClient, upstream: Upstream
) -> None:
    upstream.reset()
    gateway = LLMGateway(ledger, dev_mode=True)
    gateway.register_provider("openai", openai_provider(upstream.url))
    models = tuple(
        Candidate(name, "openai", {"general": 90 - place})
        for place, name in enumerate(("gpt-4", "unpriced-model", "gpt-4o-mini", "gpt-4.1-nano"))
    )
    options = emitting(
        ledger, gateway, models, mode="ensemble", request=prompt_request(max_tokens=500),
        ensemble=EnsembleOptions(size=4, max_usd=0.002),
    )  # fmt: skip
    route_request("Hello", options)
    assert {call["model"] for call in upstream.calls()} == {"gpt-4o-mini", "gpt-4.1-nano"}
    upstream.reset()
    with pytest.raises(FallbackChainExhaustedError) as raised:
        route_request(
            "Hello",
            emitting(
                ledger, gateway, models, mode="ensemble", request=prompt_request(max_tokens=500),
                ensemble=EnsembleOptions(max_usd=1e-9),
            ),
        )  # fmt: skip
    assert len(raised.value.attempts) == 4
    assert upstream.count() == 0


def test_each_member_counts_as_a_turn_and_the_ledger_agrees(
    ledger: LedgerClient, upstream: Upstream
) -> None:
    from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter, audit_budgets

    budgeter = TokenBudgeter(ledger)
    scope = BudgetScope("SES-TESTTEST")
    budgeter.allocate(scope, limits=BudgetLimits(tokens=10**9, turns=3))
    models = (candidate("a", 90), candidate("b", 80), candidate("c", 70))
    gateway = LLMGateway(ledger, budgeter, dev_mode=True)
    for one in models:
        gateway.register_provider(one.provider_id, openai_provider(upstream.url))
    request = prompt_request()
    result = route_request(
        "Hello", emitting(ledger, gateway, models, mode="ensemble", request=request)
    )
    assert result.fallback_attempts == 2
    with pytest.raises(FallbackChainExhaustedError) as raised:
        route_request("Hello", emitting(ledger, gateway, models, request=request))
    assert [one.error.code for one in raised.value.attempts] == ["TURN_LIMIT"]  # type: ignore[union-attr]
    assert len(ledger.read_by_event_type("PROMPT_REJECTED")) == 1
    assert len(ledger.read_by_event_type("THOUGHT_RECORD")) == 1  # refused: no trace of its prompt
    assert audit_budgets(ledger).equal


# -- pipelines -----------------------------------------------------------------------------


def test_a_pipeline_drafts_criticises_and_revises(
    ledger: LedgerClient, prompts: StagePrompts
) -> None:
    with serve(completion("It is 5."), completion("2 + 2 is 4."), completion("It is 4.")) as server:
        gateway = LLMGateway(ledger, dev_mode=True)
        gateway.register_provider("p", openai_provider(server.url))
        heard: list[str] = []
        options = emitting(
            ledger, gateway, (Candidate("m", "p", served_as="gpt-x"),), mode="pipeline",
            prompts=prompts,
            stages=(
                Stage("draft"), Stage("critique", "PRC-CRITIQUE-001", revises=False),
                Stage("revise", "PRC-REVISE-001"),
            ),
        )  # fmt: skip
        result = route_request("What is 2 + 2?", options)
        assert heard == []
    assert result.response.content == "It is 4."
    draft, critique, revise = ledger.read_by_event_type("EXCHANGE")
    assert draft.metadata["prompt"] == "What is 2 + 2?"
    assert critique.metadata["contract_id"] == "PRC-CRITIQUE-001"
    assert "It is 5." in critique.metadata["prompt"][-1]["content"]
    assert "2 + 2 is 4." in revise.metadata["prompt"][-1]["content"]
    assert {one.metadata["decision_id"] for one in (draft, critique, revise)} == {
        result.decision_id
    }
    (decision,) = ledger.read_by_event_type("THOUGHT_RECORD")
    stages = decision.metadata["stages"]
    assert [one["stage"] for one in stages] == ["draft", "critique", "revise"]
    assert [one["exchange_entry_id"] for one in stages] == [draft.id, critique.id, revise.id]
    assert replay(decision)["agrees"]
    assert explain(ledger, draft.id)["routing_mode"] == "pipeline"
