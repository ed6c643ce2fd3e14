"""The eight gates, which check an installation."""

from remit.packages.gates.context import GateContext as GateContext
from remit.packages.gates.g3_constraints import (
    check_settings as check_settings,
    unpermitted_models as unpermitted_models,
)
from remit.packages.gates.runner import (
    GATES as GATES,
    TITLES as TITLES,
    GateReport as GateReport,
    GateResult as GateResult,
    check_gates as check_gates,
    latest_result as latest_result,
)
