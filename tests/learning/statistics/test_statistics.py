"""Intervals, alarms and off-policy estimates: their guarantees, their limits, bad input."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.learning.alarms import detections, false_alarms
from benchmarks.learning.coverage import logged_coverage, replay_coverage, route_coverage

from remit.kernel.errors import InvalidInputError
from remit.learning import ConfidenceSequence
from remit.learning.statistics import (
    difference,
    evidence_below,
    one_sided,
    pairs_needed,
    prediction_powered,
)


def _filled(values: list[float]) -> ConfidenceSequence:
    sequence = ConfidenceSequence()
    for value in values:
        sequence.update(value)
    return sequence


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf])
def test_values_outside_the_bounds_are_refused_and_not_counted(value: float) -> None:
    sequence = ConfidenceSequence()
    with pytest.raises(InvalidInputError):
        sequence.update(value)
    assert sequence.estimate.samples == 0


def test_a_difference_covers_the_true_one_and_turns_its_sign() -> None:
    rng = random.Random(3)
    a = _filled([float(rng.random() < 0.9) for _ in range(800)])
    b = _filled([float(rng.random() < 0.6) for _ in range(400)])
    there, back = difference(a, b), difference(b, a)
    assert 0 < there.low < 0.3 < there.high < 0.5
    assert (-back.high, -back.low) == pytest.approx((there.low, there.high), abs=1e-4)
    assert difference(a, ConfidenceSequence()).low == -1
    with pytest.raises(InvalidInputError):
        difference(a, ConfidenceSequence(alpha=0.1))


def test_a_margin_that_is_not_exceeded_raises_no_alarm() -> None:
    rng = random.Random(4)
    good = _filled([float(rng.random() < 0.9) for _ in range(1000)])
    less = _filled([float(rng.random() < 0.8) for _ in range(1000)])
    assert evidence_below(less, good) > math.log(20)
    assert evidence_below(less, good, 0.15) == 0.0
    assert evidence_below(good, less) == 0.0


def test_false_alarms_stay_under_the_stated_rate() -> None:
    """60 quiet runs of 300 exchanges, looked at after each; the benchmark runs 300 of 600."""
    assert false_alarms(runs=60, exchanges=300, mean=0.9, seed=1) <= 3


def test_a_true_change_is_seen_soon() -> None:
    assert all(0 < at < 100 for at in detections(10, 200, 0.9, 0.6, seed=6))


def test_predicted_intervals_cover_about_as_stated() -> None:
    """60 simulated proposals with a fixed seed; the benchmark runs 1,000 per case."""
    assert logged_coverage(estimates=40, exchanges=700, exploration=1.0, seed=3).covered >= 35
    replays = replay_coverage(proposals=200, pairs=200, seed=3)
    assert 182 <= replays.covered <= 199  # an interval that is too wide is no prediction either
    assert replays.wrong == 0 < replays.proposed
    assert route_coverage(proposals=5, graded=260, seed=3).covered >= 3


@pytest.mark.parametrize("losses", [0, 1, 2, 5, 20])
def test_a_one_sided_bound_of_rare_losses_is_as_low_as_the_exact_one(losses: int) -> None:
    """Against Garwood's exact bound of a Poisson mean: the sum up to ``losses`` has 5 %."""
    pairs = 2_000
    bound = -one_sided([-1.0] * losses + [0.0] * (pairs - losses)).low * pairs
    low, high = 0.0, 100.0
    for _ in range(60):
        mean = (low + high) / 2
        at_most = sum(math.exp(-mean) * mean**k / math.factorial(k) for k in range(losses + 1))
        low, high = (mean, high) if at_most > 0.05 else (low, mean)
    assert bound == pytest.approx(mean, rel=0.04)


def test_looks_share_the_error_and_weights_count() -> None:
    rng = random.Random(4)
    values = [rng.choice((-1.0, 0.0, 0.0, 0.0, 1.0)) for _ in range(500)]
    one, two, any_number = (one_sided(values, looks=looks) for looks in (1, 2, 0))
    assert any_number.low < two.low < one.low < one.value
    assert (one.method, any_number.method) == ("one_sided", "betting")
    assert (one.confidence, two.confidence) == (0.95, 0.975)
    heavy = one_sided([*values, 1.0], [*[1.0] * 500, 250.0])
    assert heavy.value > one.value
    assert heavy.effective_samples < 10
    with pytest.raises(InvalidInputError):
        one_sided([2.0])


def test_the_number_of_pairs_is_the_smallest_that_passes_with_the_power() -> None:
    needed = pairs_needed(0.025, 0.15**0.5, looks=2, power=0.5)
    rng, accepted = random.Random(9), 0
    for _ in range(300):
        differences = rng.choices((-1.0, 0.0, 1.0), (0.075, 0.85, 0.075), k=needed)
        accepted += one_sided(differences, looks=2).low >= -0.025
    assert 0.4 <= accepted / 300 <= 0.6
    assert pairs_needed(0.025, 0.0, looks=2) == 148
    with pytest.raises(InvalidInputError):
        pairs_needed(0.02, 0.1, effect=-0.02)


# -- The same data through `ville` and `truescore` -------------------------------------------


_ORACLE = Path(__file__).parents[2] / "oracles" / "learning_oracle.py"
_PYTHON = Path(sys.prefix) / "oracles" / "bin" / "python"


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = random.Random(5)
    values = [round(rng.betavariate(6, 2), 3) for _ in range(600)]
    people = [round(rng.betavariate(8, 2), 3) for _ in range(600)]
    judge = [min(1.0, max(0.0, grade + 0.1 + rng.gauss(0, 0.05))) for grade in people]
    return {
        "values": values,
        "grades": people[:100],
        "judged": judge[:100],
        "judged_only": judge[100:],
    }


@pytest.fixture(scope="module")
def theirs(data: dict[str, Any]) -> dict[str, Any]:
    missing = "other people's statistics are not installed: `make test` installs them"
    if not _PYTHON.exists():
        pytest.skip(missing)
    done = subprocess.run(
        [str(_PYTHON), str(_ORACLE)], input=json.dumps(data), capture_output=True, text=True
    )
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip(missing)
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
