"""Ways to spend a cap on held-out prompts: rules, bisection, the controller, and their limits.

    python -m benchmarks.learning cap --seed 1

Two sets: the recorded answers of ``paretobandit`` (left out of the tree), and a set made here whose
prompts, answers and costs vary in length. Each draw fits to 350 prompts. All costs are shares of
the best model's mean cost on the held-out prompts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from statistics import fmean, stdev

from benchmarks.learning.recorded import MODELS, read
from remit.learning.routes import GradedPrompt, fit_head
from remit.learning.routes.route_fit import (
    Unseen,
    cross_fitted,
    price_weight_for,
    unseen_by,
)
from remit.routing.learned_head import next_balance, steered_weight

_DRAWS = 20
_LEARNED = 350
_SHARES = (0.25, 0.33, 0.5, 0.75)
_NEIGHBOURS = 15
_NANO = 1_000_000_000


def table(seed: int) -> None:
    """Print reward and spend of each way, with 95 % intervals over the draws."""
    recorded = [_graded(n, row.prompt, row.rewards, row.costs) for n, row in enumerate(read("val"))]
    held = [_graded(n, row.prompt, row.rewards, row.costs)
            for n, row in enumerate(read("test_holdout"))]  # fmt: skip
    made = made_prompts(3_000, seed)
    for name, pool, test in (("paretobandit", recorded, held), ("made", made[:1500], made[1500:])):
        _compare(name, pool, test, seed)


def made_prompts(count: int, seed: int) -> list[GradedPrompt]:
    """Prompts of ten kinds whose lengths differ, with three models of different price and skill."""
    draw, found = random.Random(f"cap {seed}"), []
    kinds = [
        (f"topic{kind}", draw.uniform(0.2, 1.0), draw.choice((1, 2, 8, 30))) for kind in range(10)
    ]
    for number in range(count):
        topic, hardness, answer = draw.choice(kinds)
        words = round(10 * 2 ** draw.uniform(0, 6))
        text = " ".join([topic, f"n{number}", *draw.choices(_WORDS, k=words)])
        hard = hardness * draw.uniform(0.6, 1.2)
        rewards, costs = [], []
        for skill, price in ((0.55, 0.1), (0.8, 1.0), (0.97, 8.0)):
            right = draw.random() < max(0.05, min(0.99, 1.45 * skill - 0.8 * hard + 0.1))
            tokens = 60 * answer * draw.uniform(0.6, 1.6)
            rewards.append(float(right))
            costs.append((0.25 * words * 1.4 + tokens) * price / 1e6)
        found.append(_graded(number, text, rewards, costs))
    return found


_WORDS = tuple(f"word{number}" for number in range(400))


def _graded(
    number: int, text: str, rewards: Sequence[float], costs: Sequence[float]
) -> GradedPrompt:
    read_part = text if len(text) <= 1200 else f"{text[:600]}\n{text[-600:]}"
    return GradedPrompt(
        f"LED-{number:08x}", text, read_part, "chat",
        dict(zip(MODELS, rewards, strict=True)), dict(zip(MODELS, costs, strict=True)),
    )  # fmt: skip


def _compare(
    name: str, pool: Sequence[GradedPrompt], held: Sequence[GradedPrompt], seed: int
) -> None:
    best = max(MODELS, key=lambda model: fmean(one.rewards[model] for one in held))
    whole = fmean(one.costs[best] for one in held)
    all_data = unseen_by(fit_head(pool), held)
    truth = [
        Unseen(one, {m: round(1e6 * one.rewards[m]) for m in MODELS},
               {m: round(_NANO * one.costs[m]) for m in MODELS})
        for one in held
    ]  # fmt: skip
    fixed = {
        share: {
            "all data": _taken(all_data, price_weight_for(all_data, share * whole)),
            "oracle": _taken(truth, price_weight_for(truth, share * whole)),
        }
        for share in _SHARES
    }
    found: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for number in range(_DRAWS):
        learned = random.Random(f"{seed} {number}").sample(list(pool), _LEARNED)
        folds = cross_fitted(learned, MODELS, lambda done, total: None)
        head = fit_head(learned)
        test = unseen_by(head, held)
        level = [replace(one, costs={m: head.models[m].cost_nano for m in MODELS}) for one in test]
        level_folds = [
            replace(one, costs={m: head.models[m].cost_nano for m in MODELS}) for one in folds
        ]
        near = _nearest(head, learned, test)
        order = list(range(len(held)))
        random.Random(f"order {seed} {number}").shuffle(order)
        for share in _SHARES:
            cap = share * whole
            weight = price_weight_for(folds, cap)
            ways = {
                "before": _taken(level, _with_headroom(level_folds, cap)),
                "bisection": _taken(test, weight),
                "controller": _steered(test, order, weight, cap),
                "frontier": _taken(test, price_weight_for(test, cap)),
                "neighbours": _taken(near, price_weight_for(near, cap)),
                **fixed[share],
            }
            for way, names in ways.items():
                found.setdefault((way, share), []).append((
                    fmean(one.rewards[m] for one, m in zip(held, names, strict=True)),
                    fmean(one.costs[m] for one, m in zip(held, names, strict=True)) / cap,
                ))  # fmt: skip
    print(f"{name}: {len(held)} held-out prompts, {_DRAWS} draws of {_LEARNED}, seed {seed}")
    for share in _SHARES:
        print(f" cap {share:.0%} of {best}")
        before = [reward for reward, _ in found["before", share]]
        limit = [reward for reward, _ in found["frontier", share]]
        for way in ("before", "bisection", "controller", "frontier", "neighbours", "all data",
                    "oracle"):  # fmt: skip
            rewards = [reward for reward, _ in found[way, share]]
            spent = fmean(part for _, part in found[way, share])
            gains = _mean_interval([a - b for a, b in zip(rewards, before, strict=True)])
            short = _mean_interval([a - b for a, b in zip(rewards, limit, strict=True)])
            print(f"  {way:<11} {fmean(rewards):.4f} at {spent:.3f} of the cap; against before "
                  f"{gains}; against the frontier {short}", flush=True)  # fmt: skip


def _taken(prompts: Sequence[Unseen], price_weight: int) -> list[str]:
    return [one.choice(price_weight) for one in prompts]


def _steered(
    prompts: Sequence[Unseen], order: Sequence[int], price_weight: int, cap: float
) -> list[str]:
    """Return the models by the controller in force, which sees real costs in a random order."""
    names, balance, nano = [""] * len(prompts), 0, round(cap * _NANO)
    for place in order:
        one = prompts[place]
        weight = steered_weight(price_weight, nano, balance)
        names[place] = one.choice(weight)
        balance = next_balance(balance, round(one.graded.costs[names[place]] * _NANO), nano)
    return names


def _with_headroom(prompts: Sequence[Unseen], cap: float) -> int:
    """Return the first of the steps of the earlier rule that leaves one standard error of cost."""
    for step in range(80):
        weight = round(0.01 * 1.15**step * 1_000_000)
        costs = [one.graded.costs[one.choice(weight)] for one in prompts]
        if fmean(costs) + stdev(costs) / sqrt(len(costs)) <= cap:
            break
    return weight


def _nearest(head: object, learned: Sequence[GradedPrompt], test: Sequence[Unseen]) -> list[Unseen]:
    """Return predictions by the mean of the most similar prompts."""
    from remit.routing import LearnedHead, buckets_of

    assert isinstance(head, LearnedHead)
    known = [(frozenset(buckets_of(one.text, head.buckets)), one) for one in learned]
    found = []
    for one in test:
        seen = set(buckets_of(one.graded.text, head.buckets))
        ranked = sorted(
            known, key=lambda pair: -(len(seen & pair[0]) ** 2) / (len(pair[0]) or 1)
        )[:_NEIGHBOURS]  # fmt: skip
        near = [other for _, other in ranked]
        found.append(replace(
            one,
            qualities={m: round(1e6 * fmean(o.rewards[m] for o in near)) for m in MODELS},
            costs={m: round(_NANO * fmean(o.costs[m] for o in near)) for m in MODELS},
        ))  # fmt: skip
    return found


def _mean_interval(values: Sequence[float]) -> str:
    half = 2.093 * stdev(values) / sqrt(len(values))
    return f"{fmean(values):+.4f} ({fmean(values) - half:+.4f} to {fmean(values) + half:+.4f})"
