"""Judges: models that grade recorded answers, and how far their grades agree with people's."""

from remit.learning.judges.calibration import (
    JudgeReport,
    calibrate_judge,
    calibrated_judges,
    is_uncalibrated,
    read_judges,
)
from remit.learning.judges.judge import Judge, Judged

__all__ = [
    "Judge", "JudgeReport", "Judged", "calibrate_judge", "calibrated_judges", "is_uncalibrated",
    "read_judges",
]  # fmt: skip
