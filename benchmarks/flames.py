"""A flame graph, as SVG without scripts, of folded stacks (``frame;frame;frame count``)."""

from __future__ import annotations

import html
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

WIDTH, ROW, FONT = 1600, 17, 11
LETTER = 6.7  # px of a letter, about
LEAST = 0.0015  # part of all that is drawn
HUES = {"remit/": 10, ".py)": 45}  # first that a frame's name holds; native ones otherwise
NATIVE_HUE = 200


@dataclass
class Flame:
    """A function where others called it.

    Attributes:
        samples: that met it or what it called.
        above: what it called, by name.
    """

    samples: int = 0
    above: dict[str, Flame] = field(default_factory=dict)

    def add(self, stack: Iterable[str], samples: int) -> None:
        """One folded stack."""
        flame = self
        flame.samples += samples
        for name in stack:
            flame = flame.above.setdefault(name, Flame())
            flame.samples += samples

    def height(self, least: float) -> int:
        """Rows that are drawn."""
        drawn = [flame.height(least) for flame in self.above.values() if flame.samples >= least]
        return 1 + max(drawn, default=0)


def svg(root: Flame, title: str) -> str:
    """The picture; a box's title says its name, samples and share."""
    least = max(1.0, LEAST * root.samples)
    height = (root.height(least) + 2) * ROW
    boxes: list[str] = []

    def draw(name: str, flame: Flame, left: float, level: int) -> None:
        width = WIDTH * flame.samples / root.samples
        share = 100 * flame.samples / root.samples
        shown = html.escape(_cut(name, width))
        hue = next((hue for part, hue in HUES.items() if part in name), NATIVE_HUE)
        light = 66 + zlib.crc32(name.encode()) % 14
        y = height - (level + 1) * ROW
        boxes.append(
            f"<g><title>{html.escape(name)}: {flame.samples} samples, {share:.1f} %</title>"
            f'<rect x="{left:.1f}" y="{y}" width="{max(width - 0.3, 0.3):.1f}" height="{ROW - 1}" '
            f'fill="hsl({hue},75%,{light}%)"/>'
            + (f'<text x="{left + 2:.1f}" y="{y + 12}">{shown}</text>' if shown else "")
            + "</g>"
        )
        for above, one in sorted(flame.above.items()):
            if one.samples >= least:
                draw(above, one, left, level + 1)
            left += WIDTH * one.samples / root.samples

    draw("all", root, 0.0, 0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="monospace" font-size="{FONT}">'
        f'<rect width="100%" height="100%" fill="#fff"/><text x="4" y="14">{html.escape(title)}'
        f"</text>{''.join(boxes)}</svg>\n"
    )


def _cut(name: str, width: float) -> str:
    letters = int((width - 4) / LETTER)
    if letters < 3:
        return ""
    return name if len(name) <= letters else f"{name[: letters - 1]}…"
