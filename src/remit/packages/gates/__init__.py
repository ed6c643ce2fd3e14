"""The eight gates, which check an installation."""

from remit.packages.gates.context import GateContext
from remit.packages.gates.g3_constraints import check_settings, unpermitted_models
from remit.packages.gates.runner import (
    GATES,
    TITLES,
    GateReport,
    GateResult,
    check_gates,
    latest_result,
)

__all__ = [
    "GATES",
    "TITLES",
    "GateContext",
    "GateReport",
    "GateResult",
    "check_gates",
    "check_settings",
    "latest_result",
    "unpermitted_models",
]
