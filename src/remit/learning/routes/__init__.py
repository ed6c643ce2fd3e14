"""Routes that learn: graded answers read, bought within a budget, and fitted."""

from remit.learning.routes.calibrating import Calibration, Grader, calibrate
from remit.learning.routes.fitting import GradedPrompt, abilities_of, fit_head
from remit.learning.routes.proposing import IN_FORCE, RouteFit, fit_route
from remit.learning.routes.reading import graded_prompts, held_out

__all__ = [
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
