"""The table that a run prints."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

WIDTHS = (57, 12, 12, 9, 5, 13, 9)
TITLES = ("What", "Floor", "Ours", "Ours each", "Ratio", "Spread", "Aim")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The same work done bare and done by Remit, in several rounds.

    Attributes:
        name: what was done.
        floor: the floor's figure of each round.
        ours: Remit's figure of each round.
        callers: how many did it at once, where the figures are rates per second; 0 where they
            are not.
        aim: what the ratio should be.
        unit: of figures that are no rates.
    """

    name: str
    floor: list[float]
    ours: list[float]
    callers: int = 0
    aim: str = ""
    unit: str = "ms"


@dataclass(frozen=True, slots=True)
class Figure:
    """Something that has no floor, only a bound.

    Attributes:
        name: what was measured.
        values: the figures of all rounds.
        unit: of the figures.
        aim: what the median should be.
    """

    name: str
    values: list[float]
    unit: str
    aim: str = ""


def row(line: Comparison | Figure) -> str:
    """One line of the table."""
    return _figure(line) if isinstance(line, Figure) else _comparison(line)


def _figure(figure: Figure) -> str:
    """The median, the least and the greatest."""
    low, high = min(figure.values), max(figure.values)
    median = f"{_number(statistics.median(figure.values))} {figure.unit}"
    spread = f"{_number(low)} - {_number(high)}" if len(figure.values) > 1 else ""
    return _line(figure.name, "", median, "", "", spread, figure.aim)


def _number(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _comparison(comparison: Comparison) -> str:
    """Medians of the rounds, and the least and the greatest ratio of any round."""
    floor, ours = statistics.median(comparison.floor), statistics.median(comparison.ours)
    ratios = [a / b for a, b in zip(comparison.ours, comparison.floor, strict=True)]
    callers = comparison.callers
    return _line(
        comparison.name,
        f"{floor:,.0f} /s" if callers else f"{_number(floor)} {comparison.unit}",
        f"{ours:,.0f} /s" if callers else f"{_number(ours)} {comparison.unit}",
        f"{1000 * callers / ours:.3f} ms" if callers else "",
        f"{statistics.median(ratios):.2f}",
        f"{min(ratios):.2f} - {max(ratios):.2f}",
        comparison.aim,
    )


def _line(*cells: str) -> str:
    return f"| {' | '.join(cell.ljust(n) for cell, n in zip(cells, WIDTHS, strict=True))} |"


HEADING = f"{_line(*TITLES)}\n{_line(*('-' * width for width in WIDTHS))}"
