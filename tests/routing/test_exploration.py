"""Exploration: off by default, drawn from the decision's id, within its money and its tasks."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import remit
from remit.gateway.budget import BudgetScope
from remit.gateway.circuit_breakers import Breakers
from remit.kernel.errors import RemitError
from remit.kernel.exchange import RouteOutcome
from remit.learning import read_samples
from remit.learning.meta import read_questions
from remit.ledger import LedgerEntry
from remit.ledger.sqlite import SqliteStore
from remit.routing import RULES_UNAVAILABLE, explain, find_decision, replay
from remit.routing.exploration import draw
from remit.routing.scores import ScoringInputs
from remit.routing.trail import verify_trail
from tests.routing.test_independent import SCRIPT
from tests.support.requests import prompt_request
from tests.support.roots import new_root
from tests.support.upstream import Upstream

CHAIN = ["best", "second", "third", "fourth"]
TOML = """
[routing.routes.auto]
models = ["gpt-4o-mini", "gpt-4o", "gpt-4.1-mini", "gpt-4.1-nano"]

[routing.exploration]
share = 0.5
usd_per_day = 1.0
"""


def test_a_draw_follows_from_the_id_and_has_the_propensity_that_it_says() -> None:
    assert draw("DEC-1", CHAIN, 0).chain == tuple(CHAIN)
    assert draw("DEC-1", ["one"], 0.5).of_decision == {"propensity": 1.0}
    known = draw("DEC-" + "0" * 32, CHAIN, 0.4)
    assert known == draw("DEC-" + "0" * 32, CHAIN, 0.4)
    assert sorted(known.chain) == sorted(CHAIN)
    firsts: Counter[str] = Counter()
    weighted = 0.0
    runs = 20_000
    for number in range(runs):
        drawn = draw(f"DEC-{number:032x}", CHAIN, 0.4)
        firsts[drawn.chain[0]] += 1
        assert drawn.propensity == (0.1 if drawn.explored else 0.7)
        assert drawn.explored is (drawn.chain[0] != "best")
        weighted += (drawn.chain[0] == "third") / drawn.propensity
    # Of a fixed row of ids: these are no chances.
    assert firsts["best"] / runs == pytest.approx(0.7, abs=0.01)
    assert all(firsts[name] / runs == pytest.approx(0.1, abs=0.01) for name in CHAIN[1:])
    assert weighted / runs == pytest.approx(1, abs=0.05)  # what weighting by propensity needs


@pytest.fixture
def exploring(
    tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> Iterator[remit.Runtime]:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{upstream.url}/v1")
    toml = TOML + "".join(
        f'\n[routing.models."{name}"]\nprovider = "openai"\n'
        for name in ("gpt-4o-mini", "gpt-4o", "gpt-4.1-mini", "gpt-4.1-nano")
    )
    root = new_root(tmp_path / "root", toml)
    with remit.Runtime.open(root) as runtime:
        runtime.budgeter.allocate(BudgetScope("SES-TESTTEST"), 10**7)
        yield runtime


def _ask(runtime: remit.Runtime) -> tuple[Any, Any]:
    response = runtime.gateway.route(prompt_request(model_id="auto"))
    assert response.decision_entry_id
    return runtime.ledger.read(response.decision_entry_id), runtime.ledger.read(
        response.exchange_entry_id
    )


def test_explored_decisions_say_so_replay_and_stop_with_the_money(
    exploring: remit.Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = exploring
    seen = Counter()
    monkeypatch.setattr("remit.routing.choice.new_decision_id", _Ids())
    for _ in range(12):
        decision, exchange = _ask(runtime)
        shown = decision.metadata
        drawn = draw(shown["decision_id"], find_chain(decision), 0.5)
        assert (shown["propensity"], shown["exploration"]) == (drawn.propensity, 0.5)
        assert exchange.metadata["propensity"] == drawn.propensity
        assert exchange.metadata.get("explored", False) is drawn.explored
        assert shown["model_id"] == drawn.chain[0]
        checked = replay(find_decision(runtime.ledger, decision.id))
        assert checked["agrees"], checked
        assert checked["checks"]["propensity"] is True
        seen[drawn.explored] += 1
    assert seen[True]
    assert seen[False]
    assert "explore" in " ".join(explain(runtime.ledger, decision.id)["why"])
    # Another process spends the rest of the day's money on exploring.
    costly = {**exchange.metadata, "explored": True, "cost_usd": 1.0}
    runtime.ledger.write(LedgerEntry("EXCHANGE", "x", "SUCCESS", "ok", metadata=costly))
    for _ in range(4):
        decision, exchange = _ask(runtime)
        assert decision.metadata["propensity"] == 1
        assert "exploration" not in decision.metadata
        assert "propensity" not in exchange.metadata


def test_calls_that_are_out_count_with_the_most_they_can_cost(exploring: remit.Runtime) -> None:
    router = exploring.router
    chain = router._registry.candidates(router.routes["auto"].models)
    inputs = ScoringInputs("Hello", "any", "", chain, router.rules.weights)
    bounds = {one.model_id: 0.4 for one in chain}  # of a dollar a day: two are out at most
    exploration = router._exploration

    async def drawn(number: int) -> bool:
        return (await exploration.draw(f"DEC-{number:032x}", inputs, chain, bounds)).explored

    async def at_once(numbers: range) -> list[int]:
        came = await asyncio.gather(*map(drawn, numbers))
        return [number for number, explored in zip(numbers, came, strict=True) if explored]

    out = asyncio.run(at_once(range(40)))
    assert len(out) == 2
    assert not asyncio.run(at_once(range(40, 80)))
    exploration.ended(f"DEC-{out[0]:032x}")
    assert len(asyncio.run(at_once(range(80, 120)))) == 1


def find_chain(decision: Any) -> list[str]:
    return list(json.loads(decision.metadata["content"])["candidates_considered"])


class _Ids:
    """Decision ids in a fixed row, so that some explore and some do not."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self) -> str:
        self.number += 1
        return f"DEC-{self.number:032x}"


