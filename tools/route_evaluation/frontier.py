"""What quality can be had for what cost: the non-decreasing concave hull, and the area under it.

RouterBench (arXiv 2403.12031) calls it the non-decreasing convex hull, and the mean height under
it AIQ: two policies reach every point on the line between them by tossing a coin for each prompt,
and a good one never has to pay more for less.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["KEPT", "Frontier", "Point", "area_under", "cost_at", "hull_of", "quality_at"]

KEPT = 0.98
"""Share of the best single model's quality for which a frontier's cost is given."""


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """Mean cost of a prompt in US dollars, and mean quality from 0 to 1."""

    cost_usd: float
    quality: float


@dataclass(frozen=True, slots=True)
class Frontier:
    """The points of policies that belong together.

    Attributes:
        family: what they are called.
        points: those given, in their order.
        hull: see :func:`hull_of`.
        aiq: RouterBench's: :func:`area_under`, between the cheapest and the dearest model.
        kept_usd: see :func:`cost_at`, of :data:`KEPT` of the best single model's quality.
    """

    family: str
    points: tuple[Point, ...]
    hull: tuple[Point, ...]
    aiq: float
    kept_usd: float | None


def hull_of(points: Iterable[Point]) -> tuple[Point, ...]:
    """The corners of the non-decreasing concave hull, by rising cost.

    From the cheapest point (of several the best) to the best point (of several the cheapest).
    """
    hull: list[Point] = []
    for point in sorted(points, key=lambda one: (one.cost_usd, -one.quality)):
        if hull and point.quality <= hull[-1].quality:
            continue
        while len(hull) > 1 and not _turns_right(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return tuple(hull)


def quality_at(hull: Sequence[Point], cost_usd: float) -> float:
    """The quality that a hull reaches for a cost: 0 left of it, and its best right of it."""
    if not hull or cost_usd < hull[0].cost_usd:
        return 0.0
    for left, right in itertools.pairwise(hull):
        if cost_usd < right.cost_usd:
            share = (cost_usd - left.cost_usd) / (right.cost_usd - left.cost_usd)
            return left.quality + share * (right.quality - left.quality)
    return hull[-1].quality


def cost_at(hull: Sequence[Point], quality: float) -> float | None:
    """The least cost at which a hull reaches a quality; ``None`` where it does not."""
    if hull and hull[0].quality >= quality:
        return hull[0].cost_usd
    for left, right in itertools.pairwise(hull):
        if right.quality >= quality:
            share = (quality - left.quality) / (right.quality - left.quality)
            return left.cost_usd + share * (right.cost_usd - left.cost_usd)
    return None


def area_under(hull: Sequence[Point], low_usd: float, high_usd: float) -> float:
    """The mean quality of a hull over the costs from ``low_usd`` to ``high_usd``.

    Where the hull has no point that is so cheap, quality counts as 0. Where both costs are one,
    it is the quality there.
    """
    if high_usd <= low_usd:
        return quality_at(hull, high_usd)
    start = max(low_usd, hull[0].cost_usd) if hull else high_usd
    inside = [one.cost_usd for one in hull if start < one.cost_usd < high_usd]
    stops = [start, *inside, high_usd] if start < high_usd else []
    area = sum(
        (right - left) * (quality_at(hull, left) + quality_at(hull, right)) / 2
        for left, right in itertools.pairwise(stops)
    )
    return area / (high_usd - low_usd)


def _turns_right(first: Point, second: Point, third: Point) -> bool:
    """Whether the way over ``second`` lies above the straight one."""
    rise = (second.quality - first.quality) * (third.cost_usd - first.cost_usd)
    return rise > (third.quality - first.quality) * (second.cost_usd - first.cost_usd)
