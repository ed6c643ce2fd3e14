"""Lines with branches: a tree in the terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field

from remit.views.wording import visible

__all__ = ["Node", "Part", "Tree"]

_STYLES = {"plain": "", "bold": "1", "dim": "2", "good": "32", "bad": "31", "wait": "33",
           "name": "36"}  # fmt: skip
_LEAST = 20  # columns for a text, however deep it is

Part = tuple[str, str]
"""A text and its style: plain, bold, dim, good, bad, wait, name."""


@dataclass(slots=True)
class Node:
    """A line, and the lines below it. ``body`` is content: it may be cut to the width."""

    head: list[Part]
    body: str = ""
    below: list[Node] = field(default_factory=list)


class Tree:
    """Makes lines of nodes. What a node says is shown, never obeyed.

    Args:
        colour: whether styles are ANSI colours.
        width: columns that bodies are cut to.
        full: cut nothing.
    """

    def __init__(self, colour: bool, width: int, full: bool) -> None:
        self._colour = colour
        self._width = width
        self._full = full

    def lines(self, node: Node, prefix: str = "", indent: str = "") -> Iterator[str]:
        """The lines of one node without those below it."""
        head: list[str] = []
        columns = _columns(prefix)
        for text, style in node.head:
            shown = _visible(text)
            if shown:
                columns += _columns(shown) + (2 if head else 0)
                head.append(self._paint(shown, style))
        line = prefix + "  ".join(head)
        if not node.body:
            yield line.rstrip()
        elif self._full:
            first, *rest = _lines_of(node.body)
            yield f"{line}  {first}".rstrip()
            for more in rest:
                yield f"{indent}    {more}".rstrip()
        else:
            room = max(_LEAST, self._width - columns - 2)
            yield f"{line}  {_cut(_visible(node.body), room)}"

    def branch(self, node: Node, indent: str, last: bool) -> Iterator[str]:
        """One node and all below it."""
        beneath = indent + ("   " if last else "│  ")
        stem = "│" if node.below else " "
        yield from self.lines(node, indent + ("└─ " if last else "├─ "), beneath + stem)
        for position, item in enumerate(node.below):
            yield from self.branch(item, beneath, position == len(node.below) - 1)

    def _paint(self, text: str, style: str) -> str:
        code = _STYLES[style]
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour and code else text


def _visible(text: str) -> str:
    """One line that can only be read."""
    return visible(" ".join(text.split()))


def _lines_of(text: str) -> list[str]:
    return [visible(line.expandtabs(4)) for line in text.splitlines()] or [""]


def _columns(text: str) -> int:
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def _cut(text: str, room: int) -> str:
    if _columns(text) <= room:
        return text
    kept, columns = [], 1
    for char in text:
        columns += _columns(char)
        if columns > room:
            break
        kept.append(char)
    return "".join(kept) + "…"
