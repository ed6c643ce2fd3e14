"""The fit of a learned route, and its effect estimated by cross-fitting."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isqrt, sqrt
from operator import mul
from typing import Any

from remit.kernel.canonical import sha256_hex
from remit.kernel.message_text import fixed
from remit.kernel.settings import GuardSettings
from remit.learning.exchanges import prompt_key
from remit.learning.routes.ridge import MAX_PROMPTS, GradedPrompt, fit_head, tokens_of
from remit.learning.statistics import (
    Estimate,
    doubly_robust,
    one_sided,
    paired_effect,
    pairs_needed,
)
from remit.ledger import LedgerClient, LedgerEntry, is_authentic
from remit.routing import LearnedHead, Weights, buckets_of
from remit.routing.learned_head import MILLION, learned_score

FOLDS = 5
_LEAST_CHANCE = 0.1  # The grade of a model that is asked less often says little.
_NO_PREFERENCE = {"ability": MILLION, "cost": MILLION}
_PRECISION = 100_000  # A price weight is found to this part of itself.
_LARGEST_WEIGHT = MILLION * MILLION


@dataclass(frozen=True, slots=True)
class Unseen:
    """A graded prompt, and the predictions of a head that was not fitted to it.

    Attributes:
        graded: the prompt.
        qualities: predicted reward in millionths, by model.
        costs: predicted cost in nano-dollars, by model.
    """

    graded: GradedPrompt
    qualities: Mapping[str, int]
    costs: Mapping[str, int]

    def choice(self, price_weight: int, quality_floor: int = 0) -> str:
        """Return the model that a router would choose from these predictions.

        The model with the highest :func:`learned_score` is chosen; of equal scores, the first name.

        Args:
            price_weight: reward that a US dollar is worth, in millionths.
            quality_floor: lowest wanted reward, in millionths; above 0, the cheapest model with at
                least this predicted reward is chosen, or without one the model with the highest,
                and the price weight does not count.
        """

        def rank(name: str) -> tuple[int, str]:
            score = learned_score(
                self.qualities[name], self.costs[name], price_weight=price_weight,
                quality_floor=quality_floor, factors=_NO_PREFERENCE,
            )  # fmt: skip
            return -score, name

        return min(self.qualities, key=rank)


def fold_of(one: GradedPrompt) -> int:
    """Return the fold of a prompt, 0 to 4, which depends on the prompt alone."""
    return int(sha256_hex(f"remit fold {prompt_key(one.prompt)}".encode())[:8], 16) % FOLDS


def cross_fitted(
    prompts: Sequence[GradedPrompt], models: Collection[str],
    progress: Callable[[int, int], None],
) -> list[Unseen]:  # fmt: skip
    """Return the prompts with predictions of heads that were fitted to the other folds.

    The prompts are in order of their folds. A fold without prompts in the others is left out.

    Args:
        prompts: graded prompts, oldest first; a fit takes the latest :data:`MAX_PROMPTS`.
        models: models that every head must know; a fold whose head knows fewer is left out.
        progress: called with the number of the fold, from 0, and 6, before each fit.
    """
    folds = [fold_of(one) for one in prompts]
    found = []
    for number in range(FOLDS):
        progress(number, FOLDS + 1)
        others = [one for one, fold in zip(prompts, folds, strict=True) if fold != number]
        head = fit_head(others[-MAX_PROMPTS:]) if others else None
        if head is None or not head.models.keys() >= set(models):
            continue
        mine = [one for one, fold in zip(prompts, folds, strict=True) if fold == number]
        found += unseen_by(head, mine)
    return found


def unseen_by(head: LearnedHead, prompts: Sequence[GradedPrompt]) -> list[Unseen]:
    """Return prompts with the predictions of a head that was not fitted to them."""
    seen = ((one, buckets_of(one.text, head.buckets)) for one in prompts)
    return [Unseen(one, head.qualities(of), head.costs(of, tokens_of(one))) for one, of in seen]


def price_weight_for(unseen: Sequence[Unseen], usd_per_call: float) -> int:
    """Return the smallest price weight, in millionths, that keeps the mean cost of a call to a cap.

    The weight is found to 1/100,000 of itself. A prompt counts by its traffic and needs the costs
    of all models. If no price weight keeps to the cap, the largest one (10¹²) is returned.
    """
    weights = [one.graded.traffic for one in unseen]
    limit = usd_per_call * sum(weights)

    def keeps(price_weight: int) -> bool:
        return limit >= sum(
            weight * one.graded.costs[one.choice(price_weight)]
            for one, weight in zip(unseen, weights, strict=True)
        )

    low, high = 0, _LARGEST_WEIGHT
    if keeps(low):
        return low
    while high - low > 1:
        middle = max(low + 1, isqrt(low * high))
        if keeps(middle):
            high = middle
        else:
            low = middle
        if high - low <= low // _PRECISION:
            break
    return high


IN_FORCE = "in force"
"""The value of ``saves_against`` if the rules in force have a learned head."""

RULES_FILE = "HOT/routing/learned.json"
ROUTE_SETTINGS = {"routing": {"rules": RULES_FILE}}  # They put a learned route in force.
_NANO = 1_000_000_000
_LOOK = "route_look"
HEAD_FILE = "HOT/routing/learned.head.json"
EVIDENCE_FILE = "HOT/routing/learned.evidence.json"


@dataclass(frozen=True, slots=True)
class RouteFit:
    """A learned route and the figures that support it.

    Attributes:
        missing: sentences about what the route lacks to be proposed; empty if it can be proposed.
            With gaps, ``auto`` stays with the best single model.
        held_out: number of prompts behind the figures, each decided without its own answers.
        best_single: the model with the highest mean reward; of models that are less than two
            standard errors below it, the dearest.
        saves_against: ``IN_FORCE`` if the rules in force have a learned head that knows a model,
            else ``best_single``.
        saved: US dollars that a call saves against that; the predicted effect.
        gate: the one-sided estimate of the same, which decides.
        reward: difference of the reward from the best single model's, one-sided.
        usd_per_call: cost of a call in US dollars.
        price_weight: reward that a US dollar is worth.
        shares: share of calls by model.
        weights: the rules that name the head.
        holds: ids of the exchanges whose prompts the head was fitted to.
        evidence: ids of the exchanges of all answers behind the fit and its figures, sorted.
        files: the files of the route by path, see :func:`route_files`.
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
    holds: Sequence[str] = field(repr=False)
    evidence: Sequence[str] = field(repr=False)
    files: Mapping[str, bytes] = field(repr=False)


