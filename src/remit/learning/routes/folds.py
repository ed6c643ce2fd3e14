"""Cross-fitting: each graded prompt is decided by a head that was not fitted to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt

from remit.kernel.canonical import sha256_hex
from remit.learning.held_out import prompt_key
from remit.learning.routes.ridge import GradedPrompt, fit_head, tokens_of
from remit.routing import LearnedHead, buckets_of
from remit.routing.learned_head import MILLION, learned_score

__all__ = [
    "FOLDS", "Unseen", "chosen", "cross_fitted", "fold_of", "price_weight_for", "unseen_by",
]  # fmt: skip

FOLDS = 5
_NO_PREFERENCE = {"ability": MILLION, "cost": MILLION}
_PRECISION = 100_000  # A price weight is found to this part of itself.
_LARGEST_WEIGHT = MILLION * MILLION


@dataclass(frozen=True, slots=True)
class Unseen:
    """A graded prompt, and the predictions of a head that was not fitted to it.

    Attributes:
        graded: the prompt.
        fold: number of the fold, from 0.
        qualities: predicted reward in millionths, by model.
        costs: predicted cost in nano-dollars, by model.
    """

    graded: GradedPrompt
    fold: int
    qualities: Mapping[str, int]
    costs: Mapping[str, int]


def fold_of(one: GradedPrompt) -> int:
    """Return the fold of a prompt, 0 to 4.

    The fold depends on the prompt alone, so later prompts, erasures and repeats do not change it.
    """
    return int(sha256_hex(f"remit fold {prompt_key(one.prompt)}".encode())[:8], 16) % FOLDS


def cross_fitted(
    prompts: Sequence[GradedPrompt],
    models: Collection[str],
    most: int,
    progress: Callable[[int, int], None],
) -> list[Unseen]:
    """Return the prompts with predictions of heads that were fitted to the other folds.

    A fold without prompts in the others is left out.

    Args:
        prompts: graded prompts, oldest first.
        models: models that every head must know; a fold whose head knows fewer is left out.
        most: largest number of prompts of a fit; the latest are taken.
        progress: called with the number of fitted heads and the number in all, one more than folds.
    """
    folds = [fold_of(one) for one in prompts]
    found = []
    for number in range(FOLDS):
        progress(number, FOLDS + 1)
        others = [one for one, fold in zip(prompts, folds, strict=True) if fold != number][-most:]
        head = fit_head(others) if others else None
        if head is None or not head.models.keys() >= set(models):
            continue
        mine = [one for one, fold in zip(prompts, folds, strict=True) if fold == number]
        found += unseen_by(head, mine, number)
    return found


def unseen_by(head: LearnedHead, prompts: Sequence[GradedPrompt], fold: int = 0) -> list[Unseen]:
    """Return prompts with the predictions of a head that was not fitted to them."""
    return [Unseen(one, fold, *predictions(head, one)) for one in prompts]


def predictions(head: LearnedHead, one: GradedPrompt) -> tuple[dict[str, int], dict[str, int]]:
    """Return the predicted rewards in millionths and costs in nano-dollars, by model."""
    seen = buckets_of(one.text, head.buckets)
    return head.qualities(seen), head.costs(seen, tokens_of(one))


def chosen(
    qualities: Mapping[str, int], costs: Mapping[str, int], price_weight: int, quality_floor: int
) -> str:
    """Return the model that a router would choose from these predictions.

    Args:
        qualities: predicted reward in millionths, by model.
        costs: predicted cost in nano-dollars, by model.
        price_weight: the reward that a dollar is worth, in millionths.
        quality_floor: least predicted reward in millionths; 0 for none.
    """
    return min(
        qualities,
        key=lambda name: (
            -learned_score(
                qualities[name],
                costs[name],
                price_weight=price_weight,
                quality_floor=quality_floor,
                factors=_NO_PREFERENCE,
            ),
            name,
        ),
    )


def price_weight_for(
    unseen: Sequence[Unseen], usd_per_call: float, usd: Callable[[GradedPrompt, str], float]
) -> int:
    """Return the smallest price weight, in millionths, with which a call costs at most a cap.

    Found by bisection. If no price weight keeps to the cap, the largest one is returned.

    Args:
        unseen: prompts with predictions.
        usd_per_call: the cap of the mean cost of a call, in US dollars.
        usd: returns the cost of a model's answer to a prompt, in US dollars.
    """
    weights = [one.graded.traffic for one in unseen]
    limit = usd_per_call * sum(weights)

    def keeps(price_weight: int) -> bool:
        return limit >= sum(
            weight * usd(one.graded, chosen(one.qualities, one.costs, price_weight, 0))
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
