"""Routes that learn: graded answers are read, bought within a budget, and fitted."""

from remit.learning.routes.calibration import Calibration, Grader, calibrate
from remit.learning.routes.ridge import (
    CALIBRATOR,
    GradedPrompt,
    abilities_case,
    abilities_of,
    fit_head,
    graded_prompts,
)
from remit.learning.routes.route_fit import (
    IN_FORCE,
    RouteFit,
    fit_route,
    fold_of,
)
from remit.learning.routes.sample_size import PowerPlan, power_plan

__all__ = [
    "CALIBRATOR", "IN_FORCE", "Calibration", "GradedPrompt", "Grader", "PowerPlan", "RouteFit",
    "abilities_case", "abilities_of", "calibrate", "fit_head", "fit_route", "fold_of",
    "graded_prompts", "power_plan",
]  # fmt: skip