def fit_route(
    prompts: Sequence[GradedPrompt], usd_per_call: float, *, rules: Weights | None = None,
    quality_floor: float = 0.0, guard: GuardSettings | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    look: Callable[[Sequence[GradedPrompt]], str] = lambda prompts: "",
) -> RouteFit | str:  # fmt: skip
    """Fit a head, and choose the smallest price weight that keeps to ``usd_per_call``.

    The price weight is the reward that a US dollar is worth: the router takes the model with the
    best predicted reward less price weight times cost. If no price weight keeps to the cost, the
    largest is chosen, and ``missing`` of the fit says so. All figures are cross-fitted: each prompt
    is decided by a head that was fitted to the other folds (:func:`fold_of`). Savings are measured
    against the head in force, else against the best single model. Makes no calls and writes
    nothing.

    Args:
        prompts: graded prompts, oldest first; the head is fitted to the latest :data:`MAX_PROMPTS`.
            Costs are those of prompts with an answer of every model. For the reward, prompts whose
            models were drawn count too (doubly robust), if each was asked with probability 0.1 or
            more.
        usd_per_call: highest mean cost of a call in US dollars.
        rules: the rules in force, with their head if any; the shipped ones if ``None``.
        quality_floor: 0 for none. Above 0, the router takes the cheapest model with at least this
            predicted reward, and no price weight is chosen.
        guard: largest accepted loss, and number of looks; the defaults if ``None``.
        progress: called with the number of fitted heads and the number in all; at the end with
            both equal.
        look: called with the prompts of a fit, to count it as a look (:func:`record_look`); returns
            a sentence if the fit may not decide. Its errors are raised.

    Returns:
        The fit, whose ``missing`` states why it may not be proposed; or a sentence about what is
        missing, if nothing can be fitted.
    """
    guard = guard or GuardSettings()
    models = sorted({name for one in prompts for name in one.rewards})
    whole = [one for one in prompts if len(one.rewards) == len(models)]
    found = cross_fitted(prompts, models, progress) if len(models) > 1 else []
    unseen = [one for one in found if len(one.graded.rewards) == len(models)]
    if not unseen:
        progress(FOLDS + 1, FOLDS + 1)
        return (
            f"{len(whole)} prompts have graded answers of all {len(models)} models; a fit needs "
            f"two models or more, and about {pairs_needed(guard.tolerance, 0, looks=guard.looks)} "
            "prompts: `remit route calibrate` makes them."
        )
    best = _best_single(whole, models)
    floor = round(quality_floor * MILLION)
    price_weight = 0 if floor else price_weight_for(unseen, usd_per_call)
    taken = [one.graded for one in unseen]
    names = [one.choice(price_weight, floor) for one in unseen]
    now = _chosen_now(rules, taken, models)
    against = IN_FORCE if now else best
    most = max(cost for one in taken for cost in one.costs.values()) or 1.0
    weights = [one.traffic for one in taken]
    saved, saved_gate = paired_effect(
        [
            one.costs[old] - one.costs[name]
            for one, name, old in zip(taken, names, now or [best] * len(names), strict=True)
        ],
        weights, low=-most, high=most, looks=guard.looks,
    )  # fmt: skip
    differences = [
        one.rewards[name] - one.rewards[best] for one, name in zip(taken, names, strict=True)
    ]
    partly = [
        one
        for one in found
        if len(one.graded.rewards) < len(models)
        and min(one.graded.chances.get(name, 0.0) for name in models) >= _LEAST_CHANCE
    ]
    gains = [_gain(one, one.choice(price_weight, floor), best) for one in partly]
    reward = _reward_of(differences, weights, gains, partly, guard.looks)
    total = sum(weights)
    costs = (one.costs[name] for one, name in zip(taken, names, strict=True))
    usd = sum(map(mul, weights, costs)) / total
    learned = list(prompts[-MAX_PROMPTS:])
    head = fit_head(learned)
    named: dict[str, Any] = {"head": head.digest, "price_weight": price_weight / MILLION}
    if quality_floor:
        named["quality_floor"] = quality_floor
    else:
        named["cap_nano"] = round(usd_per_call * _NANO)
    document = {**(rules or Weights.shipped()).document, "learned": named}
    progress(FOLDS + 1, FOLDS + 1)
    missing = _missing(guard, usd, usd_per_call, saved_gate, against, reward, differences, taken)
    return RouteFit(
        missing=[*missing, *filter(None, [look(prompts)])],
        held_out=len(taken), best_single=best, saves_against=against, saved=saved, gate=saved_gate,
        reward=reward, usd_per_call=usd, price_weight=price_weight / MILLION,
        shares={
            model: sum(w for w, name in zip(weights, names, strict=True) if name == model) / total
            for model in models
        },
        weights=Weights.from_document(document, lambda _: head),
        holds=[one.exchange_id for one in learned],
        evidence=sorted({entry for one in (*learned, *taken) for entry in one.evidence}),
        files=route_files(document, head),
    )  # fmt: skip