def test_a_decision_with_another_propensity_is_found_by_both_checks(
    exploring: remit.Runtime, tmp_path: Path
) -> None:
    decision, _ = _ask(exploring)
    forged = LedgerEntry(**{**decision.to_dict(), "metadata": dict(decision.metadata)})
    for propensity, differs in ((decision.metadata["propensity"], False), (0.3, True)):
        forged.metadata["propensity"] = propensity
        assert replay(forged)["checks"]["propensity"] is not differs
        file = tmp_path / "export.json"
        file.write_text(json.dumps({"entries": [forged.to_dict()]}))
        ran = subprocess.run(
            [sys.executable, SCRIPT, file, "--json"], capture_output=True, text=True, check=False
        )
        bad = json.loads(ran.stdout)["bad"]
        assert ("propensity" in str(bad)) is differs, ran.stdout


def test_off_by_default_and_by_task(exploring: remit.Runtime) -> None:
    exploration = exploring.router._exploration
    exploration._settings = exploration._settings.model_copy(update={"tasks": ["code"]})
    assert _ask(exploring)[0].metadata["propensity"] == 1
    exploration._settings = exploration._settings.model_copy(update={"tasks": [], "share": 0.0})
    decision, exchange = _ask(exploring)
    assert decision.metadata["propensity"] == 1
    assert not {"propensity", "explored"} & exchange.metadata.keys()


@pytest.mark.parametrize(
    "wrong", ["share = 0.6\nusd_per_day = 1", "share = 0.1", "share = -1", "share = nan",
              "share = 0.1\nusd_per_day = 1\nmodels = []"]
)  # fmt: skip
def test_wrong_settings_are_refused(wrong: str, tmp_path: Path) -> None:
    root = new_root(tmp_path / "root", f"\n[routing.exploration]\n{wrong}\n")
    with pytest.raises(RemitError, match="exploration"):
        remit.Runtime.open(root)


# -- The router of a root: what is wired without anybody asking -----------------------------------


@pytest.fixture
def root(tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root whose OpenAI models are the upstream's."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{upstream.url}/v1")
    return new_root(tmp_path / "root")


def test_auto_is_decided_recorded_and_replayed_by_default(root: Path) -> None:
    with remit.Runtime.open(root) as runtime:
        runtime.budgeter.allocate(BudgetScope("SES-TESTTEST"), 10**6)
        response = runtime.gateway.route(prompt_request(model_id="auto"))
        assert response.outcome is RouteOutcome.SUCCESS
        told = explain(runtime.ledger, response.decision_entry_id)
        # Shipped models are asked at their maker's address alone; the default model always is.
        assert told["candidates_considered"] == ["gpt-4o-mini"]
        assert told["task_id"] == "WO-SES-TESTTEST-001"
        assert told["rule_version_hash"] == runtime.router.rules.version_hash
        assert replay(find_decision(runtime.ledger, told["decision_id"]))["agrees"]
        assert ("auto", "remit") in runtime.models()
    with remit.Runtime.open(root) as again:  # after a restart
        assert replay(find_decision(again.ledger, response.decision_entry_id))["agrees"]
        assert again.router.status()["rule_version_hash"] == told["rule_version_hash"]


def test_an_integer_of_any_size_is_routed_replayed_and_read_by_the_loops(root: Path) -> None:
    use = {"type": "tool_use", "id": "t", "name": "pay", "input": {"cents": 2**70, "x": -0.0}}
    messages = [
        {"role": "user", "content": "Pay."},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]},
    ]
    with remit.Runtime.open(root) as runtime:
        runtime.budgeter.allocate(BudgetScope("SES-TESTTEST"), 10**6)
        request = prompt_request(model_id="auto", prompt="", messages=messages)
        response = runtime.gateway.route(request)
        assert response.outcome is RouteOutcome.SUCCESS, response.error_message
        assert replay(find_decision(runtime.ledger, response.decision_entry_id))["agrees"]
        samples = [*read_samples(runtime.ledger, with_tasks=True)]
        assert read_questions(runtime.ledger, runtime.contracts, samples)


