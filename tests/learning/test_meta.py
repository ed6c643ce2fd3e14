"""Was the question right: a contract that leaves out a unit, and its twin with a bad model."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from remit.contracts import ContractLoader
from remit.learning import Estimate, read_samples
from remit.learning.evidence.samples import Sample
from remit.learning.meta import EffectReader, read_questions
from remit.learning.meta.effects import agrees, calibrate
from remit.learning.meta.questions import (
    criteria_requirements,
    schema_requirements,
    unstated,
)
from remit.learning.proposals import Change
from remit.ledger import LedgerClient, LedgerEntry
from tests.learning.proposals.conftest import gain, world  # noqa: F401
from tests.support.commands import run_remit

SCHEMA = {
    "type": "object",
    "required": ["price"],
    "properties": {"price": {"type": "number", "description": "The price in euros."}},
}


@pytest.fixture
def contracts(tmp_path: Path) -> ContractLoader:
    return _contracts(tmp_path)


def _contracts(tmp_path: Path, **boundary: Any) -> ContractLoader:
    for folder in ("contracts", "prompt_packs"):
        (tmp_path / "ho1" / folder).mkdir(parents=True)
    contract = {
        "contract_id": "PRC-PRICE-001", "version": "1.0.0", "prompt_pack_id": "PRM-PRICE-001",
        "boundary": {"max_tokens": 100, "temperature": 0, **boundary}, "output_schema": SCHEMA,
        "agent_class": "RESIDENT", "tier": "ho1",
    }  # fmt: skip
    (tmp_path / "ho1/contracts/PRC-PRICE-001.json").write_text(json.dumps(contract))
    (tmp_path / "ho1/prompt_packs/PRM-PRICE-001.txt").write_text("Price of {{ user_input }}?")
    return ContractLoader(tmp_path / "ho1")


def _ask(ledger: LedgerClient, prompt: str, answer: str, **more: str) -> str:
    data: dict[str, Any] = {
        "session_id": "SES-1", "agent_id": "AGT-1", "work_order_id": "", "prompt": prompt,
        "contract_id": "PRC-PRICE-001", "framework_id": "", "response": answer, "model_id": "m",
        "outcome": "success", "finish_reason": "stop", "latency_ms": 1, **more,
    }  # fmt: skip
    return ledger.write(
        LedgerEntry("EXCHANGE", "PRC-PRICE-001", "SUCCESS", "ok", ["PRM-PRICE-001"], data)
    )


def test_a_missing_unit_is_named_alone(ledger: LedgerClient, contracts: ContractLoader) -> None:
    for number in range(40):  # each question twice: once in euros, once in dollars, both valid
        prompt = f"Give the price of order {number // 2} as JSON."
        _ask(ledger, prompt, json.dumps({"price": 10 + number % 2}))
    (bad,) = read_questions(ledger, contracts, read_samples(ledger))
    assert bad.wrong
    assert (bad.success.value, bad.disagreement.value, bad.unstated.value) == (1, 1, 1)
    assert (bad.exchanges, bad.disagreement.samples, len(bad.differing)) == (40, 20, 20)
    ((missing, count),) = bad.missing
    assert (missing.kind, missing.name, missing.of, count) == (
        "unit", "eur", "output_schema: price", 40,
    )  # fmt: skip
    _ask(ledger, "Nobody answers.", "", outcome="error", error_code="UPSTREAM_ERROR")
    (bad,) = read_questions(ledger, contracts, read_samples(ledger))
    assert (bad.exchanges, bad.success.samples, bad.success.value) == (41, 40, 1)
    last = _ask(ledger, "x", "{}")
    for number in range(40):
        _ask(ledger, f"Give the price of {number // 2} in euros.", json.dumps({"price": 10.0}))
    found = read_questions(ledger, contracts, _after(ledger, last))
    assert (found[0].wrong, found[0].missing, found[0].disagreement.value) == (False, (), 0)


def _after(ledger: LedgerClient, entry: str) -> Any:
    return read_samples(ledger, after=entry)


def test_what_is_demanded_and_stated() -> None:
    schema = {
        "required": ["netWeight_kg", "due", "state"],
        "properties": {"due": {"format": "date"}, "state": {"enum": ["open", "shut"]}},
    }
    demanded = schema_requirements(schema, "s")
    missing = {(one.kind, one.name) for one in unstated(demanded, "Net weight, and due; open.")}
    assert missing == {
        ("unit", "kg"), ("format", "date"), ("field", "state"), ("value", "shut"),
    }  # fmt: skip
    said = "Net weight in kilograms, due as YYYY-MM-DD, state open or shut."
    assert not unstated(demanded, said)
    criteria = criteria_requirements({"must_contain": ["Best regards"], "max_chars": 400})
    assert [one.name for one in unstated(criteria, "In 400 characters")] == ["Best regards"]


def test_effects_by_epoch_and_the_report(world: Any) -> None:  # noqa: F811

    proposal = world.propose(Change("budget", settings={"budget": {"session_tokens": 12_345}}))
    world.governance().adopt(proposal.proposal_id, reason="Why not.")
    known, ledger = world.governance().proposals, world.runtime.ledger

    def effect(*after: float) -> Any:
        samples = [
            Sample(exchange_id=f"LED-{n}", epoch=epoch, reward=reward)
            for epoch, rewards in ((0, [0.5]), (1, after))
            for reward in rewards
            for n in range(400)
        ]
        (found,) = EffectReader(ledger, known).effects(samples)
        return found

    good, bad, none = effect(0.6), effect(0.1), effect()
    assert (good.held, bad.held, none.held) == (True, False, None)
    assert (good.harmful, bad.harmful) == (False, True)
    assert good.predicted.value == gain().value
    calibration = calibrate([good, bad, none])
    assert [calibration[name] for name in ("held", "missed", "open")] == [1, 1, 1]
    world.runtime.close()
    said = run_remit("learn", "report", "--root", world.place).stdout.splitlines()
    assert said[0] == "policy epoch 1; proposals: 0 open, 1 adopted, 0 rejected, 0 rolled back"
    assert f"  {proposal.proposal_id[:12]}  budget of limits, epoch 1" in said
    assert "    predicted  +0.1000 [+0.0500, +0.1500] reward" in said
    assert "    measured   nothing yet: too few samples before or after the adoption" in said
    assert "  predictions: 0 held, 0 missed, 1 open" in said
    assert "  PRC-EXECUTE-001, PRM-EXECUTE-001: 3 exchanges" in said
    assert max(map(len, said)) <= 80
    value = json.loads(run_remit("learn", "report", "--root", world.place, "--json").stdout)
    assert value["calibration"]["open"] == 1
    file = world.place / "report.html"
    assert run_remit("learn", "report", "--root", world.place, "--html", file).returncode == 0
    assert "budget of limits" in file.read_text()
    file.unlink()
    both = run_remit("learn", "report", "--root", world.place, "--html", file, "--json")
    assert (both.returncode, "Choose either" in both.stderr) == (2, True)
    assert not file.exists()
    assert value["questions"][0]["contract_id"] == "PRC-EXECUTE-001"


def test_the_share_of_predictions_that_held_does_not_flatter() -> None:
    """Of right predictions 95 % agree with what came; of wrong ones as many as the formula says."""
    rng = random.Random(5)
    expected, error = 0.02, 0.015

    def held(bias: float) -> float:
        found = []
        for _ in range(2_000):
            truth = rng.gauss(0.1, 0.05)
            value = truth + bias + rng.gauss(0, expected)
            z = 1.959964
            predicted = Estimate(
                value=value, low=value - z * expected, high=value + z * expected, method="student"
            )
            found.append(agrees(predicted, truth + rng.gauss(0, error), error))
        assert None not in found
        return found.count(True) / len(found)

    assert held(0) == pytest.approx(0.95, abs=0.015)
    assert held(0.05) == pytest.approx(0.484, abs=0.03)  # a bias of two of both errors, 0.025
    early = Estimate(value=0.1, low=0.06, high=0.14, method="student")
    assert [agrees(early, came, 0.03) for came in (-1.0, 0.1)] == [None, None]
