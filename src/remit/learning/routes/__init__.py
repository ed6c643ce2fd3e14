"""Routes that learn: graded answers are read, bought within a budget, and fitted."""

from remit.learning.routes.calibration import (
    CALIBRATION_AGENT,
    Calibration,
    Grader,
    calibrate,
)
from remit.learning.routes.grades import graded_prompts, held_out
from remit.learning.routes.ridge import GradedPrompt, abilities_of, fit_head
from remit.learning.routes.route_fit import IN_FORCE, RouteFit, fit_route

__all__ = [
    "CALIBRATION_AGENT",
    "IN_FORCE",
    "Calibration",
    "GradedPrompt",
    "Grader",
    "RouteFit",
    "abilities_of",
    "calibrate",
    "fit_head",
    "fit_route",
    "graded_prompts",
    "held_out",
]
