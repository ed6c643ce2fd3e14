"""The number of graded prompts, and the dollars, that a saving route takes to be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf, sqrt
from typing import Any

from remit.kernel.settings import GuardSettings
from remit.learning.routes.ridge import GradedPrompt, tokens_of
from remit.learning.statistics import pairs_needed
from remit.routing import Candidate

_NANO = 1_000_000_000
_MILLION = 1_000_000
_DIFFERING = 0.15
"""Assumed share of prompts for which two models' rewards differ by 1."""

_ASSUMED = 50  # The assumption counts as so many graded prompts.
_POWER = 0.8
_TOKENS = 500
"""Assumed tokens of an answer, and of a prompt if none is known."""


@dataclass(frozen=True, slots=True)
class PowerPlan:
    """The evidence that a fit needs to show a saving.

    Attributes:
        saving_usd: the saving to detect, in US dollars a call.
        loss: the largest accepted loss of reward.
        power: probability of acceptance if the route saves that and loses nothing.
        looks: number of fits that may decide, fixed in advance.
        differing: mean squared difference of two models' rewards that the plan assumes.
        prompts: number of prompts that need graded answers of every model.
        graded: number of prompts that have them.
        usd: expected cost of the missing answers in US dollars.
    """

    saving_usd: float
    loss: float
    power: float
    looks: int
    differing: float
    prompts: int
    graded: int
    usd: float

    @property
    def missing(self) -> int:
        """Number of prompts that still need graded answers of every model."""
        return max(0, self.prompts - self.graded)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, and ``missing``, as JSON data."""
        return {**asdict(self), "missing": self.missing}

    def text(self) -> str:
        """Return the plan as a sentence."""
        more = f"{self.missing:,} more, about {self.usd:.2f} USD" if self.missing else "all graded"
        return (
            f"To show a saving of {self.saving_usd:.6f} USD a call at a loss of at most "
            f"{self.loss:g} of reward takes about {self.prompts:,} prompts with graded answers of "
            f"every model ({more})."
        )


def power_plan(
    prompts: Sequence[GradedPrompt], candidates: Sequence[Candidate], *,
    saving_usd: float | None = None, guard: GuardSettings | None = None,
    asked: Sequence[GradedPrompt] = (), max_tokens: int = _TOKENS,
) -> PowerPlan:  # fmt: skip
    """Return how many graded prompts and dollars a fit needs to detect a saving.

    The plan uses only the sizes of differences, never their signs, so that planning is no look at
    the result. Without graded prompts, the plan assumes that 15 % of the rewards differ.

    Args:
        prompts: graded prompts; their models are candidates.
        saving_usd: the saving to detect in US dollars a call, above 0; ``None`` for half of the
            dearest model's mean cost.
        guard: number of looks and tolerance; the defaults if ``None``.
        asked: prompts that are to be asked; their lengths price the calls of models that have not
            answered yet. Without any, a prompt has 500 tokens.
        max_tokens: output limit of a call; an answer is expected to have at most 500 tokens.

    Raises:
        InvalidInputError: the saving is not above 0.
    """
    guard = guard or GuardSettings()
    names = [one.model_id for one in candidates]
    looks = max(1, guard.looks)
    lengths = [tokens_of(one) for one in asked] or [_TOKENS]
    usd = _usd_of(prompts, candidates, sum(lengths) / len(lengths), min(_TOKENS, max_tokens))
    dearest = max(usd.values(), default=0.0)
    saving = dearest / 2 if saving_usd is None else saving_usd
    whole = [one for one in prompts if one.rewards.keys() >= set(names)]
    pairs = [(one, other) for one in names for other in names if one < other]
    squares = max(
        (sum((p.rewards[a] - p.rewards[b]) ** 2 for p in whole) for a, b in pairs), default=0.0
    )
    differing = (squares + _ASSUMED * _DIFFERING) / (len(whole) + _ASSUMED)
    needed = pairs_needed(guard.tolerance, sqrt(differing), looks=looks, power=_POWER)
    costs = [cost for one in prompts for cost in one.costs.values()] or [dearest]
    if saving > 0:
        spread = sqrt(sum(cost * cost for cost in costs) / len(costs))
        shown = pairs_needed(
            0, spread, effect=saving, worst=max(costs), looks=looks, power=_POWER
        )  # fmt: skip
        needed = max(needed, shown)
    lacking = sorted(
        sum(usd[name] for name in names if name not in one.rewards) for one in prompts
    )[:needed]
    return PowerPlan(
        saving_usd=saving, loss=guard.tolerance, power=_POWER, looks=guard.looks,
        differing=differing, prompts=needed, graded=len(whole),
        usd=sum(lacking) + (needed - len(lacking)) * sum(usd.values()),
    )  # fmt: skip


def _usd_of(
    prompts: Sequence[GradedPrompt], candidates: Sequence[Candidate], asked: float, answered: float
) -> Mapping[str, float]:
    """Return the expected cost of an answer by model: recorded, else by the ratio of prices."""
    listed = {
        one.model_id: inf
        if one.input_price is None or one.output_price is None
        else (one.input_price * asked + one.output_price * answered) / _MILLION / _NANO
        for one in candidates
    }
    costs = {name: [one.costs[name] for one in prompts if name in one.costs] for name in listed}
    recorded = {name: sum(known) / len(known) for name, known in costs.items() if known}
    scale = min(
        (usd / listed[name] for name, usd in recorded.items() if 0 < listed[name] < inf),
        default=1.0,
    )
    return {
        name: recorded.get(name, scale * price if price < inf else 0.0)
        for name, price in listed.items()
    }
