"""Judges: models that grade recorded answers, and how far their grades agree with people's."""

from remit.learning.judges.calibration import (
    JudgeReport as JudgeReport,
    calibrated_judges as calibrated_judges,
    read_judges as read_judges,
)
from remit.learning.judges.judge import Judge as Judge
