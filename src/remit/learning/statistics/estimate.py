"""An estimate with its interval, and what it rests on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

__all__ = ["Estimate", "Method"]

Method = Literal[
    "betting", "empirical_bernstein", "doubly_robust", "prediction_powered", "welch",
    "least_squares", "student",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its interval.

    Attributes:
        value: the point estimate.
        low: lower end of the interval.
        high: upper end of the interval.
        confidence: probability that an interval made this way holds the true value.
        samples: number of samples read.
        effective_samples: how many equally weighted samples say as much.
        method: `betting` and `empirical_bernstein` hold at any time, however often one looks;
            `doubly_robust`, `prediction_powered`, `welch` (a difference of two means),
            `student` (a mean of paired differences) and `least_squares` (a slope) hold at one
            number of samples fixed in advance.
        clipped: samples whose weight was cut to the largest allowed.
    """

    value: float
    low: float
    high: float
    confidence: float = 0.95
    samples: int = 0
    effective_samples: float = 0.0
    method: Method = "betting"
    clipped: int = 0

    def to_dict(self) -> dict[str, float | int | str]:
        """Return all fields, for JSON."""
        return asdict(self)
