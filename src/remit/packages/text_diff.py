"""What changed in a file, line by line, whatever the file holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from remit.packages.json_text import parse_json

__all__ = ["json_of", "text_diff"]

_MAX_LINES = 1_000  # of one file's comparison
_MAX_LINE_CHARS = 4_000
_MAX_FILE_BYTES = 1_048_576  # a larger file is named with its hashes
_CONTEXT = 3  # lines around a change, as diff -u has them


def text_diff(old: bytes | None, new: bytes) -> tuple[list[str], str]:
    """The lines of a unified diff without its file names, and a note.

    Two JSON files are compared as values: pretty-printed, keys sorted.

    Args:
        old: the file's bytes; ``None`` when it was not there.
        new: the file's bytes.

    Returns:
        The lines, and a note on why there are none or what is left out; empty when the lines
        are complete.
    """
    sides = [new] if old is None else [old, new]
    if any(len(side) > _MAX_FILE_BYTES for side in sides):
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
    *before, after = map(_lines, texts)
    shown, left_out = _unified(before[0] if before else [], after)
    if not shown and old is not None and old != new:
        return [], "only the layout changed"
    notes = []
    if left_out:
        notes.append(f"{left_out} further lines of the comparison are left out")
    if any(len(line) > _MAX_LINE_CHARS for line in shown):
        notes.append(f"lines are cut after {_MAX_LINE_CHARS} characters")
        shown = [
            line if len(line) <= _MAX_LINE_CHARS else f"{line[:_MAX_LINE_CHARS]}…" for line in shown
        ]
    return shown, "; ".join(notes)


def json_of(data: bytes) -> Any:
    """The value of a JSON file that every reader understands alike; ``None`` for any other."""
    try:
        value = parse_json(data)
        _pretty(value)  # may be nested too deeply for that
    except (ValueError, RecursionError):
        return None
    return value


def _unified(old: list[str], new: list[str]) -> tuple[list[str], int]:
    """Hunks of a unified diff, and how many lines of them are left out; quick for any lines."""
    begin = _common(old, new)
    end = _common(old[begin:][::-1], new[begin:][::-1])
    first, spare = max(0, begin - _CONTEXT), max(0, end - _CONTEXT)
    was, now = old[first : len(old) - spare], new[first : len(new) - spare]
    if max(len(was), len(now)) <= _MAX_LINES:  # else comparing all with all takes too long
        hunks = _hunks(was, now, first)
        if len(hunks) <= _MAX_LINES:
            return hunks, 0
    # As if all of them had been replaced, so that something of both sides is seen.
    shown = [_header(first, len(was), first, len(now))]
    shown += [f"-{line}" for line in was[: (_MAX_LINES - 1) // 2]]
    shown += [f"+{line}" for line in now[: _MAX_LINES - len(shown)]]
    return shown, 1 + len(was) + len(now) - len(shown)


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """How many lines both begin with."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((n for n, (was, now) in pairs if was != now), min(len(old), len(new)))


def _hunks(was: Sequence[str], now: Sequence[str], first: int) -> list[str]:
    """``difflib.unified_diff`` of lines that begin at line ``first``, counted from 0."""
    found = []
    for group in SequenceMatcher(None, was, now).get_grouped_opcodes(_CONTEXT):
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        found.append(_header(first + i1, i2 - i1, first + j1, j2 - j1))
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                found += [f" {line}" for line in was[a1:a2]]
            else:
                found += [f"-{line}" for line in was[a1:a2]]
                found += [f"+{line}" for line in now[b1:b2]]
    return found


def _header(old: int, old_count: int, new: int, new_count: int) -> str:
    old, new = old + bool(old_count), new + bool(new_count)
    return f"@@ -{old},{old_count} +{new},{new_count} @@"


def _lines(text: str) -> list[str]:
    *lines, last = text.split("\n")
    return [*lines, last, "\\ no newline at the end"] if last else lines


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
