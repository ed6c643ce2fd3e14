"""A turn read from its entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remit.ledger import LedgerEntry, LedgerPort, is_authentic
from remit.views import wire_text
from remit.views.calls import Calls
from remit.views.entries import Tally, between_ms, order_of
from remit.views.turn_ranges import SESSION_EVENTS, Place
from remit.views.work_order import build_order

_OF_THE_TURN = frozenset(
    {"TURN_RECORDED", "WO_CHAIN_COMPLETE", "WO_QUALITY_GATE", "ESCALATION", "DEGRADATION"}
)
_HIDDEN = frozenset({"DISPATCH", *SESSION_EVENTS})
_DECISIONS = ("APPROVAL_GRANTED", "APPROVAL_DENIED")


def build_turn(
    place: Place, entries: Sequence[LedgerEntry], ledger: LedgerPort, with_content: bool
) -> dict[str, Any]:
    """Return a turn as data; ``docs/trace.md`` describes the format.

    The keys are ``kind``, ``turn_number``, ``entry_id`` (the ``TURN_RECORDED``), ``user_message``,
    ``response``, ``outcome``, ``started_at``, ``ended_at``, ``elapsed_ms`` (to the last entry of an
    open turn), the sums of :class:`Tally`, ``work_orders``, direct ``calls``, ``chains``,
    ``gates``, ``escalation``, ``degradation``, context items ``shown`` and ``left_out``, and
    ``notes``. Missing values and times are None. Calls, and the steps of orders, are in the order
    in which they started, other lists in ledger order. Parts with a time get ``offset_ms``, their
    distance from the beginning. Values are as recorded, erased ones :class:`Erased`; :func:`plain`
    makes them JSON.

    Args:
        place: range of the turn in the ledger.
        entries: entries of the turn, in ledger order.
        ledger: source of entries outside the range: replayed exchanges, and decisions that name no
            session.
        with_content: True to read those entries with their content.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    calls = Calls(entries, ledger, with_content)
    orders: dict[str, list[LedgerEntry]] = {}
    own: dict[str, list[LedgerEntry]] = {}
    loose: list[LedgerEntry] = []
    tally = Tally()
    for entry in entries:
        tally.add(entry)
        order = order_of(entry)
        if entry.event_type in _OF_THE_TURN:
            own.setdefault(entry.event_type, []).append(entry)
        elif entry.event_type in _HIDDEN:
            continue
        elif order:
            orders.setdefault(order, []).append(entry)
        else:
            loose.append(entry)
    decisions = _decisions(entries, ledger, with_content)
    built = [build_order(name, found, calls, decisions) for name, found in orders.items()]
    direct = calls.steps([entry for entry in loose if entry.event_type.startswith("EXCHANGE")])
    record = own.get("TURN_RECORDED", [None])[-1]
    tries = [attempt for call in direct for attempt in call.get("attempts", ())]
    began = [item["started_at"] for item in (*built, *direct, *tries) if item["started_at"]]
    started = min(began) if began else (entries[0].timestamp if entries else None)
    ended = None
    if record is not None:
        ended = record.timestamp
    elif place.kind == "order":
        ended = built[0]["ended_at"] if built else None
    elif place.kind == "call" and entries:
        ended = entries[-1].timestamp
    last = ended or (entries[-1].timestamp if entries else None)
    recorded = record.metadata if record is not None else {}
    turn = {
        "kind": place.kind,
        "turn_number": place.number,
        "entry_id": record and record.id,
        "user_message": recorded.get("user_message", _asked(built, direct)),
        "response": recorded.get("response", _said(direct) if place.kind == "call" else None),
        "outcome": recorded.get("outcome") or _outcome(place, own, built, direct),
        "started_at": started,
        "ended_at": ended,
        "elapsed_ms": between_ms(started, last),
        **tally.to_dict(),
        "work_orders": built,
        "calls": direct,
        "chains": [_event(entry) for entry in own.get("WO_CHAIN_COMPLETE", ())],
        "gates": [_event(entry) for entry in own.get("WO_QUALITY_GATE", ())],
        "escalation": next((_event(entry) for entry in own.get("ESCALATION", ())), None),
        "degradation": next((_event(entry) for entry in own.get("DEGRADATION", ())), None),
        "shown": _attention(built, "shown"),
        "left_out": _attention(built, "left_out"),
        "notes": [
            {"event_type": entry.event_type, **_event(entry)}
            for entry in loose
            if not entry.event_type.startswith("EXCHANGE")
            and str(entry.metadata.get("request_id", entry.submission_id)) not in decisions
        ],
    }
    _offset(turn, started)
    return turn


