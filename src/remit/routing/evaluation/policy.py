"""Ways of choosing a model, among them our own scoring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remit.routing.candidate import Candidate
from remit.routing.evaluation.shipped import settings
from remit.routing.scoring import ScoringFn, ScoringInputs, score_candidates, task_of
from remit.routing.weights import Weights

__all__ = ["Policy", "preference_policies", "scoring_policy", "sweep"]


@dataclass(frozen=True, slots=True)
class Policy:
    """A way of choosing.

    Attributes:
        name: its name in the report.
        choose: given the prompt, its task (empty: not told) and the models' ids, one of the ids.
            It sees neither qualities nor costs.
        family: policies of one family make one frontier; empty: none.
    """

    name: str
    choose: Callable[[str, str, Sequence[str]], str]
    family: str = ""


def scoring_policy(
    candidates: Sequence[Candidate],
    weights: Weights,
    *,
    name: str = "scoring",
    family: str = "",
    preference: str = "",
    told_task: bool = False,
    scoring_fn: ScoringFn = score_candidates,
) -> Policy:
    """Our scoring, as :func:`remit.routing.scoring.score_candidates` does it for real calls.

    Args:
        candidates: what is stated of the models; those of the set, no others.
        weights: the rules.
        name: see :class:`Policy`.
        family: likewise.
        preference: an operator preference of the rules; empty: none.
        told_task: whether the set's task is handed over; else the prompt alone tells it, as it
            does when the model is ``auto``.
        scoring_fn: another scoring.
    """
    given = tuple(candidates)

    def choose(prompt: str, task: str, models: Sequence[str]) -> str:
        inputs = ScoringInputs(
            prompt=prompt,
            task=task_of(task if told_task else ""),
            operator_preference=preference,
            candidates=given,
            weights=weights,
        )
        return scoring_fn(inputs).winner

    return Policy(name, choose, family)


def preference_policies(candidates: Sequence[Candidate], weights: Weights) -> list[Policy]:
    """One for each operator preference of the rules."""
    return [
        scoring_policy(candidates, weights, name=f"scoring, {name}", preference=name)
        for name in sorted(weights.preferences)
    ]


def sweep(
    candidates: Sequence[Candidate],
    weights: Weights,
    *,
    family: str = "scoring by weight of price",
    ratios: Sequence[float] | None = None,
    told_task: bool = False,
) -> list[Policy]:
    """Our scoring with the weight of price going from nothing to all: the points of a frontier.

    Args:
        candidates: what is stated of the models.
        weights: the rules; all but their weight of price stays.
        family: what the frontier is called.
        ratios: weights of price as multiples of the rules' weight of ability; the shipped
            settings' when left out.
        told_task: see :func:`scoring_policy`.
    """
    chosen = settings().price_to_ability if ratios is None else ratios
    ability = float(weights.document["features"]["ability"])
    found = []
    for ratio in chosen:
        features = {**weights.document["features"], "cost": round(ability * ratio, 6)}
        rules = Weights.from_document({**weights.document, "features": features})
        name = f"{family} {ratio:g}"
        found.append(scoring_policy(candidates, rules, name=name, family=family,
                                    told_task=told_task))  # fmt: skip
    return found
