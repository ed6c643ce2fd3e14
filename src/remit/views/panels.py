"""The parts of a turn on the page: orders, calls, tools, approvals, checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.views.markup import badge, block, content, details, esc, facts, ident, said
from remit.views.timeline import timeline
from remit.views.wording import (
    count,
    duration,
    is_missing,
    messages_of,
    moment,
    money,
    one_cost,
    text_of,
    tokens,
)

__all__ = ["turn_panel"]

_WHERE = ("entry_id", "timestamp", "offset_ms")


def turn_panel(turn: Mapping[str, Any], *, focus: str, opened: bool) -> str:
    """One turn as HTML.

    Args:
        turn: of a journey.
        focus: the id that was asked for: what holds it is marked and open.
        opened: whether its orders stand open.
    """
    return _Panels(focus, opened).turn(turn)


class _Panels:
    def __init__(self, focus: str, opened: bool) -> None:
        self._focus = focus
        self._opened = opened

    def turn(self, turn: Mapping[str, Any]) -> str:
        number = turn.get("turn_number")
        title = f"Turn {number}" if number is not None else "Turn"
        if turn.get("kind") == "call":
            title = "Outside of turns"
        elif turn.get("kind") == "order":
            title = "Order by itself"
        anchor = f' id="turn-{number}"' if isinstance(number, int) else ""
        parts = [
            f'<article class="turn"{anchor}><header><h2>{esc(title)}</h2>',
            badge(turn.get("outcome")),
            facts(duration(turn.get("elapsed_ms")), _used(turn), money(turn)),
            f'<span class="when">{esc(moment(turn.get("started_at")))}</span>',
            ident(turn.get("entry_id")),
            "</header>",
        ]
        if turn.get("user_message") is not None:
            parts.append(said("user", turn["user_message"], name="main"))
        parts.append(timeline(turn))
        parts += [self._order(order) for order in turn["work_orders"]]
        if turn["calls"]:
            parts.append(f'<ol class="steps direct">{"".join(map(self._step, turn["calls"]))}</ol>')
        parts += [self._gate(gate) for gate in turn["gates"]]
        if event := turn.get("escalation"):
            parts.append(self._event("bad", "Escalated: no answer passed the gate", event))
        if event := turn.get("degradation"):
            parts.append(self._event("wait", "Degraded: one direct call answered", event))
        if turn.get("left_out"):
            parts.append(self._left_out(turn["left_out"]))
        if turn["notes"]:
            noted = "".join(map(self._note, turn["notes"]))
            parts.append(f'<ol class="steps direct">{noted}</ol>')
        if turn.get("response") is not None:
            parts.append(said("assistant", turn["response"], name="main"))
        elif turn.get("kind") == "turn":
            parts.append('<p class="gone">No answer is on record yet.</p>')
        parts.append("</article>")
        return "".join(parts)

    def _order(self, order: Mapping[str, Any]) -> str:
        state = "waiting" if order.get("waiting_for") else order.get("state")
        contract = " ".join(str(order.get(k) or "") for k in ("contract_id", "contract_version"))
        attempt = order.get("attempt") or 1
        summary = (
            f'<span class="name">{esc(order.get("step") or order.get("wo_type") or "calls")}</span>'
            f'<span class="sub">{esc(contract.strip())}</span>'
            + (f'<span class="sub">attempt {esc(attempt)}</span>' if attempt != 1 else "")
            + badge(state)
            + facts(_at(order), duration(order.get("elapsed_ms")), _used(order), money(order))
        )
        body = [self._trail(order)]
        if planned := order.get("planned"):
            body.append(self._plan(order, planned))
        body.append(f'<ol class="steps">{"".join(map(self._step, order["steps"]))}</ol>')
        if ended := order.get("ended"):
            body.append(self._end(ended))
        elif order.get("waiting_for"):
            body.append('<p class="gone">Waits for a person.</p>')
        focused = self._has_focus(order)
        name = "order focus" if focused else "order"
        return details(summary, "".join(body), name=name, is_open=self._opened or focused)

    def _trail(self, order: Mapping[str, Any]) -> str:
        """The order's id and the entries of its states."""
        moments = [("planned", order.get("planned")), ("dispatched", order.get("dispatched"))]
        moments += [("executing", moment) for moment in order.get("executing") or ()]
        ended = order.get("ended")
        moments.append(("failed" if order.get("state") == "failed" else "completed", ended))
        shown = "".join(
            f"<span>{word} {ident(moment['entry_id'])}</span>" for word, moment in moments if moment
        )
        parent = order.get("parent_wo_id")
        more = f"<span>of {ident(parent)}</span>" if parent else ""
        if order.get("depends_on"):
            more += f"<span>after {esc(', '.join(map(str, order['depends_on'])))}</span>"
        return f'<p class="trail">{ident(order["wo_id"])}{more}{shown}</p>'

    def _plan(self, order: Mapping[str, Any], planned: Mapping[str, Any]) -> str:
        body = "".join(
            block(key.replace("_", " "), value)
            for key, value in planned.items()
            if key not in _WHERE and value not in (None, {}, [])
        )
        return details("Plan: input, limits, acceptance", body, name="more")

    def _end(self, ended: Mapping[str, Any]) -> str:
        if ended["event_type"] == "WO_FAILED":
            why = text_of(ended.get("error_message", ""))
            return (
                f'<p class="verdict bad"><strong>{esc(ended.get("error_code"))}</strong> '
                f"{esc(why)}</p>"
            )
        return details("Result", content(ended.get("output_result")), name="more")

    def _step(self, step: Mapping[str, Any]) -> str:
        kind = str(step.get("kind"))
        make = {
            "model_call": self._call,
            "tool_call": self._tool,
            "approval": self._approval,
            "orphaned_call": self._orphan,
            "resumed": self._resumption,
        }.get(kind, self._note)
        return make(step)

    def _item(self, step: Mapping[str, Any], kind: str, summary: str, body: str) -> str:
        """A step as a list item; ``kind`` is a class name of ours."""
        focused = self._has_focus(step)
        name = f"step {kind} focus" if focused else f"step {kind}"
        return f"<li>{details(summary, body, name=name, is_open=focused)}</li>"

    def _call(self, step: Mapping[str, Any]) -> str:
        outcome = str(step.get("outcome"))
        failed = outcome != "success"
        replayed = badge("replayed") if step.get("replayed") else ""
        summary = (
            f'<span class="mark">Model</span><span class="name">{esc(step.get("model_id") or "")}'
            f"</span>{badge(outcome) if failed else ''}{replayed}"
            + facts(_at(step), duration(step.get("elapsed_ms")), tokens(step), one_cost(step))
        )
        told = messages_of(step.get("prompt"))
        body = ['<div class="talk">', *(said(role, value) for role, value in told)]
        blocks = step.get("content_blocks")
        answer = blocks if blocks and not is_missing(blocks) else step.get("response")
        if answer not in (None, "", []) or not failed:
            body.append(said("assistant", answer, name="answer"))
        body.append("</div>")
        if step.get("error_message") is not None:
            body.append(
                f'<p class="verdict bad"><strong>{esc(step.get("error_code"))}</strong> '
                f"{esc(text_of(step['error_message']))}</p>"
            )
        body += [self._attempt(attempt) for attempt in step.get("attempts") or ()]
        for key, label in (("tools", "Tools offered"), ("parameters", "Parameters")):
            if step.get(key):
                body.append(details(label, content(step[key]), name="more"))
        body.append(self._table(step))
        return self._item(step, "lost" if failed else "model", summary, "".join(body))

    def _attempt(self, attempt: Mapping[str, Any]) -> str:
        why = f"{attempt.get('error_code')}: {text_of(attempt.get('error_message', ''))}"
        return (
            f'<p class="verdict bad"><strong>An attempt before failed</strong> {esc(why)} '
            f"{facts(_at(attempt), duration(attempt.get('elapsed_ms')), one_cost(attempt))}"
            f"{ident(attempt['entry_id'])}</p>"
        )

    def _table(self, step: Mapping[str, Any]) -> str:
        """What else is known of a call."""
        rows = [
            (label, ident(step[key]) if key.endswith("entry_id") else esc(step[key]))
            for key, label in _CALL_FACTS
            if step.get(key) not in (None, "")
        ]
        shown = "".join(f"<div><dt>{label}</dt><dd>{value}</dd></div>" for label, value in rows)
        return f'<dl class="known">{shown}</dl>'

    def _tool(self, step: Mapping[str, Any]) -> str:
        status = str(step.get("status"))
        summary = (
            f'<span class="mark">Tool</span><span class="name">{esc(step.get("tool_id"))}</span>'
            f"{badge(status)}{facts(_at(step), duration(step.get('elapsed_ms')))}"
        )
        body = [block("arguments", step.get("arguments"))]
        if step.get("tool_error"):
            body.append(block("error", step["tool_error"]))
        if step.get("result") is not None:
            body.append(block("result", step["result"]))
        if status == "unknown":
            body.append(
                '<p class="verdict wait">The tool was about to run, and no result is on record: '
                "whether it did is not known.</p>"
            )
        ids = [("intent", entry) for entry in step.get("intent_entry_ids") or ()]
        ids += [("result", step.get("entry_id"))]
        shown = "".join(f"<span>{word} {ident(entry)}</span>" for word, entry in ids if entry)
        key = step.get("idempotency_key")
        more = f"<span>key {ident(key)}</span>" if key else ""
        body.append(f'<p class="trail">{shown}{more}</p>')
        return self._item(step, "tool", summary, "".join(body))

    def _approval(self, step: Mapping[str, Any]) -> str:
        decided = step.get("decided") or {}
        question = step.get("approval_kind") == "unknown_outcome"
        by = decided.get("decided_by")
        summary = (
            f'<span class="mark">{"Question" if question else "Approval"}</span>'
            f'<span class="name">{esc(step.get("tool_id") or "")}</span>{badge(step["status"])}'
            + (f'<span class="sub">by {esc(by)}</span>' if by else "")
            + facts(_at(step), duration(step.get("elapsed_ms")))
        )
        body = [block("arguments", step.get("arguments"))]
        if decided.get("decision_reason"):
            body.append(block("reason given", decided["decision_reason"]))
        answered = decided.get("entry_id")
        more = f"<span>decided {ident(answered)}</span>" if answered else ""
        body.append(f'<p class="trail"><span>asked {ident(step["entry_id"])}</span>{more}</p>')
        return self._item(step, "pause", summary, "".join(body))

    def _orphan(self, step: Mapping[str, Any]) -> str:
        summary = (
            f'<span class="mark">Model</span><span class="name">no answer</span>{badge("orphaned")}'
        )
        summary += facts(_at(step), one_cost(step))
        body = (
            "<p>The process that sent this call died before the answer was on record. "
            f"It was settled at {esc(step.get('settled_tokens'))} tokens "
            f"({esc(step.get('settlement'))}).</p>"
        )
        return self._item(step, "lost", summary, body + self._table(step))

    def _resumption(self, step: Mapping[str, Any]) -> str:
        summary = f'<span class="mark">Resumed</span>{badge("resumed")}{facts(_at(step))}'
        body = f"<p>Another process went on with the order. {ident(step['entry_id'])}</p>"
        return self._item(step, "pause", summary, body)

    def _note(self, note: Mapping[str, Any]) -> str:
        told = note.get("details") or {
            key: value for key, value in note.items() if key not in (*_WHERE, "event_type", "kind")
        }
        summary = f'<span class="mark">{esc(note.get("event_type"))}</span>{facts(_at(note))}'
        body = f'{content(told)}<p class="trail">{ident(note["entry_id"])}</p>'
        return self._item(note, "note", summary, body)

    def _gate(self, gate: Mapping[str, Any]) -> str:
        verdict = str(gate.get("verdict"))
        reasons = gate.get("reasons")
        why = "; ".join(map(str, reasons)) if isinstance(reasons, list) else text_of(reasons)
        trace = str(gate.get("trace_hash") or "")
        agrees = gate.get("trace_hash_agrees")
        checked = "" if agrees is None else badge("agrees" if agrees else "does not agree")
        return (
            f'<div class="gate"><span class="mark">Quality gate</span>{badge(verdict)}'
            + (f"<span>{esc(why)}</span>" if reasons else "")
            + facts(_at(gate))
            + (f'<span class="hash">trace hash {ident(trace)}{checked}</span>' if trace else "")
            + ident(gate["entry_id"])
            + "</div>"
        )

    def _event(self, name: str, title: str, event: Mapping[str, Any]) -> str:
        why = event.get("reasons") or event.get("error_message") or ""
        why = "; ".join(map(str, why)) if isinstance(why, list) else text_of(why)
        return (
            f'<p class="verdict {name}"><strong>{esc(title)}</strong> {esc(why)} '
            f"{facts(_at(event))}{ident(event['entry_id'])}</p>"
        )

    def _left_out(self, items: list[dict[str, Any]]) -> str:
        rows = "".join(
            "<tr>" + "".join(f"<td>{esc(_cell(item.get(key)))}</td>" for key in _LEFT_OUT) + "</tr>"
            for item in items
        )
        head = "".join(f'<th scope="col">{key}</th>' for key in _LEFT_OUT)
        table = f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        table += f"<tbody>{rows}</tbody></table></div>"
        return details(f"Left out of the context: {count(len(items), 'item')}", table, name="more")

    def _has_focus(self, item: Any) -> bool:
        """Whether the id that was asked for is among an item's own."""
        if not self._focus:
            return False
        if isinstance(item, Mapping):
            return any(self._has_focus(v) for k, v in item.items() if k in _IDS)
        if isinstance(item, list):
            return any(map(self._has_focus, item))
        return bool(item == self._focus)


