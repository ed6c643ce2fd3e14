"""Intervals, alarms and off-policy estimates: their guarantees, their limits, bad input."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from benchmarks.learning.alarms import detections, false_alarms
from benchmarks.learning.coverage import logged_coverage, replay_coverage, route_coverage

from remit.kernel.errors import InvalidInputError
from remit.learning import ConfidenceSequence, doubly_robust
from remit.learning.judges.calibration import calibrate_judge
from remit.learning.statistics import (
    difference,
    evidence_below,
    one_sided,
    paired_effect,
    pairs_needed,
    prediction_powered,
)


def _filled(values: list[float]) -> ConfidenceSequence:
    sequence = ConfidenceSequence()
    for value in values:
        sequence.update(value)
    return sequence


def test_an_interval_without_samples_is_the_whole_range() -> None:
    estimate = ConfidenceSequence(low=-1, high=3).estimate
    assert (estimate.low, estimate.high, estimate.samples) == (-1, 3, 0)


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf])
def test_values_outside_the_bounds_are_refused_and_not_counted(value: float) -> None:
    sequence = ConfidenceSequence()
    with pytest.raises(InvalidInputError):
        sequence.update(value)
    assert sequence.estimate.samples == 0


@pytest.mark.parametrize(
    ("alpha", "low", "high"), [(0, 0, 1), (1, 0, 1), (0.05, 1, 1), (0.05, 0, math.inf)]
)
def test_impossible_bounds_are_refused(alpha: float, low: float, high: float) -> None:
    with pytest.raises(InvalidInputError):
        ConfidenceSequence(alpha, low, high)


def test_values_of_no_weight_leave_the_whole_range() -> None:
    sequence = ConfidenceSequence()
    sequence.merge(_filled([1.0, 1.0]), weight=0)
    estimate = sequence.estimate
    assert (estimate.low, estimate.high) == pytest.approx((0, 1), abs=1e-6)
    assert (sequence.mean, estimate.effective_samples) == (0.5, 0)


def test_the_order_of_samples_does_not_matter() -> None:
    rng = random.Random(1)
    values = [round(rng.random(), 2) for _ in range(300)]
    assert _filled(values).estimate == _filled(sorted(values)).estimate


def test_constant_values_narrow_the_interval_without_excluding_them() -> None:
    widths = []
    for count in (10, 100, 1000):
        estimate = _filled([1.0] * count).estimate
        assert estimate.high == 1.0 == estimate.value
        widths.append(estimate.high - estimate.low)
    assert all(later < earlier / 2 for earlier, later in pairwise(widths))


def test_a_log_capital_is_convex_in_the_mean() -> None:
    """So the search for the mean that explains two samples best finds it."""
    rng = random.Random(2)
    sequence = _filled([round(rng.betavariate(1, 3), 3) for _ in range(200)])
    for up in (True, False):
        at = [sequence.capital(0.02 + 0.96 * step / 200, up=up) for step in range(201)]
        assert all(a + c >= 2 * b - 1e-9 for a, b, c in zip(at, at[1:], at[2:], strict=False))


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


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(InvalidInputError):
        prediction_powered([1.0], [1.0], [])
    with pytest.raises(InvalidInputError):
        prediction_powered([1.0, 0.0], [1.0], [])


def test_a_useless_judge_leaves_people_s_grades_alone() -> None:
    rng = random.Random(9)
    grades = [float(rng.random() < 0.7) for _ in range(200)]
    alone = prediction_powered(grades, [0.5] * 200, [0.5] * 2000)
    assert alone.value == pytest.approx(sum(grades) / 200)
    assert alone.effective_samples == pytest.approx(200)
    with_help = prediction_powered(grades, grades, [float(rng.random() < 0.7) for _ in range(2000)])
    assert with_help.effective_samples > 1000


# -- The same data through `ville`, `truescore`, `vowpalwabbit` and `judgekeeper` ----------------


_ORACLE = Path(__file__).parents[2] / "oracles" / "learning_oracle.py"
_PYTHON = Path(sys.prefix) / "oracles" / "bin" / "python"


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


def test_off_policy_is_that_of_vowpal_wabbit(data: dict[str, Any], theirs: dict[str, Any]) -> None:
    """By weights alone to their single precision; by its own reward model, within our interval."""
    values = [
        doubly_robust(reward if action == 2 else None, propensity, 0.0)
        for action, reward, propensity in data["logged"]
    ]
    ours, _ = paired_effect(values, low=0, high=1 / min(row[2] for row in data["logged"]))
    assert ours.value == pytest.approx(theirs["ips"], abs=1e-5)
    assert ours.low < theirs["dr"] < ours.high
