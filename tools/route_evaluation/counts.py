"""Counting: one pass over the rows, and nothing of a row is kept but sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tools.route_evaluation.arena import arena_score
from tools.route_evaluation.errors import EvaluationError
from tools.route_evaluation.figures import Difference, Evaluation, Outcome, TaskFigures
from tools.route_evaluation.frontier import KEPT, Frontier, Point, area_under, cost_at, hull_of
from tools.route_evaluation.interval import of_difference, wilson
from tools.route_evaluation.policy import Policy
from tools.route_evaluation.rows import Row

__all__ = ["SINGLE_MODELS", "evaluate"]

SINGLE_MODELS = "single models"
"""The family of the models alone: what routing has to beat."""


class _Sums:
    """What one policy's choices add up to."""

    __slots__ = ("asked_again", "chosen", "cost", "difference", "kept", "name", "quality",
                 "squares", "tasks")  # fmt: skip

    def __init__(self, name: str, models: Sequence[str]) -> None:
        self.name = name
        self.quality = 0.0
        self.cost = 0.0
        self.chosen = dict.fromkeys(models, 0.0)
        self.difference = dict.fromkeys(models, 0.0)
        self.squares = dict.fromkeys(models, 0.0)
        self.tasks: dict[str, list[float]] = {}
        self.asked_again = 0
        self.kept = 0

    def add(self, row: Row, quality: float, cost: float) -> None:
        self.quality += quality
        self.cost += cost
        for model in self.difference:
            off = quality - row.results[model].quality
            self.difference[model] += off
            self.squares[model] += off * off
        of_task = self.tasks.setdefault(row.task, [0, 0.0, 0.0])
        of_task[0] += 1
        of_task[1] += quality
        of_task[2] += cost


def evaluate(
    rows: Iterable[Row],
    policies: Sequence[Policy],
    *,
    models: Sequence[str] | None = None,
    seen: Callable[[int], None] | None = None,
) -> Evaluation:
    """Let policies choose for every row, and count what their choices are worth.

    The same rows and policies give the same figures.

    Args:
        rows: read once, in their order; never held together.
        policies: each with a name of its own.
        models: those that can be chosen; the first row's when left out. Every row must have a
            result of each; results of others are left out.
        seen: called with the number of rows done, after each.

    Raises:
        EvaluationError: there are no rows or no models, a row lacks a model, a policy names
            another model, or two policies have one name.
    """
    _check_names(policies)
    count = _Count(policies)
    for row in rows:
        if not count.started:
            count.start(models if models is not None else list(row.results))
        count.add(row)
        if seen:
            seen(count.rows)
    if not count.rows:
        raise EvaluationError("There are no rows to evaluate.",
                              next_step="Give a set with at least one prompt.")  # fmt: skip
    return count.finish()


