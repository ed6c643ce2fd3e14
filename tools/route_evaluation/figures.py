"""What an evaluation finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tools.route_evaluation.frontier import Frontier, Point
from tools.route_evaluation.interval import Interval

__all__ = ["Difference", "Evaluation", "Outcome", "TaskFigures"]


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """A policy on the rows of one task: how many, mean quality, mean cost in US dollars."""

    rows: int
    quality: float
    cost_usd: float


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean quality less that of the best single model on the same rows, and its 95% interval."""

    quality: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy's figures.

    Attributes:
        name: the policy's; a single model's is its id.
        quality: mean, from 0 to 1.
        interval: of the quality, 95%, over rows like these.
        cost_usd: mean of a prompt.
        shares: how often each model was chosen, from 0 to 1; in the order of the models.
        tasks: the same by task.
        against_best: compared with the best single model.
        gap_closed: how much of the way from the best single model to the oracle; below 0 where it
            is worse than that model, ``None`` where there is no way.
        arena_score: see :func:`tools.route_evaluation.arena.arena_score`.
        robustness: share of the paraphrases that kept the model of their prompt, from 0 to 1;
            ``None`` where the set has no paraphrases, and for what is no policy.
        models_chosen: how many models were chosen at least once.
    """

    name: str
    quality: float
    interval: Interval
    cost_usd: float
    shares: Mapping[str, float]
    tasks: Mapping[str, TaskFigures]
    against_best: Difference
    gap_closed: float | None
    arena_score: float | None
    robustness: float | None
    models_chosen: int

    @property
    def point(self) -> Point:
        """Where it lies among the others."""
        return Point(self.cost_usd, self.quality)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the policies and their yardsticks reach on one set.

    Attributes:
        rows: how many prompts.
        tasks: how many of each task.
        models: each model alone, by id.
        best_single: the model with the highest mean quality; of several the cheapest.
        cheapest: the model with the lowest mean cost; of several the better.
        dearest: the model with the highest mean cost; of several the better.
        random: a model by chance, each equally likely: expected values, nothing is drawn.
        oracle: the best answer of each row; of several the cheapest.
        policies: in the order given.
        frontiers: of the single models first, then of each family of policies.
    """

    rows: int
    tasks: Mapping[str, int]
    models: tuple[Outcome, ...]
    best_single: str
    cheapest: str
    dearest: str
    random: Outcome
    oracle: Outcome
    policies: tuple[Outcome, ...]
    frontiers: tuple[Frontier, ...]

    def model(self, model_id: str) -> Outcome:
        """One model alone.

        Raises:
            KeyError: it is not in the set.
        """
        return {one.name: one for one in self.models}[model_id]

    def policy(self, name: str) -> Outcome:
        """One policy.

        Raises:
            KeyError: it was not evaluated.
        """
        return {one.name: one for one in self.policies}[name]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)
