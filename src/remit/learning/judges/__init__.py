"""Judges: models that grade recorded answers, and how far their grades agree with people's."""

from remit.learning.judges.calibration import JudgeReport, calibrated_judges, read_judges
from remit.learning.judges.judge import Judge

__all__ = ["Judge", "JudgeReport", "calibrated_judges", "read_judges"]
