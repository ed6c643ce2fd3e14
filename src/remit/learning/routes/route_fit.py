"""The fit of a learned route, and its effect estimated on held-out prompts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any

from remit.learning.routes.grades import held_out
from remit.learning.routes.ridge import MAX_PROMPTS, GradedPrompt, fit_head
from remit.learning.statistics import Estimate, paired_effect
from remit.routing import LearnedHead, Weights, buckets_of
from remit.routing.learned_head import MILLION, learned_score

__all__ = ["IN_FORCE", "MIN_PROMPTS", "QUALITY_KEPT", "RULES_FILE", "RouteFit", "fit_route"]

IN_FORCE = "in force"
"""The value of ``saves_against`` if the rules in force have a learned head."""

MIN_PROMPTS = 200
"""Smallest number of held-out prompts with graded answers of every model for a proposal."""

QUALITY_KEPT = 0.98
"""Share of the best single model's reward that the lower bound of a route must reach."""

RULES_FILE = "HOT/routing/learned.json"
_HEAD_FILE = "HOT/routing/learned.head.json"
_FOLDS = 5
_NO_PREFERENCE = {"ability": MILLION, "cost": MILLION}

_PRICE_WEIGHTS = [round(0.01 * 1.15**step, 6) for step in range(80)]
"""Candidates up to about 620 a dollar."""