class _Count:
    """The sums of everything that is counted at once."""

    def __init__(self, policies: Sequence[Policy]) -> None:
        self.rows = 0
        self.started = False
        self._policies = policies
        self._tasks: dict[str, int] = {}

    def start(self, models: Sequence[str]) -> None:
        self.started = True
        self._models = tuple(sorted(set(models)))
        if not self._models:
            raise EvaluationError("There are no models to choose from.")
        self._singles = {model: _Sums(model, self._models) for model in self._models}
        self._random = _Sums("random", self._models)
        self._oracle = _Sums("oracle", self._models)
        self._sums = [_Sums(policy.name, self._models) for policy in self._policies]

    def add(self, row: Row) -> None:
        for model in self._models:
            if model not in row.results:
                raise EvaluationError(
                    f"{row.place or row.id} has no result of the model {model}.",
                    next_step="Every row needs one of every model that can be chosen.",
                )
        self.rows += 1
        self._tasks[row.task] = self._tasks.get(row.task, 0) + 1
        results = row.results
        for model, sums in self._singles.items():
            _choose(sums, row, model)
        best = min(self._models, key=lambda one: (-results[one].quality, results[one].cost_usd))
        _choose(self._oracle, row, best)
        share = 1 / len(self._models)
        self._random.add(
            row,
            sum(results[model].quality for model in self._models) * share,
            sum(results[model].cost_usd for model in self._models) * share,
        )
        for model in self._models:
            self._random.chosen[model] += share
        for policy, sums in zip(self._policies, self._sums, strict=True):
            chosen = policy.choose(row.prompt, row.task, self._models, row.id)
            if chosen not in self._singles:
                raise EvaluationError(
                    f"The policy {policy.name} chose {chosen!r} for {row.place or row.id}, "
                    "which is none of the models."
                )
            _choose(sums, row, chosen)
            for text in row.paraphrases:
                sums.asked_again += 1
                again = policy.choose(text, row.task, self._models, row.id)
                sums.kept += again == chosen

    def finish(self) -> Evaluation:
        singles = self._singles.values()
        best = min(singles, key=lambda one: (-one.quality, one.cost, one.name)).name
        cheapest = min(singles, key=lambda one: (one.cost, -one.quality, one.name)).name
        dearest = min(singles, key=lambda one: (-one.cost, -one.quality, one.name)).name
        room = (self._oracle.quality - self._singles[best].quality) / self.rows

        def outcome(sums: _Sums) -> Outcome:
            difference = Difference(
                sums.difference[best] / self.rows,
                of_difference(sums.difference[best], sums.squares[best], self.rows),
            )
            quality = min(1.0, sums.quality / self.rows)  # a sum of thirds can round upwards
            return Outcome(
                name=sums.name,
                quality=quality,
                interval=wilson(quality, self.rows),
                cost_usd=sums.cost / self.rows,
                shares={model: times / self.rows for model, times in sums.chosen.items()},
                tasks={
                    task: TaskFigures(int(rows), min(1.0, quality / rows), cost / rows)
                    for task, (rows, quality, cost) in sorted(sums.tasks.items())
                },
                against_best=difference,
                gap_closed=difference.quality / room if room > 0 else None,
                arena_score=arena_score(quality, sums.cost / self.rows),
                robustness=sums.kept / sums.asked_again if sums.asked_again else None,
                models_chosen=sum(times > 0 for times in sums.chosen.values()),
            )

        models = tuple(outcome(sums) for sums in singles)
        policies = tuple(outcome(sums) for sums in self._sums)
        families: dict[str, list[Point]] = {SINGLE_MODELS: [one.point for one in models]}
        for policy, found in zip(self._policies, policies, strict=True):
            if policy.family:
                families.setdefault(policy.family, []).append(found.point)
        kept = KEPT * next(one.quality for one in models if one.name == best)
        low, high = (self._singles[name].cost / self.rows for name in (cheapest, dearest))
        return Evaluation(
            rows=self.rows,
            tasks=dict(sorted(self._tasks.items())),
            models=models,
            best_single=best,
            cheapest=cheapest,
            dearest=dearest,
            random=outcome(self._random),
            oracle=outcome(self._oracle),
            policies=policies,
            frontiers=tuple(
                _frontier(family, points, low, high, kept) for family, points in families.items()
            ),
        )


def _choose(sums: _Sums, row: Row, model: str) -> None:
    result = row.results[model]
    sums.add(row, result.quality, result.cost_usd)
    sums.chosen[model] += 1


def _frontier(
    family: str, points: Sequence[Point], low: float, high: float, kept: float
) -> Frontier:
    hull = hull_of(points)
    return Frontier(family, tuple(points), hull, area_under(hull, low, high), cost_at(hull, kept))


def _check_names(policies: Sequence[Policy]) -> None:
    names = [policy.name for policy in policies]
    for policy in policies:
        if names.count(policy.name) > 1:
            raise EvaluationError(f"Two policies are called {policy.name!r}.")
        if policy.family == SINGLE_MODELS:
            raise EvaluationError(f"No family of policies can be called {SINGLE_MODELS!r}.")