def record_look(
    ledger: LedgerClient, route: str, prompts: Sequence[GradedPrompt], *, rules: Weights,
    most: int, what: str = "fit",
) -> str:  # fmt: skip
    """Record a look at a route's grades; return an empty text if the look may decide.

    A look is a ``SIGNAL_OBSERVED`` entry. Looks of the same kind at the same grades are one. Once
    ``most`` looks were recorded under the rules in force, a further one is not recorded, and the
    returned sentence says that it may not decide. With ``most`` 0 nothing is recorded.

    Args:
        ledger: the record of the looks.
        route: name of the route.
        prompts: the graded prompts.
        rules: the rules in force.
        most: number of looks that may decide; 0 for any number.
        what: kind of the look: ``fit`` or ``abilities``.

    Raises:
        LedgerError: the ledger cannot be read or written.
    """
    if not most:
        return ""
    grades: list[Any] = sorted((one.exchange_id, sorted(one.rewards.items())) for one in prompts)
    if what != "fit":
        grades.append(what)
    look = {"kind": _LOOK, "rules": rules.rule_version_hash,
            "grades": sha256_hex(json.dumps(grades).encode())}  # fmt: skip
    looks = [
        entry.metadata
        for entry in ledger.query(event_type="SIGNAL_OBSERVED", submission_id=route)
        if entry.metadata.get("kind") == _LOOK and is_authentic(entry)
    ]
    looks = [one for one in looks if one["rules"] == look["rules"]]
    if look in looks[:most]:
        return ""
    if len(looks) >= most:
        return (
            f"{len(looks)} fits have looked at the grades of the route {route}, and "
            f"[routing.guard] looks permits {most}. If looks is 0, any number may decide."
        )
    said = f"{what} {len(looks) + 1} of {most} that may decide on the route {route}"
    ledger.write(LedgerEntry("SIGNAL_OBSERVED", route, "OBSERVED", said, metadata=look))
    return ""


