"""Curves of running means, as SVG."""

from __future__ import annotations

from collections.abc import Sequence

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP = 860, 140, 60, 20, 48
_EACH = _HEIGHT + 84  # of a panel with its title and its marks
_WINDOW = 100  # values of a running mean
_TICK = 200

Panel = tuple[str, Sequence[float], Sequence[tuple[int, str]]]


def drawn(panels: Sequence[Panel], first: int = 0) -> str:
    """Panels one below the other: title, values in order, and places with what happened there.

    Args:
        panels: each has more than ``first`` values.
        first: value to begin with; what came before counts for running means alone.
    """
    parts = [f'<text x="{_LEFT}" y="18">Mean of the latest {_WINDOW} exchanges</text>']
    for number, panel in enumerate(panels):
        parts += _panel(panel, _TOP + number * _EACH, first)
    height = _TOP + len(panels) * _EACH - 16
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
        + "\n".join(parts)
        + "</svg>\n"
    )


def _panel(panel: Panel, top: int, first: int) -> list[str]:
    title, values, marks = panel
    ends = range(max(first, 20), len(values) + 1, 5)
    means = [_mean(values[max(0, end - _WINDOW) : end]) for end in ends]
    low, high = min(means), max(means)
    pad = (high - low) * 0.1 or 1.0
    right, bottom = _WIDTH - _RIGHT, top + _HEIGHT

    def x(place: float) -> float:
        return _LEFT + (place - first) / (len(values) - first) * (right - _LEFT)

    def y(value: float) -> float:
        return bottom - (value - low + pad) / (high - low + 2 * pad) * _HEIGHT

    parts = [
        f'<text x="{_LEFT}" y="{top - 8}" font-weight="bold">{title}</text>',
        f'<rect x="{_LEFT}" y="{top}" width="{right - _LEFT}" height="{_HEIGHT}" '
        'fill="none" stroke="#999"/>',
    ]
    for value in (low, high):
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.4f}</text>'
        )
    for place in range(first - first % -_TICK, len(values), _TICK):
        if any(abs(x(place) - x(mark)) < 20 for mark, _ in marks):
            continue
        parts.append(
            f'<line x1="{x(place):.1f}" x2="{x(place):.1f}" y1="{bottom}" y2="{bottom + 4}" '
            f'stroke="#999"/><text x="{x(place):.1f}" y="{bottom + 16}" fill="#555" '
            f'font-size="11" text-anchor="middle">{place:,}</text>'
        )
    for number, (place, what) in enumerate(marks):  # no label covers a near one, or its line
        at, below = x(place), bottom + 56 - number % 3 * 13
        anchor, to = ("end", at - 3) if at > right - 150 else ("start", at + 3)
        parts.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{below}" '
            'stroke="#c33" stroke-dasharray="4 3"/>'
            f'<text x="{to:.1f}" y="{below}" font-size="11" text-anchor="{anchor}">{what}</text>'
        )
    points = " ".join(f"{x(end):.1f},{y(mean):.1f}" for end, mean in zip(ends, means, strict=True))
    return [*parts, f'<polyline points="{points}" fill="none" stroke="#236" stroke-width="1.6"/>']


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
