"""A journey as a self-contained HTML page: templates, and a turn's time as bars."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader

from remit.kernel.message_text import count, dollars
from remit.views import phrases, wire_text, wording
from remit.views.wording import duration

# What of a step or an order names it; has_focus looks there for the id that was asked for.
_ID_KEYS = frozenset(
    {"wo_id", "entry_id", "llm_call_entry_id", "dispatch_entry_id", "intent_entry_ids",
     "planned", "dispatched", "executing", "ended", "steps", "attempts", "decided"}
)  # fmt: skip


def journey_page(journey: Mapping[str, Any]) -> str:
    """Return a journey as a single HTML page with its style sheet.

    The page has no script and loads nothing. All text from the ledger is escaped, with invisible
    characters written out.

    Args:
        journey: a result of :func:`prompt_journey`. With the added key ``trace_hashes``
            (``[{"entry_id", "agrees"}]``) the page states whether recomputed hashes agree; without
            the key, that they were not recomputed.

    Raises:
        LedgerError: the journey is from :func:`open_journey`, and the ledger cannot be read.
    """
    return "".join(page_parts(journey))


def page_parts(journey: Mapping[str, Any]) -> Iterator[str]:
    """Yield the page of :func:`journey_page` in pieces of text.

    The turns of a journey from :func:`open_journey` are read and consumed one by one, so memory
    holds a single turn. Errors of the ledger are raised while iterating.

    Args:
        journey: see :func:`journey_page`.
    """
    style = style_sheet("page.css") + POSITIONS
    totals = journey.get("totals") or {}
    return (
        environment()
        .get_template("page.html.j2")
        .generate(
            journey=journey,
            sums=sums_of(totals),
            wrong_hashes=[
                item for item in journey.get("trace_hashes") or () if not item.get("agrees")
            ],
            has_focus=functools.partial(has_focus, str(journey.get("focus") or "")),
            opened=totals.get("turns", 0) == 1,
            style=style,
            style_hash=style_hash(style),
        )
    )


class _Environment(Environment):
    """Templates in which ``item.key`` reads ``item["key"]``, or ``None`` if the key is missing."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Mapping) and attribute != "items":
            return obj.get(attribute)
        return super().getattr(obj, attribute)


@functools.cache
def environment() -> Environment:
    """Return the Jinja environment of this folder's templates, made once.

    Output of expressions is escaped, and its invisible characters are written out. A missing key
    gives None, and None prints nothing.
    """
    made = _Environment(
        loader=PackageLoader("remit.views"),
        autoescape=True,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # An installation may replace the files of a running server.
    )
    made.tests["missing"] = wording.is_missing
    made.filters |= {
        "answer": _answer,
        "answered": wire_text.answered,
        "asked": _asked,
        "blocks": _blocks,
        "cents": wording.cents,
        "contract": phrases.contract_of,
        "count": count,
        "dollars": dollars,
        "duration": wording.duration,
        "failure": phrases.failure,
        "failures": wording.failures,
        "in_words": wording.in_words,
        "messages": wording.messages_of,
        "moment": wording.moment,
        "money": wording.money,
        "offset": wording.offset,
        "one_cost": wording.one_cost,
        "pretty_json": wording.pretty_json,
        "reasons": phrases.reasons,
        "set_aside": wording.set_aside,
        "text": wording.text_of,
        "timeline": timeline,
        "tokens": wording.tokens,
        "tone": wording.tone,
        "words": wording.words_of,
        "turn_state": phrases.turn_state,
        "turn_title": phrases.turn_title,
        "without": lambda item, *keys: {k: v for k, v in item.items() if k not in keys},
    }
    return made


@functools.cache
def style_sheet(*names: str) -> str:
    """Return the named files of the folder ``templates`` joined without a separator.

    Each combination of names is read once in a process.

    Args:
        names: file names, in the order of the result.

    Raises:
        FileNotFoundError: there is no such file.
    """
    folder = resources.files("remit.views") / "templates"
    return "".join((folder / name).read_text(encoding="utf-8") for name in names)


