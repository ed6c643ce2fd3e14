"""Curves of running means, as SVG."""

from __future__ import annotations

from collections.abc import Sequence

_WIDTH, _HEIGHT, _LEFT, _TOP = 860, 150, 60, 30
_WINDOW = 100  # values of a running mean


def drawn(panels: Sequence[tuple[str, Sequence[float], Sequence[tuple[int, str]]]]) -> str:
    """Panels one below the other: title, values in order, and places with what happened there."""
    parts = []
    for number, (title, values, marks) in enumerate(panels):
        means = [
            sum(values[max(0, end - _WINDOW) : end]) / min(_WINDOW, end)
            for end in range(20, len(values) + 1, 5)
        ]
        low, high = min(means), max(means)
        pad = (high - low) * 0.1 or 1.0
        low, high = low - pad, high + pad
        top = _TOP + number * (_HEIGHT + 60)

        def x(place: float, count: int = len(values)) -> float:
            return _LEFT + place / count * (_WIDTH - _LEFT - 20)

        def y(value: float, low: float = low, high: float = high, top: int = top) -> float:
            return top + _HEIGHT - (value - low) / (high - low) * _HEIGHT

        points = " ".join(f"{x(20 + 5 * i):.1f},{y(mean):.1f}" for i, mean in enumerate(means))
        parts.append(f'<text x="{_LEFT}" y="{top - 8}" font-weight="bold">{title}</text>')
        parts.append(
            f'<rect x="{_LEFT}" y="{top}" width="{_WIDTH - _LEFT - 20}" height="{_HEIGHT}" '
            'fill="none" stroke="#999"/>'
        )
        for value in (low + pad, high - pad):
            parts.append(f'<text x="4" y="{y(value) + 4:.1f}">{value:.4f}</text>')
        for row, (place, what) in enumerate(marks):  # near ones do not cover each other
            at, below = x(place), top + _HEIGHT + 14 + row % 3 * 13
            parts.append(
                f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{top + _HEIGHT}" '
                'stroke="#c33" stroke-dasharray="4 3"/>'
                f'<text x="{at:.1f}" y="{below}" font-size="11">{what}</text>'
            )
        parts.append(f'<polyline points="{points}" fill="none" stroke="#236" stroke-width="1.6"/>')
    height = _TOP + len(panels) * (_HEIGHT + 60)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
        + "\n".join(parts)
        + "</svg>\n"
    )
