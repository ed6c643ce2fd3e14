"""Judges: models that grade recorded answers, and how far their grades agree with people's."""

from remit.learning.judges.calibration import JudgeCalibration, calibrate_judge, labels_needed
from remit.learning.judges.judge import JUDGE_AGENT, Judge, Judged
from remit.learning.judges.reading import JudgeReport, read_judges

__all__ = [
    "JUDGE_AGENT",
    "Judge",
    "JudgeCalibration",
    "JudgeReport",
    "Judged",
    "calibrate_judge",
    "labels_needed",
    "read_judges",
]
