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
from remit.kernel.errors import RemitError
from remit.ledger import LedgerEntry
from remit.routing import explain, find_decision, replay
from remit.routing.exploration import draw
from remit.routing.scores import ScoringInputs
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
