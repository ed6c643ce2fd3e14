"""What changed in a file, line by line, whatever the file holds."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remit.packages.json_text import parse_json

__all__ = ["DiffLimits", "json_of", "text_diff"]

_CONTEXT = 3  # lines around a change, as diff -u has them


@dataclass(frozen=True, slots=True)
class DiffLimits:
    """How much of a comparison is shown; all beyond is counted.

    Attributes:
        lines: of one file.
        line_chars: characters of one line.
        file_bytes: of a file whose lines are looked at; a larger one is named with its hashes.
    """

    lines: int = 1_000
    line_chars: int = 4_000
    file_bytes: int = 1_048_576


def text_diff(old: bytes | None, new: bytes | None, limits: DiffLimits) -> tuple[list[str], str]:
    """The lines of a unified diff without its file names, and a note.

    Two JSON files are compared as values: pretty-printed, keys sorted.

    Args:
        old: the file's bytes; ``None`` when it was not there.
        new: the file's bytes; ``None`` when it is gone.

    Returns:
        The lines, and a note on why there are none or what is left out; empty when the lines
        are complete.
    """
    sides = [side for side in (old, new) if side is not None]
    if any(len(side) > limits.file_bytes for side in sides):
        return [], "too large to be shown"
    try:
        texts = [side.decode() for side in sides]
    except UnicodeDecodeError:
        return [], "not text"
    if any("\0" in text for text in texts):
        return [], "not text"
    values = [json_of(side) for side in sides]
    if all(isinstance(value, dict | list) for value in values):
        texts = [f"{_pretty(value)}\n" for value in values]
    split = iter([_lines(text) for text in texts])
    was = next(split) if old is not None else []
    now = next(split) if new is not None else []
    shown, left_out = _unified(was, now, limits.lines)
    if not shown and None not in (old, new) and old != new:
        return [], "only the layout changed"
    notes = []
    if left_out:
        notes.append(f"{left_out} further lines of the comparison are left out")
    most = limits.line_chars
    if any(len(line) > most for line in shown):
        notes.append(f"lines are cut after {most} characters")
    return [line if len(line) <= most else f"{line[:most]}…" for line in shown], "; ".join(notes)


def json_of(data: bytes) -> Any:
    """The value of a JSON file that every reader understands alike; ``None`` for any other."""
    try:
        value = parse_json(data, whole=False)
        _pretty(value)  # may be nested too deeply for that
    except (ValueError, RecursionError):
        return None
    return value


def _unified(old: Sequence[str], new: Sequence[str], most: int) -> tuple[list[str], int]:
    """Hunks of a unified diff, and how many lines of them are left out; quick for any lines."""
    shorter = min(len(old), len(new))
    begin = next((n for n in range(shorter) if old[n] != new[n]), shorter)
    shorter -= begin
    end = next((n for n in range(shorter) if old[-1 - n] != new[-1 - n]), shorter)
    first, spare = max(0, begin - _CONTEXT), max(0, end - _CONTEXT)
    was, now = old[first : len(old) - spare], new[first : len(new) - spare]
    if max(len(was), len(now)) <= most:  # else comparing all lines with all takes too long
        hunks = _hunks(was, now, first)
        if len(hunks) <= most:
            return hunks, 0
    # As if all of them had been replaced, so that something of both sides is seen.
    shown = [_header(first, len(was), first, len(now))]
    shown += [f"-{line}" for line in was[: (most - 1) // 2]]
    shown += [f"+{line}" for line in now[: most - len(shown)]]
    return shown, 1 + len(was) + len(now) - len(shown)


def _hunks(was: Sequence[str], now: Sequence[str], first: int) -> list[str]:
    """``difflib.unified_diff`` of lines that begin at line ``first``, counted from 0."""
    found = []
    for group in difflib.SequenceMatcher(None, was, now).get_grouped_opcodes(_CONTEXT):
        i1, j1, i2, j2 = group[0][1], group[0][3], group[-1][2], group[-1][4]
        found.append(_header(first + i1, i2 - i1, first + j1, j2 - j1))
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                found += [f" {line}" for line in was[a1:a2]]
            else:
                found += [f"-{line}" for line in was[a1:a2]]
                found += [f"+{line}" for line in now[b1:b2]]
    return found


def _header(old: int, old_count: int, new: int, new_count: int) -> str:
    return f"@@ -{_span(old, old_count)} +{_span(new, new_count)} @@"


def _span(first: int, count: int) -> str:
    return f"{first + 1 if count else first},{count}"


def _lines(text: str) -> list[str]:
    lines = text.split("\n") if text else []
    if lines and not lines[-1]:
        return lines[:-1]
    return [*lines, "\\ no newline at the end"] if lines else []


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
