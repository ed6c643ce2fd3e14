"""Judges: models that grade recorded answers, and how far their grades agree with people's."""

from remit.learning.judges.calibration import JudgeCalibration, calibrate_judge, labels_needed
from remit.learning.judges.judge import Judge, Judged
from remit.learning.judges.report import (
    JudgeReport,
    calibrated_judges,
    is_uncalibrated,
    read_judges,
)

__all__ = [
    "Judge",
    "JudgeCalibration",
    "JudgeReport",
    "Judged",
    "calibrate_judge",
    "calibrated_judges",
    "is_uncalibrated",
    "labels_needed",
    "read_judges",
]
