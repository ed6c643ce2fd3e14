"""How well a way of choosing models does, on a set whose every answer is known already.

Nothing is sent to any model: each row of a set says what each model's answer was worth and what
it cost, a policy names one of the models, and its figures are counted (docs/evaluation.md).
"""

from __future__ import annotations

from remit.routing.evaluation.candidates import (
    read_candidates,
    shipped_candidates,
    stated_candidates,
)
from remit.routing.evaluation.errors import EvaluationError
from remit.routing.evaluation.evaluating import evaluate
from remit.routing.evaluation.figures import Difference, Evaluation, Outcome, TaskFigures
from remit.routing.evaluation.frontier import Frontier, Point, area_under, hull_of, quality_at
from remit.routing.evaluation.interval import Interval
from remit.routing.evaluation.policy import Policy, preference_policies, scoring_policy, sweep
from remit.routing.evaluation.rows import (
    FORMATS,
    ModelResult,
    Row,
    open_set,
    read_routerbench_csv,
    read_rows,
)
from remit.routing.evaluation.shipped import open_shipped_set

__all__ = [
    "FORMATS",
    "Difference",
    "Evaluation",
    "EvaluationError",
    "Frontier",
    "Interval",
    "ModelResult",
    "Outcome",
    "Point",
    "Policy",
    "Row",
    "TaskFigures",
    "area_under",
    "evaluate",
    "hull_of",
    "open_set",
    "open_shipped_set",
    "preference_policies",
    "quality_at",
    "read_candidates",
    "read_routerbench_csv",
    "read_rows",
    "scoring_policy",
    "shipped_candidates",
    "stated_candidates",
    "sweep",
]
