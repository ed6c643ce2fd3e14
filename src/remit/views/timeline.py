"""A turn's time as bars, one row for each work order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remit.views.markup import esc
from remit.views.wording import duration

__all__ = ["POSITIONS", "timeline"]

_STEPS = 200  # places along the width; a style attribute for each would need a weaker policy

POSITIONS = "".join(
    f".x{step}{{left:{step * 100 / _STEPS:g}%}}.w{step}{{width:{step * 100 / _STEPS:g}%}}"
    for step in range(_STEPS + 1)
)
"""The rules that place bars."""

_KINDS = {
    "model_call": ("model", "model call"),
    "orphaned_call": ("lost", "model call without an answer"),
    "tool_call": ("tool", "tool"),
    "approval": ("pause", "waiting for a person"),
    "failed": ("lost", "failed attempt"),
}


def timeline(turn: Mapping[str, Any]) -> str:
    """The rows of one turn as HTML; empty where nothing took time."""
    whole = turn.get("elapsed_ms") or 0.0
    going_on = turn.get("ended_at") is None  # how long somebody has waited, the page cannot say
    rows = [
        (
            str(order.get("step") or order.get("wo_type") or order["wo_id"]),
            (order.get("offset_ms"), order.get("elapsed_ms")),
            list(_bars(order["steps"], whole, going_on)),
        )
        for order in turn["work_orders"]
    ]
    if turn["calls"]:
        rows.append(("direct", (None, None), list(_bars(turn["calls"], whole, going_on))))
    if whole <= 0 or not any(bars for _, _, bars in rows):
        return ""
    shown = "".join(_row(label, span, bars, whole) for label, span, bars in rows)
    used = {name for _, _, bars in rows for _, _, name, _ in bars}
    legend = "".join(
        f'<span class="key"><i class="{name}"></i>{word}</span>'
        for name, word in _LEGEND.items()
        if name in used
    )
    return (
        f'<figure class="timeline"><ol>{shown}</ol>'
        f'<div class="axis" aria-hidden="true"><span>0</span><span>{duration(whole / 2)}</span>'
        f"<span>{duration(whole)}</span></div>"
        f"<figcaption>{legend}</figcaption></figure>"
    )


_LEGEND = {"model": "model", "tool": "tool", "pause": "waiting for a person", "lost": "failed"}

_Bar = tuple[float, float, str, str]


def _bars(steps: list[dict[str, Any]], whole: float, going_on: bool) -> Iterator[_Bar]:
    """Start, length (ms), class and words of each step that took time."""
    for step in steps:
        kind = step.get("kind", "")
        if kind not in _KINDS or step.get("offset_ms") is None:
            continue
        if kind == "approval" and step.get("elapsed_ms") is None and going_on:
            continue
        for attempt in step.get("attempts") or ():
            yield _bar("failed", attempt, attempt.get("model_id"), whole)
        failed = kind == "model_call" and step.get("outcome") != "success"
        yield _bar("failed" if failed else kind, step, step.get("model_id") or step.get("tool_id"),
                   whole)  # fmt: skip


def _bar(kind: str, step: Mapping[str, Any], what: Any, whole: float) -> _Bar:
    name, word = _KINDS[kind]
    start, length = step.get("offset_ms") or 0.0, step.get("elapsed_ms")
    words = f"{word} {what or ''} from +{duration(start)}, "
    if length is None:  # still going on, or nobody knows: to the end
        length = max(0.0, whole - start) if kind == "approval" else 0.0
        words += "not ended" if kind == "approval" else "duration unknown"
    else:
        words += duration(length)
    return start, length, name, words


def _row(label: str, span: tuple[Any, Any], bars: list[_Bar], whole: float) -> str:
    start, length = span
    frame = ""
    if start is not None and length is not None:
        frame = f'<span class="span {_place(start, length, whole)}"></span>'
    shown = "".join(
        f'<span class="bar {name} {_place(begin, lasted, whole)}" title="{esc(words)}">'
        f'<span class="unseen">{esc(words)}</span></span>'
        for begin, lasted, name, words in bars
    )
    return (
        f'<li><span class="label">{esc(label)}</span><span class="track">{frame}{shown}</span></li>'
    )


def _place(start: float, length: float, whole: float) -> str:
    first = min(_STEPS, max(0, round(start / whole * _STEPS)))
    wide = min(_STEPS - first, max(0, round(length / whole * _STEPS)))
    return f"x{first} w{wide}"
