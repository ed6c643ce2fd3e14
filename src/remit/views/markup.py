"""HTML pieces. What comes from the ledger goes through :func:`esc`, always."""

from __future__ import annotations

import html
from typing import Any

from remit.views.wording import is_missing, pretty_json, text_of, visible

__all__ = ["badge", "block", "details", "esc", "facts", "ident", "said", "tone"]

_GOOD = frozenset({"completed", "success", "ok", "accept", "granted", "answered", "agrees"})
_WAIT = frozenset(
    {"waiting", "executing", "open", "unknown", "dispatched", "planned", "refused", "degraded",
     "resumed", "replayed", "void"}
)  # fmt: skip


def esc(value: Any) -> str:
    """A value as HTML text or attribute: nothing of it is markup, nothing of it is invisible."""
    return html.escape(visible(str(value), lines=True), quote=True)


def tone(state: str) -> str:
    """How a state looks: a class name of ours, whatever the ledger says."""
    return "good" if state in _GOOD else "wait" if state in _WAIT else "bad"


def badge(state: Any) -> str:
    """A state in a pill."""
    text = str(state or "")
    return f'<span class="badge {tone(text)}">{esc(text)}</span>' if text else ""


def ident(entry_id: Any) -> str:
    """An id; one click selects the whole of it."""
    return f'<code class="id">{esc(entry_id)}</code>' if entry_id else ""


def facts(*items: str) -> str:
    """Times, tokens and cost in a row."""
    shown = "".join(f"<span>{esc(item)}</span>" for item in items if item)
    return f'<span class="facts">{shown}</span>' if shown else ""


def details(summary: str, body: str, *, name: str, is_open: bool = False) -> str:
    """Something that opens; ``summary`` and ``body`` are HTML."""
    state = " open" if is_open else ""
    return f'<details class="{name}"{state}><summary>{summary}</summary>{body}</details>'


def block(label: str, value: Any) -> str:
    """Data under a label: JSON to read, text as it is."""
    return f'<div class="block"><h5>{esc(label)}</h5>{content(value)}</div>'


def content(value: Any) -> str:
    """One content value."""
    if is_missing(value):
        return f'<p class="gone">{esc(text_of(value))}</p>'
    if isinstance(value, str):
        return f'<div class="text">{esc(value)}</div>' if value else '<p class="gone">(empty)</p>'
    return f'<pre tabindex="0">{esc(pretty_json(value))}</pre>'


def said(role: str, value: Any, *, name: str = "") -> str:
    """What somebody said: text, or the blocks of a message."""
    blocks = value if _is_blocks(value) else [value]
    body = "".join(map(_part, blocks))
    who = role.lower()
    side = who if who in ("user", "assistant", "system", "tool") else "other"
    return (
        f'<div class="said {side} {name}"><span class="who">{esc(role)}</span>'
        f'<div class="words">{body}</div></div>'
    )


def _is_blocks(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, (dict, str)) for item in value)


def _part(part: Any) -> str:
    if not isinstance(part, dict) or is_missing(part):
        return content(part)
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        return content(part["text"])
    if kind == "tool_use":
        return _labelled(f"wants the tool {part.get('name')}", part.get("input"))
    if kind == "tool_result":
        given = part.get("content")
        parts: list[Any] = [*given] if isinstance(given, list) and _is_blocks(given) else [given]
        word = "tool error" if part.get("is_error") else "tool result"
        return f'<p class="label">{word}</p>' + "".join(map(_part, parts))
    return content(part)


def _labelled(label: str, value: Any) -> str:
    return f'<p class="label">{esc(label)}</p>{content(value)}'
