"""A turn's time as bars, with a row for each work order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remit.views.wording import duration

_STEPS = 200  # positions along the width; a style attribute for each would need a weaker policy

POSITIONS = "".join(
    f".x{step}{{left:{step * 100 / _STEPS:g}%}}.w{step}{{width:{step * 100 / _STEPS:g}%}}"
    for step in range(_STEPS + 1)
)
"""The CSS rules that place bars."""

_KINDS = {
    "model_call": ("model", "model call"),
    "orphaned_call": ("lost", "model call without an answer"),
    "tool_call": ("tool", "tool"),
    "approval": ("pause", "waiting for approval"),
    "failed": ("lost", "failed attempt"),
}
_LEGEND = {"model": "model", "tool": "tool", "pause": "waiting for approval", "lost": "failed"}


def timeline(turn: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the rows of a turn's timeline; ``None`` if nothing took time.

    Places and widths are rounded to 200 steps. An approval that waits in an open turn has no bar.

    Args:
        turn: a turn of a journey.

    Returns:
        ``length`` in milliseconds; ``rows``, each with ``label``, ``span`` (class names that
        position the order; empty if it has no times) and ``bars`` (each ``name``, ``place`` and
        ``words``); ``legend``, pairs of class name and word. Calls without an order are the last
        row.
    """
    length = turn.get("elapsed_ms") or 0.0
    if length <= 0:
        return None
    is_open = turn.get("ended_at") is None
    rows = [
        {
            "label": order.get("step") or order.get("wo_type") or order["wo_id"],
            "span": _span(order, length),
            "bars": list(_bars(order["steps"], length, is_open)),
        }
        for order in turn["work_orders"]
    ]
    if turn["calls"]:
        bars = list(_bars(turn["calls"], length, is_open))
        rows.append({"label": "direct", "span": "", "bars": bars})
    used = {bar["name"] for row in rows for bar in row["bars"]}
    if not used:
        return None
    legend = [(name, word) for name, word in _LEGEND.items() if name in used]
    return {"length": length, "rows": rows, "legend": legend}


def _bars(steps: list[dict[str, Any]], length: float, is_open: bool) -> Iterator[dict[str, str]]:
    """A bar for each step that took time."""
    for step in steps:
        kind = step.get("kind", "")
        if kind not in _KINDS or step.get("offset_ms") is None:
            continue
        if kind == "approval" and step.get("elapsed_ms") is None and is_open:
            continue  # how long a person has been waited for, the page cannot say
        for attempt in step.get("attempts") or ():
            yield _bar("failed", attempt, length)
        failed = kind == "model_call" and step.get("outcome") != "success"
        yield _bar("failed" if failed else kind, step, length)


def _bar(kind: str, step: Mapping[str, Any], length: float) -> dict[str, str]:
    name, word = _KINDS[kind]
    start, lasted = step.get("offset_ms") or 0.0, step.get("elapsed_ms")
    what = step.get("model_id") or step.get("tool_id") or ""
    words = f"{word} {what} from +{duration(start)}, "
    if lasted is not None:
        words += duration(lasted)
    elif kind == "approval":
        words, lasted = f"{words}not ended", max(0.0, length - start)
    else:
        words, lasted = f"{words}duration unknown", 0.0
    return {"name": name, "place": _place(start, lasted, length), "words": words}


def _span(order: Mapping[str, Any], length: float) -> str:
    start, lasted = order.get("offset_ms"), order.get("elapsed_ms")
    return "" if start is None or lasted is None else _place(start, lasted, length)


def _place(start: float, lasted: float, length: float) -> str:
    first = min(_STEPS, max(0, round(start / length * _STEPS)))
    width = min(_STEPS - first, max(0, round(lasted / length * _STEPS)))
    return f"x{first} w{width}"