@dataclass(frozen=True, slots=True)
class RouteFit:
    """A learned route and the figures that support it.

    Attributes:
        missing: sentences about what the route lacks to be proposed; empty if it can be proposed.
            With gaps, ``auto`` stays with the best single model.
        held_out: number of held-out prompts behind the figures.
        best_single: the best single model.
        saves_against: ``IN_FORCE`` if the rules in force have a learned head, else the best model.
        saved: US dollars that a call saves against that; the predicted effect.
        gate: the always-valid estimate of the same.
        reward: difference of the reward from the best single model's, always valid.
        usd_per_call: cost of a call in US dollars.
        price_weight: reward that a US dollar is worth.
        shares: share of calls by model.
        weights: the rules that name the head.
        evidence: ids of the exchanges behind the fit.
        files: files of the package, by path.
    """

    missing: Sequence[str]
    held_out: int
    best_single: str
    saves_against: str
    saved: Estimate
    gate: Estimate
    reward: Estimate
    usd_per_call: float
    price_weight: float
    shares: Mapping[str, float]
    weights: Weights = field(repr=False)
    evidence: Sequence[str] = field(repr=False)
    files: Mapping[str, bytes] = field(repr=False)

    @property
    def holds(self) -> list[str]:
        """Ids of the exchanges whose prompts are in the routing head; empty without a head."""
        head = self.weights.head
        return [] if head is None else [one.exchange_id for one in head.neighbours]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that put the route in force: the file of its rules."""
        return {"routing": {"rules": RULES_FILE}}


def fit_route(
    prompts: Sequence[GradedPrompt],
    usd_per_call: float,
    *,
    rules: Weights | None = None,
    quality_floor: float = 0.0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> RouteFit | str:
    """Fit a head, and choose the smallest price weight that keeps to ``usd_per_call``.

    The price weight is the reward that a US dollar is worth: the router takes the model with the
    best predicted reward less price weight times cost. The head is fitted to prompts that are not
    held out (:func:`held_out`). Price weight and best single model are chosen on the same prompts
    in five folds, each evaluated by a head that was fitted to the other four. The price weight
    leaves one standard error of the cost as headroom. All figures are those of the final route on
    held-out prompts. Savings are measured against the head in force, else against the best single
    model. Makes no calls and writes nothing.

    Args:
        prompts: graded prompts. Only prompts with an answer of every model count for the figures;
            the head is fitted to the latest :data:`MAX_PROMPTS`.
        usd_per_call: highest mean cost of a call in US dollars.
        rules: the rules in force, with their head if any; the shipped ones if ``None``.
        quality_floor: 0 for none. Above 0, the router takes the cheapest model with at least this
            predicted reward, and no price weight is chosen.
        progress: called with the number of fitted heads and the number in all.

    Returns:
        The fit; or a sentence about what is missing, if nothing can be fitted.
    """
    learned = [one for one in prompts if not held_out(one)][-MAX_PROMPTS:]
    models = sorted({name for one in learned for name in one.rewards})
    whole = [one for one in learned if len(one.rewards) == len(models)]
    held = [one for one in prompts if held_out(one) and one.rewards.keys() >= set(models)]
    if len(models) < 2 or len(whole) < _FOLDS or not held:
        return (
            f"{len(whole)} prompts, and {len(held)} held out, have graded answers of all "
            f"{len(models)} models; it takes {MIN_PROMPTS} held out, of two models or more: "
            "`remit route calibrate` makes them."
        )
    best = max(models, key=lambda name: (_mean([one.rewards[name] for one in whole]), name))
    seen = _unseen(learned, whole, progress)
    for price_weight in _PRICE_WEIGHTS:
        costs = [one.costs[_chosen(head, one, price_weight, quality_floor)] for one, head in seen]
        if quality_floor or _mean(costs) + _standard_error(costs) <= usd_per_call:
            break
    head = fit_head(learned)
    chosen = [_chosen(head, one, price_weight, quality_floor) for one in held]
    usd = _mean([one.costs[name] for one, name in zip(held, chosen, strict=True)])
    most = max(cost for one in held for cost in one.costs.values()) or 1.0
    taken = list(zip(held, chosen, strict=True))
    now = _chosen_now(rules, held, models)
    against = IN_FORCE if now else best
    saved, saved_gate = paired_effect(
        [
            one.costs[old] - one.costs[name]
            for (one, name), old in zip(taken, now or [best] * len(held), strict=True)
        ],
        low=-most,
        high=most,
    )
    _, reward = paired_effect([one.rewards[name] - one.rewards[best] for one, name in taken])
    named: dict[str, Any] = {"head": head.digest, "price_weight": price_weight}
    if quality_floor:
        named["quality_floor"] = quality_floor
    document = {**(rules or Weights.shipped()).document, "learned": named}
    weights = Weights.from_document(document, lambda _: head)
    floor = (QUALITY_KEPT - 1) * _mean([one.rewards[best] for one in whole])
    progress(_FOLDS + 1, _FOLDS + 1)
    return RouteFit(
        missing=_missing(len(held), usd, usd_per_call, saved_gate, against, reward, floor),
        held_out=len(held),
        best_single=best,
        saves_against=against,
        saved=saved,
        gate=saved_gate,
        reward=reward,
        usd_per_call=usd,
        price_weight=price_weight,
        shares={name: chosen.count(name) / len(chosen) for name in models},
        weights=weights,
        evidence=[entry for one in (*learned, *held) for entry in one.evidence],
        files={
            RULES_FILE: json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n",
            _HEAD_FILE: head.encoded,
        },
    )


def _missing(
    held: int, usd: float, limit: float, saved: Estimate, against: str, reward: Estimate,
    floor: float,
) -> list[str]:  # fmt: skip
    missing = []
    if held < MIN_PROMPTS:
        missing.append(
            f"{held} held-out prompts have graded answers of all models; it takes {MIN_PROMPTS}."
        )
    if usd > limit:
        missing.append(f"The route costs {usd:.6f} USD per call, more than {limit:g}.")
    if saved.low <= 0:
        than = "the current route" if against == IN_FORCE else against
        missing.append(
            f"The route may save nothing compared with {than}: {saved.low:.6f} to "
            f"{saved.high:.6f} USD per call."
        )
    if reward.low < floor:
        missing.append(
            f"The route may lose {-reward.low:.4f} of reward, more than {-floor:.4f} "
            f"({1 - QUALITY_KEPT:.0%} of the best single model's)."
        )
    return missing


def _chosen_now(
    rules: Weights | None, prompts: Sequence[GradedPrompt], models: Sequence[str]
) -> list[str]:
    """Return the models that the head in force takes; empty if it knows none of them."""
    if rules is None or rules.head is None or rules.learned is None:
        return []
    head, learned = rules.head, rules.learned
    known = {name: of for name, of in head.models.items() if name in models}
    head = replace(head, models=known)
    weight, floor = learned.price_weight / MILLION, learned.quality_floor / MILLION
    return [_chosen(head, one, weight, floor) for one in prompts] if known else []


def _chosen(head: LearnedHead, one: GradedPrompt, price_weight: float, quality_floor: float) -> str:
    """Return the model that rules with this head take, scored as the router scores."""
    qualities = head.qualities(buckets_of(one.text, head.buckets))
    return min(
        qualities,
        key=lambda name: (
            -learned_score(
                qualities[name],
                head.models[name].cost_nano,
                price_weight=round(price_weight * MILLION),
                quality_floor=round(quality_floor * MILLION),
                factors=_NO_PREFERENCE,
            ),
            name,
        ),
    )


def _unseen(
    prompts: Sequence[GradedPrompt],
    whole: Sequence[GradedPrompt],
    progress: Callable[[int, int], None],
) -> list[tuple[GradedPrompt, LearnedHead]]:
    """Return each complete prompt with a head that was not fitted to it."""
    fold = {one.exchange_id: place % _FOLDS for place, one in enumerate(prompts)}
    heads = []
    for number in range(_FOLDS):
        progress(number, _FOLDS + 1)
        heads.append(fit_head([one for one in prompts if fold[one.exchange_id] != number]))
    return [(one, heads[fold[one.exchange_id]]) for one in whole]


def _standard_error(values: Sequence[float]) -> float:
    mean = _mean(values)
    return sqrt(sum((value - mean) ** 2 for value in values)) / len(values)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
