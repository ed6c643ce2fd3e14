"""The table that a run prints."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

WIDTHS = (37, 10, 10, 9, 5, 11, 7)
TITLES = ("What", "Floor", "Ours", "Ours each", "Ratio", "Spread", "Aim")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The same work done bare and done by Remit, in several rounds.

    Attributes:
        name: what was done.
        floor: the floor's figure of each round.
        ours: Remit's figure of each round.
        callers: how many did it at once, where the figures are rates per second; 0 where they
            are milliseconds.
        aim: what the ratio should be.
    """

    name: str
    floor: list[float]
    ours: list[float]
    callers: int = 0
    aim: str = ""


def row(comparison: Comparison) -> str:
    """One line: medians of the rounds, and the least and the greatest ratio of any round."""
    floor, ours = statistics.median(comparison.floor), statistics.median(comparison.ours)
    ratios = [a / b for a, b in zip(comparison.ours, comparison.floor, strict=True)]
    callers = comparison.callers
    return _line(
        comparison.name,
        f"{floor:,.0f} /s" if callers else f"{floor:.2f} ms",
        f"{ours:,.0f} /s" if callers else f"{ours:.2f} ms",
        f"{1000 * callers / ours if callers else ours:.2f} ms",
        f"{statistics.median(ratios):.2f}",
        f"{min(ratios):.2f} - {max(ratios):.2f}",
        comparison.aim,
    )


def _line(*cells: str) -> str:
    return f"| {' | '.join(cell.ljust(n) for cell, n in zip(cells, WIDTHS, strict=True))} |"


HEADING = f"{_line(*TITLES)}\n{_line(*('-' * width for width in WIDTHS))}"
