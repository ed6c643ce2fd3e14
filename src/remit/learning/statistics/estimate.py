"""An estimate with its interval and its method."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

__all__ = ["Estimate", "Method"]

Method = Literal[
    "betting", "empirical_bernstein", "doubly_robust", "prediction_powered", "welch",
    "least_squares", "student", "one_sided",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its interval.

    Attributes:
        value: the point estimate.
        low: lower end of the interval.
        high: upper end of the interval.
        confidence: probability that an interval made this way contains the true value.
        samples: number of samples.
        effective_samples: number of equally weighted samples with the same information.
        method: `betting` and `empirical_bernstein` are valid at every look. `doubly_robust`,
            `prediction_powered`, `welch` (a difference of two means), `student` (a mean of paired
            differences) and `least_squares` (a slope) are valid for a number of samples fixed in
            advance. `one_sided` is valid for a number of looks fixed in advance, and the confidence
            is that of each end alone.
        clipped: number of samples whose weight was limited.
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
        """Return all fields by name, for JSON."""
        return asdict(self)
