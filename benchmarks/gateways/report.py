"""Figures of several rounds as lines of text."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

DECIMALS_BELOW = ((1, 3), (100, 2), (1000, 1))
NOTHING_BELOW = 0.0005


def number(value: float) -> str:
    """With about three digits that mean something."""
    if abs(value) < NOTHING_BELOW:
        return "0"
    for bound, decimals in DECIMALS_BELOW:
        if abs(value) < bound:
            return f"{value:.{decimals}f}"
    return f"{value:,.0f}"


def spread(values: Sequence[float]) -> str:
    """The median, and the least and the greatest where there are several."""
    if not values:
        return "-"
    middle = number(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({number(min(values))}-{number(max(values))})"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns are even."""
    widths = [max(len(line[i]) for line in (titles, *rows)) for i in range(len(titles))]
    lines = [titles, ["-" * width for width in widths], *rows]
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |"
        for line in lines
    )


def ratios(ours: Sequence[float], others: Sequence[float]) -> list[float]:
    """Round by round."""
    return [a / b for a, b in zip(ours, others, strict=False) if b]
