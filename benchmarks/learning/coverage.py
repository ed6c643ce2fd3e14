"""Coverage of predicted effects over simulated proposals, against the true effect."""

from __future__ import annotations

import random
from dataclasses import dataclass

from remit.learning.statistics import Logged, doubly_robust

__all__ = ["Coverage", "predicted_coverage", "table"]

_MODELS = range(3)
_MAX_WEIGHT = 40.0


@dataclass
class Coverage:
    """Proposals simulated, and how many intervals held the true effect."""

    proposals: int = 0
    covered: int = 0  # by the predicted interval
    always_covered: int = 0  # by the always-valid one
    passed: int = 0  # its lower bound is above 0, so it would be proposed
    passed_covered: int = 0  # of those, by the predicted interval
    wrong: int = 0  # of those, the true effect is not above 0


class _World:
    """Three models whose quality falls with a prompt's difficulty, and guesses of it with
    errors."""

    def __init__(self, rng: random.Random, exploration: float) -> None:
        self._quality = [(rng.uniform(0.55, 0.95), rng.uniform(-0.3, 0.1)) for _ in _MODELS]
        noise = rng.uniform(0, 0.15)
        self._errors = [rng.gauss(0, noise) for _ in _MODELS]
        self._incumbent, self._exploration, self._rng = rng.randrange(3), exploration, rng

    def _truth(self, model: int, x: float) -> float:
        base, slope = self._quality[model]
        return min(1.0, max(0.0, base + slope * x))

    def _guess(self, model: int, x: float) -> float:
        return min(1.0, max(0.0, self._truth(model, x) + self._errors[model]))

    def _proposed(self, x: float) -> int:
        return max(_MODELS, key=lambda model: self._guess(model, x))

    def _propensity(self, model: int) -> float:
        return (1 - self._exploration) * (model == self._incumbent) + self._exploration / 3

    def effect(self, points: int = 500) -> float:
        """The true gain, by midpoints over the difficulty, which is uniform."""
        total = 0.0
        for point in range(points):
            x = (point + 0.5) / points
            before = sum(self._propensity(model) * self._truth(model, x) for model in _MODELS)
            total += self._truth(self._proposed(x), x) - before
        return total / points

    def logged(self, exchanges: int) -> list[Logged]:
        """Exchanges under the incumbent with exploration, rewards 0 or 1."""
        rng, rows = self._rng, []
        for _ in range(exchanges):
            x = rng.random()
            explore = rng.random() < self._exploration
            model = rng.randrange(3) if explore else self._incumbent
            proposed = self._proposed(x)
            row = Logged(
                reward=float(rng.random() < self._truth(model, x)),
                propensity=self._propensity(model),
                target=float(model == proposed),
                predicted=self._guess(model, x),
                predicted_target=self._guess(proposed, x),
            )
            rows.append(row)
        return rows


def predicted_coverage(
    proposals: int, exchanges: int, exploration: float, seed: int, *, always: bool = False
) -> Coverage:
    """Simulate proposals with an effective sample size of at least 200, and count."""
    rng, result = random.Random(seed), Coverage()
    while result.proposals < proposals:
        world = _World(rng, exploration)
        rows = world.logged(exchanges)
        predicted = doubly_robust(rows, max_weight=_MAX_WEIGHT)
        if predicted.effective_samples < 200:
            continue
        effect = world.effect()
        covered = predicted.low <= effect <= predicted.high
        result.proposals += 1
        result.covered += covered
        if always:
            bound = doubly_robust(rows, max_weight=3 / exploration, always_valid=True)
            result.always_covered += bound.low <= effect <= bound.high
            if bound.low > 0:
                result.passed += 1
                result.passed_covered += covered
                result.wrong += effect <= 0
    return result


def table(seed: int) -> None:
    """Four ways of logging, 1,000 proposals each; the always-valid bound on 100 of each."""
    print(
        "exchanges exploration | predicted covers | always-valid covers, proposed, wrong, covered"
    )
    total = Coverage()
    for exchanges, exploration in ((700, 1.0), (1000, 0.6), (2000, 0.3), (3000, 0.2)):
        many = predicted_coverage(1000, exchanges, exploration, seed)
        total.proposals += many.proposals
        total.covered += many.covered
        few = predicted_coverage(100, exchanges, exploration, seed + 1, always=True)
        bound = (few.always_covered, few.passed, few.wrong, few.passed_covered)
        print(exchanges, exploration, "|", many.covered / many.proposals, "|", *bound, flush=True)
    print(f"all: {total.covered / total.proposals:.2%} of {total.proposals}")
