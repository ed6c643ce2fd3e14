"""RouterArena's score of one policy: quality and the logarithm of cost in one figure.

Source: RouterArena (arXiv 2510.00202), ``compute_arena_score`` of its repository
RouteWorks/RouterArena, with its constants. Only scores of the same set of prompts compare.
"""

from __future__ import annotations

import math

__all__ = ["arena_score"]

_BETA = 0.1
_DEAREST_USD = 200.0
_CHEAPEST_USD = 0.0044


def arena_score(quality: float, cost_usd: float) -> float | None:
    """``(1 + b) A C / (b A + C)``, ``C = log2(200 / c) / log2(200 / 0.0044)``, ``b = 0.1``.

    As in RouterArena, nothing is clipped: below 0.0044 dollars ``C`` exceeds 1.

    Args:
        quality: mean, from 0 to 1 (``A``).
        cost_usd: mean of a prompt in US dollars; ``c`` is that of 1,000.

    Returns:
        The score, mostly from 0 to 1; ``None`` where ``c`` is 0, or 200 and more: the logarithm
        has no value there, or no meaning.
    """
    cost = cost_usd * 1000
    if not 0 < cost < _DEAREST_USD:
        return None
    cheapness = math.log2(_DEAREST_USD / cost) / math.log2(_DEAREST_USD / _CHEAPEST_USD)
    return (1 + _BETA) * quality * cheapness / (_BETA * quality + cheapness)
