"""What a learned route would do, estimated on prompts that it was not fitted to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remit.learning.routes.fitting import MOST_PROMPTS, GradedPrompt, fit_head
from remit.learning.statistics import ConfidenceSequence, Estimate
from remit.routing import LearnedHead, Weights, buckets_of

__all__ = ["LEAST_PROMPTS", "QUALITY_KEPT", "RULES_FILE", "RouteFit", "fit_route"]

LEAST_PROMPTS = 200
"""Prompts with graded answers of every model, below which nothing is proposed (SPEC 11.3)."""

QUALITY_KEPT = 0.98
"""Share of the best single model's reward that a route has to hold, by its lower bound."""

RULES_FILE = "HOT/routing/learned.json"
_HEAD_FILE = "HOT/routing/learned.head.json"
_FOLDS = 5
_PRICE_WEIGHTS = [round(0.01 * 1.15**step, 6) for step in range(80)]  # to about 620 a dollar


@dataclass(frozen=True, slots=True)
class RouteFit:
    """A learned route, and what speaks for it.

    Attributes:
        missing: why it is no proposal; empty where it is one. ``auto`` then stays with the best
            single model measured.
        best_single: that model.
        saved: dollars a call that the route saves against it; the predicted effect.
        reward: by how much its reward differs.
        usd_per_call: its cost on the prompts that it was not fitted to.
        price_weight: reward that a dollar is worth.
        shares: how often it takes each model.
        weights: the rules that name the head.
        evidence: the exchanges that it was concluded from.
        files: of the package that brings it, by path.
    """

    missing: str
    best_single: str
    saved: Estimate
    reward: Estimate
    usd_per_call: float
    price_weight: float
    shares: Mapping[str, float]
    weights: Weights = field(repr=False)
    evidence: Sequence[str] = field(repr=False)
    files: Mapping[str, bytes] = field(repr=False)

    @property
    def holds(self) -> list[str]:
        """Exchanges of whose prompts the head holds something."""
        head = self.weights.head
        return [] if head is None else [one.exchange_id for one in head.neighbours]

    @property
    def settings(self) -> dict[str, Any]:
        """What puts it in force."""
        return {"routing": {"rules": RULES_FILE}}


def fit_route(
    prompts: Sequence[GradedPrompt],
    usd_per_call: float,
    *,
    rules: Weights | None = None,
    quality_floor: float = 0.0,
) -> RouteFit | str:
    """A head, and the price weight at which it costs at most so much a call.

    All figures come of five folds: of each the head is fitted to the other four.

    Args:
        prompts: graded; those that have an answer of every model count for the estimate, and of
            all the latest :data:`MOST_PROMPTS`.
        usd_per_call: the most that a call may cost on average.
        rules: what else they say; those that are shipped when left out.
        quality_floor: see docs/routing.md.

    Returns:
        What is missing, where there is nothing to fit.
    """
    prompts = prompts[-MOST_PROMPTS:]
    models = sorted({name for one in prompts for name in one.rewards})
    whole = [one for one in prompts if len(one.rewards) == len(models)]
    if len(models) < 2 or len(whole) < _FOLDS:
        return (
            f"{len(whole)} prompts have graded answers of all {len(models)} models; it takes "
            f"{LEAST_PROMPTS} of two models or more: `remit route calibrate` makes them."
        )
    best = max(models, key=lambda name: (_mean([one.rewards[name] for one in whole]), name))
    expected = _predictions(prompts, whole)
    for price_weight in _PRICE_WEIGHTS:
        chosen = [
            max(qualities, key=lambda name: (qualities[name] - price_weight * costs[name], name))
            for qualities, costs in expected
        ]
        usd = _mean([one.costs[name] for one, name in zip(whole, chosen, strict=True)])
        if usd <= usd_per_call:
            break
    most = max(cost for one in whole for cost in one.costs.values()) or 1.0
    saved = ConfidenceSequence(low=-most, high=most)
    reward = ConfidenceSequence(low=-1.0, high=1.0)
    for one, name in zip(whole, chosen, strict=True):
        saved.update(one.costs[best] - one.costs[name])
        reward.update(one.rewards[name] - one.rewards[best])
    head = fit_head(prompts)
    learned: dict[str, Any] = {"head": head.digest, "price_weight": price_weight}
    if quality_floor:
        learned["quality_floor"] = quality_floor
    document = {**(rules or Weights.shipped()).document, "learned": learned}
    weights = Weights.from_document(document, lambda _: head)
    floor = (QUALITY_KEPT - 1) * _mean([one.rewards[best] for one in whole])
    return RouteFit(
        missing=_missing(len(whole), usd, usd_per_call, saved.estimate, reward.estimate, floor),
        best_single=best,
        saved=saved.estimate,
        reward=reward.estimate,
        usd_per_call=usd,
        price_weight=price_weight,
        shares={name: chosen.count(name) / len(chosen) for name in models},
        weights=weights,
        evidence=[entry for one in prompts for entry in one.evidence],
        files={
            RULES_FILE: json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n",
            _HEAD_FILE: head.encoded,
        },
    )


def _missing(
    prompts: int, usd: float, limit: float, saved: Estimate, reward: Estimate, floor: float
) -> str:
    if prompts < LEAST_PROMPTS:
        return f"{prompts} prompts have graded answers of all models; it takes {LEAST_PROMPTS}."
    if usd > limit:
        return f"No price weight brings it to {limit} USD a call: it costs {usd:.6f}."
    if saved.low <= 0:
        return f"It may save nothing: {saved.low:.6f} to {saved.high:.6f} USD a call."
    if reward.low < floor:
        return (
            f"It may lose {-reward.low:.4f} of reward, more than {-floor:.4f} "
            f"({1 - QUALITY_KEPT:.0%} of the best single model's)."
        )
    return ""


def _predictions(
    prompts: Sequence[GradedPrompt], whole: Sequence[GradedPrompt]
) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Of each whole prompt, quality and cost by model, of a head that was not fitted to it."""
    fold = {one.exchange_id: place % _FOLDS for place, one in enumerate(prompts)}
    heads: list[LearnedHead] = [
        fit_head([one for one in prompts if fold[one.exchange_id] != number])
        for number in range(_FOLDS)
    ]
    found = []
    for one in whole:
        head = heads[fold[one.exchange_id]]
        qualities = head.qualities(buckets_of(one.text, head.buckets))
        found.append(
            (
                {name: quality / 1_000_000 for name, quality in qualities.items()},
                {name: model.cost_nano / 1_000_000_000 for name, model in head.models.items()},
            )
        )
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