@functools.cache
def script(*names: str) -> str:
    """Return the named scripts of the folder ``assets``, joined by line ends.

    Each combination of names is read once in a process.

    Args:
        names: file names, in the order of the result.

    Raises:
        FileNotFoundError: there is no such file.
    """
    folder = resources.files("remit.views") / "assets"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def style_hash(style: str) -> str:
    """Return SHA-256 in base64 of a style sheet or script, for a content security policy (CSP).

    The result has no ``sha256-`` prefix.

    Args:
        style: the exact text of the element.
    """
    return base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()


def _visible(value: Any) -> Any:
    """Return the output of a template expression before escaping, with no invisible character."""
    if hasattr(value, "__html__"):  # A template's output is markup already.
        return value
    return "" if value is None else wording.visible(str(value), lines=True)


def sums_of(totals: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and number of each sum of a journey, for people, in the order of the page.

    The sums are turns, work orders, model calls, failed calls, calls without an answer, tool calls,
    tokens in and out, and the cost. Failed and lost calls are left out if there are none. If calls
    have no price, the label of the cost says how many, and the value is the known cost, or
    ``unknown`` if none is known or it is 0.

    Args:
        totals: the sums of the journey; a missing count is shown as ``?``.
    """

    def counted(key: str, noun: str, nouns: str = "") -> tuple[str, str]:
        number = totals.get(key)
        return noun if number == 1 else nouns or f"{noun}s", wording.number(number)

    yield counted("turns", "turn")
    yield counted("work_orders", "work order")
    yield counted("llm_calls", "model call")
    if totals.get("failed_calls"):
        yield counted("failed_calls", "failed call")
    if totals.get("orphaned_calls"):
        yield counted("orphaned_calls", "call without an answer", "calls without an answer")
    yield counted("tool_calls", "tool call")
    yield "tokens in", wording.number(totals.get("input_tokens"))
    yield "tokens out", wording.number(totals.get("output_tokens"))
    if unpriced := totals.get("unpriced_calls"):
        known = totals.get("known_cost_usd")
        label = f"cost, {count(unpriced, 'call')} without a price"
        yield label, dollars(known) if known else "unknown"
    else:
        yield "cost", wording.money(totals) or dollars(0)


def has_focus(focus: str, item: Any) -> bool:
    """Return True if one of an item's own ids is the id that a journey was requested by.

    Ids of its steps, attempts and decisions count, too.

    Args:
        focus: the requested work order or entry id; empty gives False.
        item: a part of the journey; of an object only the members that hold ids are searched.
    """
    if isinstance(item, Mapping):
        return any(has_focus(focus, value) for key, value in item.items() if key in _ID_KEYS)
    if isinstance(item, list):
        return any(has_focus(focus, value) for value in item)
    return bool(focus) and item == focus


def _asked(call: Mapping[str, Any]) -> list[wire_text.Line]:
    """Return the lines of a call's prompt, in order."""
    if "wire" in call:
        return wire_text.said(call)
    said = wording.messages_of(call.get("prompt"))
    return [wire_text.Line(role, "", content) for role, content in said]


def _answer(step: Mapping[str, Any]) -> Any:
    """Return the recorded blocks of a call's answer; its text if there are none."""
    blocks = step.get("content_blocks")
    return blocks if blocks and not wording.is_missing(blocks) else step.get("response")


def _blocks(value: Any) -> list[Any]:
    """Return the blocks of a message's content; any other value in a list of its own."""
    if isinstance(value, list) and all(isinstance(item, (dict, str)) for item in value):
        return value
    return [value]


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
    """Return the rows of a turn's timeline; ``None`` if the turn has no length or no bar.

    Places and widths are rounded to 200 steps. Model calls with their failed attempts, lost calls,
    tool calls and approvals have bars; an approval that waits in an open turn has none.

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
