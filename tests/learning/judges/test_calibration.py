"""A judge's grades against people's: what is computed."""

from __future__ import annotations

import random

import pytest

from remit.kernel.errors import InvalidInputError
from remit.learning.judges import calibrate_judge, labels_needed


def drawn(labels: int, total: int) -> tuple[list[float], list[float], list[float]]:
    rng = random.Random(3)
    people = [rng.betavariate(4, 2) for _ in range(total)]
    judge = [min(1.0, max(0.0, grade + rng.gauss(0.1, 0.1))) for grade in people]
    return people[:labels], judge[:labels], judge[labels:]


def test_as_many_labels_as_are_said_make_the_interval_so_wide() -> None:
    width = 0.05
    more = labels_needed(*drawn(40, 4_000), width)
    grades, judged, only = drawn(40 + more, 4_000)
    mean = calibrate_judge(grades, judged, only, [10] * len(grades)).mean
    assert mean is not None
    assert mean.high - mean.low == pytest.approx(width, rel=0.2)
    assert labels_needed(*drawn(40 + 2 * more, 4_000), width) == 0


def test_few_labels_ask_for_as_many_as_any_grades_may_need() -> None:
    assert labels_needed([], [], [0.5] * 9, 0.1) == 385  # (1.96 / 0.1)² rounded up
    with pytest.raises(InvalidInputError, match="above 0"):
        labels_needed([], [], [0.5], 0)


def test_what_cannot_be_computed_is_none() -> None:
    none = calibrate_judge([], [], [0.25, 0.75], [])
    assert (none.judged, none.judge_mean, none.agreement, none.kappa, none.mean, none.bias) == (
        2, 0.5, None, None, None, None,
    )  # fmt: skip
    same = calibrate_judge([1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [], [5, 5, 5])
    assert (same.agreement, same.kappa, same.length_slope) == (1.0, None, None)
    with pytest.raises(InvalidInputError, match="not of the same answers"):
        calibrate_judge([1.0], [], [0.5], [])
