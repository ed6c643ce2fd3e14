"""What a docstring says about a function: its first paragraph, and its ``Args:`` section."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Docstring", "parse"]

_SECTION = re.compile(r"(Args|Arguments|Parameters):\s*")
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")


@dataclass(frozen=True, slots=True)
class Docstring:
    """The parts of a docstring in Google's style.

    Attributes:
        summary: the first paragraph, on one line.
        parameters: descriptions by name, each on one line.
    """

    summary: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)


def parse(text: str) -> Docstring:
    """Read a docstring whose indentation is already removed (``inspect.getdoc``)."""
    lines = text.strip().splitlines()
    first: list[str] = []
    for line in lines:
        if not line.strip() or _SECTION.fullmatch(line):
            break
        first.append(line.strip())
    return Docstring(" ".join(first), _parameters(lines))


def _parameters(lines: list[str]) -> dict[str, str]:
    start = next((n for n, line in enumerate(lines) if _SECTION.fullmatch(line)), len(lines))
    found: dict[str, str] = {}
    indent, name = 0, ""
    for line in lines[start + 1 :]:
        depth = len(line) - len(line.lstrip())
        if not line.strip():
            continue
        if depth == 0:
            break
        indent = indent or depth
        entry = _ENTRY.fullmatch(line.strip()) if depth <= indent else None
        if entry is not None:
            name = entry[1]
            found[name] = entry[2]
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found
