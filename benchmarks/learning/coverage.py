"""Coverage of the effects that proposals predict, over simulated ones, against the true effect."""

from __future__ import annotations

import random
from dataclasses import dataclass

from remit.learning import Estimate, doubly_robust, paired_effect
from remit.learning.routes import GradedPrompt, RouteFit, fit_route
from remit.routing import Candidate, ScoringInputs, score_candidates

__all__ = ["Coverage", "logged_coverage", "replay_coverage", "route_coverage", "table"]

_MODELS = range(3)
_NAMES = ("dear", "middle", "plain")
_TOPICS = 12


@dataclass
class Coverage:
    """Predictions simulated, and how many intervals held the true effect."""

    made: int = 0
    covered: int = 0
    always_covered: int = 0  # by the always-valid interval
    proposed: int = 0  # whose always-valid lower bound is above 0
    proposed_covered: int = 0  # of those, by the predicted interval
    wrong: int = 0  # of those, the true effect is not above 0

    def add(self, predicted: Estimate, gate: Estimate, effect: float) -> None:
        """Count one."""
        covered = predicted.low <= effect <= predicted.high
        self.made += 1
        self.covered += covered
        self.always_covered += gate.low <= effect <= gate.high
        if gate.low > 0:
            self.proposed += 1
            self.proposed_covered += covered
            self.wrong += effect <= 0

    def __str__(self) -> str:
        return (
            f"{self.covered / self.made:.1%} of {self.made}, always valid "
            f"{self.always_covered / self.made:.1%}; proposed {self.proposed}, of these "
            f"{self.proposed_covered / max(1, self.proposed):.1%}; wrong {self.wrong}"
        )


def replay_coverage(proposals: int, pairs: int, seed: int, *, most: float = 0.4) -> Coverage:
    """A prompt is changed: grades 0 or 1 before and after, on held-out exchanges.

    Up to ``most`` of the answers become better, and up to a quarter of that worse.
    """
    rng, result = random.Random(seed), Coverage()
    for _ in range(proposals):
        better, worse = rng.uniform(0, most), rng.uniform(0, most / 4)
        differences = [
            float(draw < better) - float(better <= draw < better + worse)
            for draw in (rng.random() for _ in range(pairs))
        ]
        result.add(*paired_effect(differences), better - worse)
    return result


def route_coverage(proposals: int, graded: int, seed: int) -> Coverage:
    """A routing head is fitted; what cross-fitting says it saves against what it saves on all.

    A prompt is of one of twelve topics, which its words show; by topic each of three models has a
    mean reward, and a log-normal cost.
    """
    rng, result = random.Random(seed), Coverage()
    while result.made < proposals:
        world = _Topics(rng)
        prompts = [world.prompt(rng, number) for number in range(graded)]
        fit = fit_route(prompts, world.middle())
        if isinstance(fit, RouteFit):
            result.add(fit.saved, fit.gate, world.saved(fit))
    return result


class _Topics:
    """Rewards and costs by topic and model."""

    def __init__(self, rng: random.Random) -> None:
        self._reward = [
            [min(1.0, max(0.0, rng.gauss(mean, 0.15))) for mean in (0.93, 0.85, 0.75)]
            for _ in range(_TOPICS)
        ]
        self._cost = [
            [mean * rng.uniform(0.5, 2) for mean in (0.015, 0.004, 0.0005)] for _ in range(_TOPICS)
        ]

    def middle(self) -> float:
        """A cost of a call that both dear and cheap models are needed for."""
        return sum(costs[0] for costs in self._cost) / _TOPICS * 0.5

    def prompt(self, rng: random.Random, number: int) -> GradedPrompt:
        """A prompt with graded answers of all."""
        topic = rng.randrange(_TOPICS)
        rewards, costs = self._reward[topic], self._cost[topic]
        return GradedPrompt(
            exchange_id=f"LED-{number:08x}",
            prompt=f"{number}: {_text(topic)}",
            text=_text(topic),
            task="general",
            rewards={
                name: float(rng.random() < rewards[place]) for place, name in enumerate(_NAMES)
            },
            # exp(-0.18) makes the mean of a log-normal with sigma 0.6 one
            costs={
                name: costs[place] * 0.835270211 * rng.lognormvariate(0, 0.6)
                for place, name in enumerate(_NAMES)
            },
        )

    def saved(self, fit: RouteFit) -> float:
        """What a call costs less on average, by the means of all topics."""
        candidates = [Candidate(name, "simulated") for name in _NAMES]
        total = 0.0
        for topic, costs in enumerate(self._cost):
            chosen = score_candidates(
                ScoringInputs(_text(topic), "any", "", candidates, fit.weights)
            ).winner
            total += costs[_NAMES.index(fit.best_single)] - costs[_NAMES.index(chosen)]
        return total / _TOPICS


def _text(topic: int) -> str:
    return f"About topic{topic} and what follows from it{topic}"


def logged_coverage(estimates: int, exchanges: int, exploration: float, seed: int) -> Coverage:
    """Off-policy: the mean of :func:`doubly_robust` over logged decisions that explored.

    Three models' quality falls with a prompt's difficulty, and guesses of it have errors. Estimates
    of fewer than 200 effective samples are left out.
    """
    rng, result = random.Random(seed), Coverage()
    while result.made < estimates:
        world = _World(rng, exploration)
        gains, weights = zip(*world.logged(exchanges), strict=True)
        if sum(weights) ** 2 >= 200 * sum(weight * weight for weight in weights):
            bound = 1 + 3 / exploration
            result.add(*paired_effect(gains, low=-bound, high=bound), world.effect())
    return result


class _World:
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

    def logged(self, exchanges: int) -> list[tuple[float, float]]:
        """Doubly robust gain and weight of exchanges with exploration, rewards 0 or 1."""
        rng, rows = self._rng, []
        for _ in range(exchanges):
            x = rng.random()
            explore = rng.random() < self._exploration
            model = rng.randrange(3) if explore else self._incumbent
            proposed = self._proposed(x)
            chance = self._propensity(model)
            reward = float(rng.random() < self._truth(model, x))
            given = reward if model == proposed else None
            value = doubly_robust(given, chance, self._guess(proposed, x))
            rows.append((value - reward, float(model == proposed) / chance))
        return rows


def table(seed: int) -> None:
    """Replays and routes as they are proposed, and off-policy estimates; a line for each size."""
    print("coverage of predicted 95 % intervals")
    for pairs in (20, 50, 100, 200, 400, 800):
        print(f"replay, {pairs} pairs:", replay_coverage(2000, pairs, seed), flush=True)
        rare = replay_coverage(2000, pairs, seed, most=0.1)
        print(f"replay, {pairs} pairs, few changes:", rare, flush=True)
    for graded in (300, 600):
        print(f"route, {graded} prompts:", route_coverage(300, graded, seed), flush=True)
    for exchanges, share in ((700, 1.0), (1000, 0.6), (2000, 0.3)):
        estimated = logged_coverage(100, exchanges, share, seed)
        print(f"logged, {exchanges} of which {share:.0%} explored:", estimated, flush=True)
