"""A learned head: exact, on record, and computed again by others."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remit.gateway import LLMGateway
from remit.ledger import LedgerClient, LedgerEntry
from remit.routing import (
    RULES_UNAVAILABLE,
    Candidate,
    LearnedHead,
    RouteOptions,
    Rules,
    ScoringInputs,
    Weights,
    append_head,
    buckets_of,
    create_thought_record_emitter,
    explain,
    find_decision,
    load_rules,
    replay,
    route_request,
    score_candidates,
)
from remit.routing.learned_head import next_balance, steered_weight
from remit.routing.spend_controller import Spend
from tests.routing.test_independent import Answers

pytestmark = pytest.mark.any_store

BUCKETS = 64
VERIFY = Path(__file__).parents[2] / "docs" / "verify_decisions.py"
PROMPTS = ("Sort a list in Python.", "2 + 2 = ?", "Grüße aus 世界 🌍", "x", "…", "A\x00b C")


def make_head(seed: int = 7, models: str = "abc") -> dict[str, Any]:
    rng = random.Random(seed)
    return {
        "format": "remit.routing-head/1",
        "buckets": BUCKETS,
        "models": {
            model: {
                "bias": rng.randrange(400_000, 900_000),
                "cost_nano": 10 ** (4 + place),
                "samples": 9,
                "weights": [rng.randrange(-300_000, 300_000) for _ in range(BUCKETS)],
                **({} if place else _costs(rng)),
            }
            for place, model in enumerate(models)
        },
        "neighbours": [
            {"exchange_id": f"LED-{number:08d}", "buckets": buckets_of(prompt, BUCKETS)}
            for number, prompt in enumerate(PROMPTS, 1)
        ],
    }


def _costs(rng: random.Random) -> dict[str, Any]:
    """The fields of a model whose cost depends on the prompt."""
    return {
        "cost_bias": rng.randrange(10_000_000, 20_000_000),
        "cost_length": rng.randrange(-500_000, 1_000_000),
        "cost_weights": [rng.randrange(-2_000_000, 2_000_000) for _ in range(BUCKETS)],
    }


def make_rules(head: dict[str, Any], **more: Any) -> Rules:
    read = LearnedHead.from_document(head)
    learned = {"head": read.digest, "price_weight": 1.5, **more}
    document = {**Weights.shipped().document, "learned": learned}
    weights = Weights.from_document(document, lambda _: read)
    return Rules(weights, weights.rule_version_hash)


@pytest.fixture
def gateway(ledger: LedgerClient) -> LLMGateway:
    made = LLMGateway(ledger, dev_mode=True)
    made.register_provider("good", Answers())
    return made


def route_all(
    ledger: LedgerClient, gateway: LLMGateway, rules: Rules, prompts: tuple[str, ...] = PROMPTS
) -> list[str]:
    candidates = tuple(Candidate(name, "good", {"general": 50}, tools=False) for name in "abcd")
    emitter = create_thought_record_emitter(ledger, task_id="T", agent_id="a")
    return [
        route_request(
            prompt,
            RouteOptions(
                gateway, candidates, rules=rules, decision_emitter=emitter,
                operator_preference=("", "cost", "quality")[number % 3],
            ),
        ).decision_id
        for number, prompt in enumerate(prompts)
    ]  # fmt: skip


def test_the_spend_follows_the_cap_whatever_calls_really_cost() -> None:
    """Costs are off by a factor, and the price weight is wrong: the mean is spent all the same."""
    for factor in (0.6, 1.0, 1.6):
        draw, balance, spent = random.Random(factor), 0, 0
        for _ in range(2_000):
            weight = steered_weight(60_000_000, 1_000_000, balance)
            gain = draw.randrange(400_000)  # of reward, if the dear model answers
            dear = 2_500_000 * weight // 10**9 < gain
            cost = round((2_500_000 if dear else 100_000) * factor * draw.uniform(0.5, 1.5))
            spent += cost
            balance = next_balance(balance, cost, 1_000_000)
        assert 0.95 <= spent / 2_000 / 1_000_000 <= 1.0


@pytest.mark.parametrize("floor", [0, 0.7])
def test_others_compute_the_same_to_the_last_digit(
    ledger: LedgerClient, gateway: LLMGateway, tmp_path: Path, floor: float
) -> None:
    rules = make_rules(make_head(), quality_floor=floor)
    assert rules.weights.head is not None
    for _ in range(2):  # it is put there once
        _record(ledger, rules)
    rng = random.Random(3)
    letters = "aB9_ \n\t.,é世🌍-"
    made = tuple("".join(rng.choices(letters, k=rng.randrange(1, 90))) + "." for _ in range(60))
    ids = route_all(ledger, gateway, rules, PROMPTS + made)
    assert all(replay(find_decision(ledger, one), ledger)["agrees"] for one in ids)
    assert not replay(find_decision(ledger, ids[0]))["agrees"]  # without the head it cannot be
    thoughts = list(ledger.query(event_type="THOUGHT_RECORD"))
    assert sum(one.metadata["thought_id"].startswith("HEAD-") for one in thoughts) == 1
    entries = [
        {"id": one.id, "submission_id": one.submission_id, "metadata": dict(one.metadata)}
        for one in thoughts
    ]
    export = tmp_path / "export.json"

    def verified() -> dict[str, Any]:
        export.write_text(json.dumps({"entries": entries}))
        run = subprocess.run(
            [sys.executable, "-I", str(VERIFY), str(export), "--json"], capture_output=True
        )
        found: dict[str, Any] = json.loads(run.stdout)
        return found

    found = verified()
    assert (found["scores_equal"], found["bad"]) == (len(ids), [])
    head = next(one for one in entries if one["metadata"]["thought_id"].startswith("HEAD-"))
    head["metadata"]["content"] = head["metadata"]["content"].replace('"samples":9', '"samples":8')
    assert len(verified()["bad"]) == len(ids) + 1


def _record(ledger: LedgerClient, rules: Rules) -> None:
    head = rules.weights.head
    assert head is not None
    ledger.transact(lambda tx: append_head(tx, ledger, head))


def test_a_floor_takes_the_cheapest_that_holds_it(
    ledger: LedgerClient, gateway: LLMGateway
) -> None:
    rules = make_rules(make_head(), quality_floor=0.6)
    head = rules.weights.head
    assert head is not None
    _record(ledger, rules)
    seen = set()
    for prompt, decision in zip(PROMPTS, route_all(ledger, gateway, rules), strict=True):
        found = explain(ledger, decision)
        qualities = head.qualities(buckets_of(prompt, BUCKETS))
        holding = [name for name in "abc" if qualities[name] >= 600_000]  # by cost
        best = holding[0] if holding else max("abc", key=lambda name: qualities[name])
        assert found["chosen_model_id"] == best
        assert found["candidates"][-1]["model_id"] == "d"  # of which nothing is learned
        seen.add(best)
    assert len(seen) > 1


def test_explain_names_the_neighbours_by_exchange(
    ledger: LedgerClient, gateway: LLMGateway
) -> None:
    rules = make_rules(make_head())
    _record(ledger, rules)
    found = explain(ledger, route_all(ledger, gateway, rules)[0])
    assert found["neighbours"][0] == {"exchange_id": "LED-00000001", "similarity": 1.0}
    assert "LED-00000001 (1.00)" in found["why"][-1]


def test_rules_whose_head_is_missing_or_changed_are_not_in_force(tmp_path: Path) -> None:
    rules = make_rules(make_head())
    file, beside = tmp_path / "learned.json", tmp_path / "learned.head.json"
    file.write_text(json.dumps(rules.weights.document))
    assert load_rules(file).version_hash == RULES_UNAVAILABLE
    beside.write_text(json.dumps(make_head(8)))
    assert load_rules(file).version_hash == RULES_UNAVAILABLE
    beside.write_text(json.dumps(make_head()))
    assert load_rules(file).version_hash == rules.version_hash


def test_a_session_with_a_warm_cache_costs_less(ledger: LedgerClient) -> None:
    """Recorded sessions of six turns: a switch pays the whole context, a stay a tenth of it."""
    made = make_head(models="ab")
    for model in made["models"].values():  # Each is better for some prompts, at one price.
        model |= {"bias": 600_000, "cost_nano": 400_000}
        model["weights"] = [weight // 2 for weight in model["weights"]]
        for name in ("cost_bias", "cost_length", "cost_weights"):
            model.pop(name, None)
    head = LearnedHead.from_document(made)
    learned = {"head": head.digest, "price_weight": 1000.0}
    weights = Weights.from_document(
        {**Weights.shipped().document, "learned": learned}, lambda _: head
    )
    candidates = (Candidate("a", "p"), Candidate("b", "p"))
    spent = {True: 0, False: 0}
    assert weights.learned is not None
    rules, spend = weights.learned.model_copy(update={"cap_nano": 10**6}), Spend(ledger)
    for counts_warm in spent:
        for session in range(40):
            name, before, tokens = f"SES-{counts_warm}-{session}", "", 2_000
            for turn in range(6):
                spend.read(rules)
                model, cached = spend.warm_cache(name)
                assert (model, cached > 0) == ((before, True) if turn else ("", False))
                warm = {model: cached * 90} if cached and counts_warm else {}
                prompt = f"{PROMPTS[(session + turn) % 3]} {session * 7 + turn}"
                inputs = ScoringInputs(prompt, "any", "", candidates, weights, warm_nano=warm)
                chosen = score_candidates(inputs).winner
                held = cached if chosen == model else 0
                spent[counts_warm] += (tokens - held) * 100 + held * 10
                ledger.write(LedgerEntry("EXCHANGE", "S", "SUCCESS", "x", metadata={
                    "session_id": name, "model_id": chosen, "outcome": "success",
                    "cached_input_tokens": held, "cache_write_tokens": tokens - held,
                }))  # fmt: skip
                before, tokens = chosen, tokens + 500
    print("spent with and without the fact", spent)
    assert spent[True] < spent[False] * 0.9
    failed = {"session_id": "SES-E", "model_id": "a", "outcome": "error", "cache_write_tokens": 9}
    ledger.write(LedgerEntry("EXCHANGE", "S", "ERROR", "x", metadata=failed))
    spend.read(rules)
    assert spend.warm_cache("SES-E") == spend.warm_cache("") == ("", 0)
