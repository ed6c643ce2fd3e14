"""Routes that learn: graded answers are read, bought within a budget, and fitted."""

from remit.learning.routes.calibration import (
    Calibration as Calibration,
    PowerPlan as PowerPlan,
    calibrate as calibrate,
    power_plan as power_plan,
)
from remit.learning.routes.ridge import (
    CALIBRATOR as CALIBRATOR,
    GradedPrompt as GradedPrompt,
    abilities_of as abilities_of,
    fit_head as fit_head,
    graded_prompts as graded_prompts,
    prices_at as prices_at,
)
from remit.learning.routes.route_fit import (
    ROUTE_SETTINGS as ROUTE_SETTINGS,
    RouteFit as RouteFit,
    fit_route as fit_route,
    record_look as record_look,
)
