"""A journey as one self-contained HTML page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

from remit.views.markup import esc, ident
from remit.views.panels import turn_panel
from remit.views.timeline import POSITIONS
from remit.views.wording import count, dollars, moment, money

__all__ = ["journey_page", "page_parts"]


def journey_page(journey: Mapping[str, Any]) -> str:
    """The page as a text: no script, no request to anywhere, everything of the ledger escaped.

    Args:
        journey: of :func:`prompt_journey`. With ``trace_hashes`` (``[{"entry_id", "agrees"}]``)
            the page states what recomputing them gave; without, that nobody did.
    """
    return "".join(page_parts(journey))


def page_parts(journey: Mapping[str, Any]) -> Iterator[str]:
    """:func:`journey_page` piece by piece: of an open journey, memory holds one turn."""
    yield _head(journey)
    focus = str(journey.get("focus") or "")
    opened = (journey.get("totals") or {}).get("turns", 0) == 1
    for turn in journey["turns"]:
        yield turn_panel(turn, focus=focus, opened=opened)
    yield (
        "</main><footer><p>Made by Remit from its ledger. Each id names an entry: "
        "<code>remit ledger show ID</code> shows it, <code>remit ledger prove ID</code> proves "
        "that it is on record.</p></footer></body></html>\n"
    )


def _head(journey: Mapping[str, Any]) -> str:
    session = journey["session_id"]
    times = [f"since {moment(journey.get('started_at'))}" if journey.get("started_at") else ""]
    times.append(f"ended {moment(journey['ended_at'])}" if journey.get("ended_at") else "open")
    who = f"<span>agent {esc(journey['agent_id'])}</span>" if journey.get("agent_id") else ""
    spans = "".join(f"<span>{esc(item)}</span>" for item in times if item)
    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">'
        f"<title>{esc(session)}: journey of a prompt</title><style>{style}</style></head>"
        '<body><a class="skip" href="#turns">Skip to the turns</a><header class="top">'
        '<p class="over">Remit · the journey of a prompt</p>'
        f'<h1>{ident(session)}</h1><p class="about">{who}{spans}</p>'
        f"{_sums(journey.get('totals') or {})}{_verification(journey)}"
        '</header><main id="turns">'
    )


def _sums(totals: Mapping[str, Any]) -> str:
    shown = [
        _sum(totals, "turns", "turn"),
        _sum(totals, "work_orders", "work order"),
        _sum(totals, "llm_calls", "model call"),
        *(_sum(totals, key, noun, nouns) for key, noun, nouns in _RARE if totals.get(key)),
        _sum(totals, "tool_calls", "tool call"),
        ("tokens in", _number(totals.get("input_tokens"))),
        ("tokens out", _number(totals.get("output_tokens"))),
        _cost(totals),
    ]
    cells = "".join(f"<div><dt>{name}</dt><dd>{esc(value)}</dd></div>" for name, value in shown)
    return f'<dl class="sums">{cells}</dl>'


def _verification(journey: Mapping[str, Any]) -> str:
    """What recomputing the trace hashes gave, as the caller says."""
    hashes = journey.get("trace_hashes")
    if hashes is None:
        return (
            '<p class="state wait">The trace hashes were not computed again for this page: '
            f"<code>remit trace {esc(journey['session_id'])} --verify</code></p>"
        )
    bad = [item for item in hashes if not item.get("agrees")]
    if bad:
        named = " ".join(ident(item.get("entry_id")) for item in bad)
        return (
            f'<p class="state bad"><strong>{len(bad)} of {len(hashes)} trace hashes do not agree '
            f"with the entries.</strong> {named}</p>"
        )
    if not hashes:
        return '<p class="state wait">There is no trace hash to compute again.</p>'
    word = "The trace hash agrees" if len(hashes) == 1 else f"All {len(hashes)} trace hashes agree"
    return f'<p class="state good">{word} with the entries, computed again for this page.</p>'


@cache
def _style() -> str:
    text = resources.files("remit.views").joinpath("page.css").read_text("utf-8")
    return text + POSITIONS


_RARE = (
    ("failed_calls", "failed call", "failed calls"),
    ("orphaned_calls", "call without an answer", "calls without an answer"),
)


def _sum(totals: Mapping[str, Any], key: str, noun: str, nouns: str = "") -> tuple[str, str]:
    number = totals.get(key)
    return noun if number == 1 else nouns or f"{noun}s", _number(number)


def _cost(totals: Mapping[str, Any]) -> tuple[str, str]:
    """What is known of the cost, and under it of how many calls it is not."""
    unpriced = totals.get("unpriced_calls") or 0
    if not unpriced:
        return "cost", money(totals) or "none"
    known = totals.get("known_cost_usd") or 0
    label = f"cost, {count(unpriced, 'call')} without a price"
    return label, dollars(known) if known else "unknown"


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) else "?"