def route_files(rules: Mapping[str, Any], head: LearnedHead) -> dict[str, bytes]:
    """Return the files of a learned route by path: rules, weights and evidence of the head.

    The paths are ``learned.json``, ``learned.head.json`` and ``learned.evidence.json`` below
    ``HOT/routing/``. Nothing is written.

    Args:
        rules: the rules, with ``learned``; the digest of the head is set in the file's copy.
    """
    document = {**rules, "learned": {**rules["learned"], "head": head.digest}}
    return {
        RULES_FILE: json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n",
        HEAD_FILE: head.encoded,
        EVIDENCE_FILE: head.evidence,
    }


def _gain(one: Unseen, new: str, old: str) -> float:
    """Return the doubly robust difference of two models' rewards for a partly graded prompt."""

    def reward(name: str) -> float:
        predicted = min(1.0, max(0.0, one.qualities[name] / MILLION))
        chance = min(1.0, one.graded.chances[name])
        return doubly_robust(one.graded.rewards.get(name), chance, predicted)

    return reward(new) - reward(old)


def _reward_of(
    differences: Sequence[float], weights: Sequence[float], gains: Sequence[float],
    partly: Sequence[Unseen], looks: int,
) -> Estimate:  # fmt: skip
    """Return the difference of the reward by all prompts, one-sided.

    A partly graded prompt weighs less, as the mean square of its kind is larger. Its difference is
    at most 2 / p - 1 if the models were asked with the probability p or more.
    """
    if not any(gains):
        return one_sided(differences, weights, looks=looks)
    squares = [sum(map(mul, of, of)) / len(of) for of in (differences, gains)]
    scale = min(1.0, squares[0] / squares[1])
    chance = min(1.0, *(chance for one in partly for chance in one.graded.chances.values()))
    return one_sided(
        [*differences, *gains], [*weights, *(scale * one.graded.traffic for one in partly)],
        low=1 - 2 / chance, high=2 / chance - 1, looks=looks,
    )  # fmt: skip


def _missing(
    guard: GuardSettings, usd: float, limit: float, saved: Estimate, against: str,
    reward: Estimate, differences: Sequence[float], prompts: Sequence[GradedPrompt],
) -> list[str]:  # fmt: skip
    """Return a sentence for each condition of a proposal that does not hold."""
    missing = []
    if not any(grade for one in prompts for grade in one.rewards.values()):
        missing.append("Every answer has the grade 0, so the grader may not work: test it.")
    if usd > limit:
        missing.append(f"The route costs {fixed(usd)} USD per call, more than {limit:g}.")
    if saved.low <= 0:
        than = "the current route" if against == IN_FORCE else against
        missing.append(
            f"The route may save nothing compared with {than}: {fixed(saved.low)} to "
            f"{fixed(saved.high)} USD per call."
        )
    if reward.low < -guard.tolerance:
        deviation = sqrt(sum(map(mul, differences, differences)) / len(differences))
        needed = pairs_needed(guard.tolerance, deviation, looks=max(1, guard.looks))
        missing.append(
            f"The route may lose {-reward.low:.4f} of reward, more than {guard.tolerance:g}. "
            f"If it loses nothing, about {needed:,} prompts with graded answers of all models "
            f"show that; there are {len(differences):,}."
        )
    return missing


def _chosen_now(
    rules: Weights | None, prompts: Sequence[GradedPrompt], models: Sequence[str]
) -> list[str]:
    """Return the models that the head in force takes; empty if it knows none of them."""
    if rules is None or rules.head is None or rules.learned is None:
        return []
    learned, head = rules.learned, rules.head
    known = {name: of for name, of in head.models.items() if name in models}
    unseen = unseen_by(replace(head, models=known), prompts) if known else []
    return [one.choice(learned.price_weight, learned.quality_floor) for one in unseen]


def _best_single(whole: Sequence[GradedPrompt], models: Sequence[str]) -> str:
    """Return the model with the highest mean reward; of models that are level, the dearest.

    Two models are level if their means differ by less than two standard errors. The dearest of them
    is the model that a route can save on.
    """
    rewards = {name: sum(one.traffic * one.rewards[name] for one in whole) for name in models}
    costs = {name: sum(one.traffic * one.costs[name] for one in whole) for name in models}
    top = max(models, key=lambda name: (rewards[name], name))

    def is_level(name: str) -> bool:
        differences = [one.traffic * (one.rewards[top] - one.rewards[name]) for one in whole]
        return sum(differences) <= 2 * sqrt(sum(map(mul, differences, differences)))

    return max(filter(is_level, models), key=lambda name: (costs[name], name))