_IDS = frozenset(
    {"wo_id", "entry_id", "llm_call_entry_id", "dispatch_entry_id", "intent_entry_ids",
     "planned", "dispatched", "executing", "ended", "steps", "attempts", "decided"}
)  # fmt: skip
_LEFT_OUT = ("kind", "ref", "why", "score", "tokens")
_CALL_FACTS = (
    ("finish_reason", "finish"), ("provider_id", "provider"),
    ("requested_model_id", "asked for"), ("contract_id", "contract"),
    ("time_to_first_token_ms", "first token, ms"), ("cached_input_tokens", "cached tokens"),
    ("cache_write_tokens", "tokens written to cache"), ("reasoning_tokens", "reasoning tokens"),
    ("cost_certainty", "cost is"), ("price_version", "prices"), ("decision_id", "decision"),
    ("key_id", "key"), ("dispatch_entry_id", "sent"), ("entry_id", "answered"),
    ("llm_call_entry_id", "noted"),
)  # fmt: skip


def _used(told: Mapping[str, Any]) -> str:
    return tokens(told) if told.get("llm_calls") else ""


def _at(told: Mapping[str, Any]) -> str:
    return f"+{duration(told['offset_ms'])}" if told.get("offset_ms") is not None else ""


def _cell(value: Any) -> str:
    return "" if value is None else text_of(value)
