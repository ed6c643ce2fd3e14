"""How well a way of choosing models does, on a set whose every answer is known already.

Nothing is sent to any model: each row of a set says what each model's answer was worth and what
it cost, a policy names one of the models, and its figures are counted (docs/evaluation.md).
"""

from __future__ import annotations

from tools.route_evaluation.arena import arena_score
from tools.route_evaluation.candidates import read_candidates, stated_candidates
from tools.route_evaluation.counts import evaluate
from tools.route_evaluation.errors import EvaluationError
from tools.route_evaluation.figures import Difference, Evaluation, Outcome, TaskFigures
from tools.route_evaluation.frontier import (
    Frontier,
    Point,
    area_under,
    cost_at,
    hull_of,
    quality_at,
)
from tools.route_evaluation.interval import Interval
from tools.route_evaluation.policy import Policy, preference_policies, scoring_policy, sweep
from tools.route_evaluation.rows import (
    FORMATS,
    ModelResult,
    Row,
    open_set,
    read_routerbench_csv,
    read_rows,
)
from tools.route_evaluation.shipped import CANDIDATES, REPORT

__all__ = [
    "CANDIDATES",
    "FORMATS",
    "REPORT",
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
    "arena_score",
    "cost_at",
    "evaluate",
    "hull_of",
    "open_set",
    "preference_policies",
    "quality_at",
    "read_candidates",
    "read_routerbench_csv",
    "read_rows",
    "scoring_policy",
    "stated_candidates",
    "sweep",
]
