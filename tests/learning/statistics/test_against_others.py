"""The same data through `ville`, `truescore`, `vowpalwabbit` and `judgekeeper`."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remit.learning import ConfidenceSequence, Logged, doubly_robust
from remit.learning.judges import calibrate_judge
from remit.learning.statistics import prediction_powered

_ORACLE = Path(__file__).parents[2] / "oracles" / "learning_oracle.py"
_PYTHON = Path(sys.prefix) / "oracles" / "bin" / "python"


def _installed() -> bool:
    command = [str(_PYTHON), "-c", "import ville, truescore, vowpalwabbit, judgekeeper"]
    return _PYTHON.exists() and not subprocess.run(command, capture_output=True).returncode


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = random.Random(5)
    people = [round(rng.betavariate(8, 2), 3) for _ in range(600)]
    judge = [min(1.0, max(0.0, grade + 0.1 + rng.gauss(0, 0.05))) for grade in people]
    logged = []
    for _ in range(2000):
        first = rng.random() < 0.8
        reward = float(rng.random() < (0.3 if first else 0.2))
        logged.append((1 if first else 2, reward, 0.8 if first else 0.2))
    return {
        "values": [round(rng.betavariate(6, 2), 3) for _ in range(600)],
        "grades": people[:100],
        "judged": judge[:100],
        "judged_only": judge[100:],
        "logged": logged,
    }


@pytest.fixture(scope="module")
def theirs(data: dict[str, Any]) -> dict[str, Any]:
    if not _installed():
        pytest.skip("other people's statistics are not installed: `make test` installs them")
    done = subprocess.run(
        [str(_PYTHON), str(_ORACLE)], input=json.dumps(data), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_betting_is_about_as_narrow_as_that_of_ville(
    data: dict[str, Any], theirs: dict[str, Any]
) -> None:
    """Other bets on the same martingale, so not the same digits."""
    ours = ConfidenceSequence()
    for value in data["values"]:
        ours.update(value)
    low, high = theirs["betting"]
    assert (ours.estimate.high - ours.estimate.low) / (high - low) == pytest.approx(1, abs=0.1)
    assert [ours.estimate.low, ours.estimate.high] == pytest.approx([low, high], abs=0.01)


def test_prediction_powered_is_that_of_truescore(
    data: dict[str, Any], theirs: dict[str, Any]
) -> None:
    ours = prediction_powered(data["grades"], data["judged"], data["judged_only"])
    expected = theirs["prediction_powered"]
    assert [ours.value, ours.low, ours.high] == pytest.approx(expected, abs=1e-9)


def test_a_recorded_judge_agrees_as_judgekeeper_says(theirs: dict[str, Any]) -> None:
    """Its 100 recorded verdicts; people's labels of 40 of them stand for those of all."""
    judge = theirs["recorded_judge"]
    grades = [float(label == "pass") for label in judge["labels"]]
    judged = [float(verdict == "pass") for verdict in judge["verdicts"]]
    ours, expected = calibrate_judge(grades, judged, [], judge["lengths"]), judge["agreement"]
    assert ours.judged == expected["n"] == 100
    assert ours.kappa == pytest.approx(expected["kappa"], abs=1e-9)
    assert ours.agreement == pytest.approx(expected["accuracy"], abs=1e-9)
    wrong = expected["confusion"]
    assert ours.bias == pytest.approx((wrong["fp"] - wrong["fn"]) / 100, abs=1e-9)
    part = calibrate_judge(grades[:40], judged[:40], judged[40:], judge["lengths"][:40])
    alone = prediction_powered(grades[:40], judged[:40], [])
    assert part.mean is not None
    assert part.mean.low < sum(grades) / 100 < part.mean.high
    assert part.mean.high - part.mean.low < alone.high - alone.low


def test_off_policy_value_is_that_of_vowpal_wabbit(
    data: dict[str, Any], theirs: dict[str, Any]
) -> None:
    """By weights alone to their single precision; by its own reward model, within our interval."""
    rows = [
        Logged(reward=reward, propensity=propensity, target=float(action == 2))
        for action, reward, propensity in data["logged"]
    ]
    ours = doubly_robust(rows, effect=False)
    assert ours.value == pytest.approx(theirs["ips"], abs=1e-5)
    assert ours.low < theirs["dr"] < ours.high
