"""What changed in a file, line by line, whatever the file holds."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["DiffLimits", "json_of", "text_diff"]

_CONTEXT = 3  # lines around a change, as diff -u has them
_DEEPEST = 64  # lists and objects inside one another; deeper JSON is shown as it is written


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
        The lines, and what has to be said besides: why there are none, or that some are left
        out. The note is empty when the lines tell everything.
    """
    sides = [side for side in (old, new) if side is not None]
    if any(len(side) > limits.file_bytes for side in sides):
        return [], "too large to be shown"
    texts = [_text(side) for side in sides]
    if None in texts:
        return [], "not text"
    values = [json_of(side) for side in sides]
    if all(isinstance(value, dict | list) for value in values):
        texts = [_pretty(value) for value in values]
    split = iter([_lines(text or "") for text in texts])
    was = next(split) if old is not None else []
    now = next(split) if new is not None else []
    shown, left_out = _unified(was, now, limits.lines)
    if not shown and old is not None and new is not None and old != new:
        return [], "only the layout changed"
    notes = []
    if left_out:
        notes.append(f"{left_out} further lines of the comparison are left out")
    if any(len(line) > limits.line_chars for line in shown):
        notes.append(f"lines are cut after {limits.line_chars} characters")
    return [_cut(line, limits.line_chars) for line in shown], "; ".join(notes)


def json_of(data: bytes) -> Any:
    """The value of a JSON file that every reader understands alike; ``None`` for any other."""
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=_object,
            parse_float=_finite,
            parse_constant=_finite,
        )
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate has no bytes
    except (ValueError, RecursionError):
        return None
    return value if _depth_within(value, _DEEPEST) else None


def _unified(old: Sequence[str], new: Sequence[str], most: int) -> tuple[list[str], int]:
    """Hunks of a unified diff, and how many lines of them are left out; quick for any lines."""
    begin = 0
    while begin < min(len(old), len(new)) and old[begin] == new[begin]:
        begin += 1
    end = 0
    while end < min(len(old), len(new)) - begin and old[-1 - end] == new[-1 - end]:
        end += 1
    first = max(0, begin - _CONTEXT)
    spare = max(0, end - _CONTEXT)
    was, now = old[first : len(old) - spare], new[first : len(new) - spare]
    if max(len(was), len(now)) <= most:  # else comparing all lines with all takes too long
        hunks = list(_hunks(was, now, first))
        if len(hunks) <= most:
            return hunks, 0
    # As if all of them had been replaced, so that something of both sides is seen.
    spans = f"-{_span(first, len(was))} +{_span(first, len(now))}"
    shown = [f"@@ {spans} @@", *(f"-{line}" for line in was[: (most - 1) // 2])]
    shown += [f"+{line}" for line in now[: most - len(shown)]]
    return shown, 1 + len(was) + len(now) - len(shown)


def _hunks(was: Sequence[str], now: Sequence[str], first: int) -> Iterator[str]:
    matcher = difflib.SequenceMatcher(None, was, now)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        _, i1, _, j1, _ = group[0]
        _, _, i2, _, j2 = group[-1]
        yield f"@@ -{_span(first + i1, i2 - i1)} +{_span(first + j1, j2 - j1)} @@"
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                yield from (f" {line}" for line in was[a1:a2])
                continue
            yield from (f"-{line}" for line in was[a1:a2])
            yield from (f"+{line}" for line in now[b1:b2])


def _span(first: int, count: int) -> str:
    return f"{first + 1 if count else first},{count}"


def _lines(text: str) -> list[str]:
    lines = text.split("\n") if text else []
    if lines and not lines[-1]:
        return lines[:-1]
    return [*lines, "\\ no newline at the end"] if lines else []


def _cut(line: str, most: int) -> str:
    return line if len(line) <= most else f"{line[:most]}…"


def _text(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("not a number of JSON")
    return number


def _depth_within(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return True
    return not any(isinstance(one, dict | list) for one in level)