# What `remit route explain` shows: a prompt that is shown already, rules, candidates.
_OF_DECISIONS = (
    "prompt", "context", "profiles", "content", "hash", "skipped", "attempts", "stages", "scoring",
    "thought_id", "task_id", "thought_timestamp", "position",
)  # fmt: skip


def _event(entry: LedgerEntry) -> dict[str, Any]:
    """An entry's own keys, with its id and time."""
    left_out: tuple[str, ...] = ("provenance", "scope")
    if entry.event_type == "THOUGHT_RECORD" and "decision_id" in entry.metadata:
        left_out += _OF_DECISIONS
    shown = {key: value for key, value in entry.metadata.items() if key not in left_out}
    named = {"wo_id": order_of(entry)} if order_of(entry) else {}
    return {**shown, **named, "entry_id": entry.id, "timestamp": entry.timestamp}


def _decisions(
    entries: Sequence[LedgerEntry], ledger: LedgerPort, with_content: bool
) -> dict[str, LedgerEntry]:
    """Return decisions on approvals, keyed by entry id of the request."""
    found = {
        str(entry.metadata.get("request_id") or entry.submission_id): entry
        for entry in entries
        if entry.event_type in _DECISIONS and is_authentic(entry)
    }
    for entry in entries:
        if entry.event_type == "APPROVAL_REQUESTED" and entry.id not in found:
            for decision in ledger.query(submission_id=entry.id, with_content=with_content):
                if decision.event_type in _DECISIONS and is_authentic(decision):
                    found[entry.id] = decision
    return found


def _outcome(
    place: Place,
    own: Mapping[str, list[LedgerEntry]],
    orders: list[dict[str, Any]],
    direct: list[dict[str, Any]],
) -> str:
    if place.kind == "call":
        return str(direct[-1]["outcome"]) if direct else "noted"
    if any(order["waiting_for"] for order in orders) and "TURN_RECORDED" not in own:
        return "waiting"
    if place.kind == "order":
        return str(orders[0]["state"]) if orders else "noted"
    if "TURN_RECORDED" not in own:
        return "open"
    if "DEGRADATION" in own:
        return "degraded"
    return "escalated" if "ESCALATION" in own else "answered"


def _asked(orders: list[dict[str, Any]], direct: list[dict[str, Any]]) -> Any:
    """Return the user's message of a turn that has no TURN_RECORDED yet."""
    for order in orders:
        planned = order["planned"] or {}
        context = planned.get("input_context")
        if isinstance(context, dict) and "user_input" in context:
            return context["user_input"]
        return context if context is not None and not isinstance(context, dict) else None
    for call in direct:
        if "wire" in call:
            return wire_text.asked(call)
        prompt = call.get("prompt")
        if not isinstance(prompt, list):
            return prompt
        said = [
            message.get("content")
            for message in prompt
            if isinstance(message, dict) and message.get("role") == "user"
        ]
        return said[-1] if said else None
    return None


def _said(direct: list[dict[str, Any]]) -> Any:
    return direct[-1].get("response") if direct else None


def _attention(orders: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the context items that the turn's orders were shown or denied, with reasons."""
    found = []
    for order in orders:
        attention = (order["planned"] or {}).get("attention")
        items = attention.get(name) if isinstance(attention, dict) else None
        for item in items if isinstance(items, list) else ():
            shown = item if isinstance(item, dict) else {"ref": item}
            found.append({**shown, "wo_id": order["wo_id"]})
    return found


def _offset(value: Any, start: str | None) -> None:
    """Give everything that has a time its distance from the turn's beginning."""
    if isinstance(value, list):
        for item in value:
            _offset(item, start)
    elif isinstance(value, dict):
        for key in _WITH_TIME:
            if key in value:
                _offset(value[key], start)
        if "timestamp" in value and "entry_id" in value:
            value["offset_ms"] = between_ms(start, value.get("started_at") or value["timestamp"])
        elif "wo_id" in value and "steps" in value:
            value["offset_ms"] = between_ms(start, value.get("started_at"))


_WITH_TIME = (
    "work_orders", "calls", "chains", "gates", "escalation", "degradation", "notes", "steps",
    "planned", "dispatched", "executing", "ended", "attempts", "decided",
)  # fmt: skip