def test_without_evidence_auto_is_the_best_single_model_and_says_so(
    tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{upstream.url}/v1")
    stated = "".join(
        f'[routing.models.{name}]\nprovider = "openai"\nabilities = {{ general = {general} }}\n'
        f"input_usd_per_million = {usd}\noutput_usd_per_million = {usd}\n"
        for name, general, usd in (("dear", 80, 2), ("cheap", 60, 0.1))
    )
    auto = '[routing.routes.auto]\nmodels = ["dear", "cheap"]\n'
    prompts = ("Hello", "Debug this Python function: def f(): import os", "Solve x^2 = 4.")

    def winners(runtime: remit.Runtime, **more: str) -> set[str]:
        return {runtime.router.score_text(prompt, **more)["winner"] for prompt in prompts}

    with remit.Runtime.open(new_root(tmp_path / "root", stated + auto)) as runtime:
        assert winners(runtime) == {"dear"}
        assert winners(runtime, operator_preference="cost") == {"cheap"}
        assert runtime.router.status()["routes"][0]["best_single"] == "dear"
        runtime.budgeter.allocate(BudgetScope("SES-TESTTEST"), 10**6)
        response = runtime.gateway.route(prompt_request(model_id="auto"))
        why = explain(runtime.ledger, response.decision_entry_id)["why"]
        assert "best single model" in why[0]
    by_task = stated.replace("general = 60", "general = 60, code = 99")
    with remit.Runtime.open(new_root(tmp_path / "other", by_task + auto)) as runtime:
        assert winners(runtime) == {"dear", "cheap"}
        assert runtime.router.status()["routes"][0]["best_single"] == ""
        runtime.budgeter.allocate(BudgetScope("SES-TESTTEST"), 10**6)
        response = runtime.gateway.route(prompt_request(model_id="auto"))
        assert "best single" not in str(explain(runtime.ledger, response.decision_entry_id)["why"])


def test_a_decision_is_in_the_commit_of_its_answer(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with remit.Runtime.open(root) as runtime:
        runtime.budgeter.allocate(BudgetScope("SES-TESTTEST"), 10**6)
        commits: list[int] = []
        run = SqliteStore.run

        def counted(store: SqliteStore, units: Any) -> Any:
            commits.append(len(units))
            return run(store, units)

        monkeypatch.setattr(SqliteStore, "run", counted)
        # Circuits read longer ago than their poll are read again by the writer, which on a busy
        # machine happens between these two calls; it is no part of what is counted.
        monkeypatch.setattr(Breakers, "_is_old", lambda _: False)
        response = runtime.gateway.route(prompt_request(model_id="auto"))
        monkeypatch.undo()
        assert commits == [1, 1]  # DISPATCH; EXCHANGE with the decision
        _check_decision(runtime, response)


def test_a_call_that_is_cancelled_after_an_erasure_has_no_decision(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with remit.Runtime.open(root) as runtime:
        runtime.budgeter.allocate(BudgetScope("SES-TESTTEST"), 10**6)

        async def cancelled_meanwhile(*_: object) -> None:
            if erases:
                await asyncio.to_thread(
                    runtime.ledger.erase, session_id="SES-TESTTEST", reason="a request"
                )
            raise asyncio.CancelledError

        monkeypatch.setattr("remit.gateway.call.next_attempt", cancelled_meanwhile)
        asked = prompt_request(model_id="auto", prompt="Bartleby lives here [[status=503]]")
        for erases in (False, True):
            with pytest.raises(asyncio.CancelledError):
                asyncio.run(_awaited(runtime.gateway.aroute(asked)))
            counts = runtime.ledger.count_by_event()
            assert counts["EXCHANGE"] == 1 + erases
            assert counts["THOUGHT_RECORD"] == 1
        assert not list(runtime.ledger.query(text="Bartleby"))


async def _awaited(call: Any) -> None:
    await call


def _check_decision(runtime: remit.Runtime, response: remit.PromptResponse) -> None:
    entry = runtime.ledger.read(response.decision_entry_id)
    (attempt,) = entry.metadata["attempts"]
    assert attempt["exchange_entry_id"] == response.exchange_entry_id
    assert attempt["outcome"] == "success"
    assert attempt["latency_ms"] == response.latency_ms
    assert replay(entry)["agrees"]
    assert verify_trail(runtime.ledger).verified


@pytest.mark.parametrize("damage", ["missing", "not JSON", "NaN"])
def test_rules_that_cannot_be_read_route_by_the_defaults_and_say_so(
    root: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    remit.Runtime.open(root).close()
    rules = root / "HOT" / "routing" / "weights.json"
    if damage == "missing":
        rules.unlink()
    else:
        rules.write_text("{" if damage == "not JSON" else rules.read_text().replace("0.3", "NaN"))
    with remit.Runtime.open(root) as runtime:
        runtime.budgeter.allocate(BudgetScope("SES-TESTTEST"), 10**6)
        response = runtime.gateway.route(prompt_request(model_id="auto"))
        assert response.outcome is RouteOutcome.SUCCESS
        told = explain(runtime.ledger, response.decision_entry_id)
        assert told["rule_version_hash"] == RULES_UNAVAILABLE
        assert replay(find_decision(runtime.ledger, told["decision_id"]))["agrees"]
    assert "weights.json" in caplog.text
