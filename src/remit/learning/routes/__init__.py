"""Routes that learn: graded answers are read, bought within a budget, and fitted."""

from remit.learning.routes.calibration import Calibration, PowerPlan, calibrate, power_plan
from remit.learning.routes.ridge import (
    CALIBRATOR,
    GradedPrompt,
    abilities_of,
    fit_head,
    graded_prompts,
    prices_at,
)
from remit.learning.routes.route_fit import ROUTE_SETTINGS, RouteFit, fit_route, record_look

__all__ = [
    "CALIBRATOR",
    "ROUTE_SETTINGS",
    "Calibration",
    "GradedPrompt",
    "PowerPlan",
    "RouteFit",
    "abilities_of",
    "calibrate",
    "fit_head",
    "fit_route",
    "graded_prompts",
    "power_plan",
    "prices_at",
    "record_look",
]
