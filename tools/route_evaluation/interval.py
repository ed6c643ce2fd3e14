"""95% intervals of means, from sums alone: no rows are kept, nothing is drawn at random."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Interval", "of_difference", "wilson"]

_Z = 1.959963984540054
"""Of the normal distribution, for intervals of 95%."""


@dataclass(frozen=True, slots=True)
class Interval:
    """From ``low`` to ``high``."""

    low: float
    high: float


def wilson(mean: float, rows: int) -> Interval:
    """Wilson's score interval of a mean of values from 0 to 1.

    Exactly Wilson's for right-or-wrong values. Values between spread less than those of the same
    mean, so that for them it is too wide rather than too narrow.

    Args:
        mean: from 0 to 1.
        rows: how many values, 1 or more.
    """
    z2 = _Z**2
    share = z2 / rows
    middle = (mean + share / 2) / (1 + share)
    spread = max(0.0, mean * (1 - mean)) / rows + share / (4 * rows)
    half = math.sqrt(z2 * spread) / (1 + share)
    # Rounding never puts the mean outside: at 0 and at 1 a bound is the mean itself.
    return Interval(max(0.0, min(mean, middle - half)), min(1.0, max(mean, middle + half)))


def of_difference(total: float, squares: float, rows: int) -> Interval:
    """Of the mean difference between two policies on the same rows, by the normal approximation.

    Args:
        total: the sum of the rows' differences.
        squares: the sum of their squares.
        rows: how many; one alone says nothing, and gives -1 to 1.
    """
    if rows < 2:
        return Interval(-1.0, 1.0)
    mean = total / rows
    variance = max(0.0, (squares - total * mean) / (rows - 1))
    half = _Z * math.sqrt(variance / rows)
    return Interval(max(-1.0, mean - half), min(1.0, mean + half))
