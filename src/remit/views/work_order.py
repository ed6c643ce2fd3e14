"""A work order read from its entries: plan, steps, end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remit.ledger import LedgerEntry
from remit.views.calls import Calls
from remit.views.entries import Tally, between_ms

_PLAN = (
    "input_context", "constraints", "acceptance_criteria", "tier_target", "answering", "attention",
)  # fmt: skip
_BEGIN = ("contract_version", "contract_digest", "prompt_pack_digest", "resumed")
_END = ("output_result", "error_code", "error_message", "cost")
_CALLS = frozenset({"EXCHANGE", "LLM_CALL", "EXCHANGE_ORPHANED"})
_TOOLS = frozenset({"TOOL_INTENT", "TOOL_CALL"})
_TOOL = ("tool_id", "idempotency_key", "arguments")
_RESULT = ("status", "result", "tool_error", "arguments_bytes", "result_bytes")
_STATES = {
    "WO_PLANNED": "planned",
    "WO_DISPATCHED": "dispatched",
    "WO_EXECUTING": "executing",
    "WO_COMPLETED": "completed",
    "WO_FAILED": "failed",
}
_OTHER = frozenset({*_STATES, *_CALLS, *_TOOLS})
_DECISIONS = frozenset({"APPROVAL_GRANTED", "APPROVAL_DENIED"})


def build_order(
    wo_id: str,
    entries: Sequence[LedgerEntry],
    calls: Calls,
    decisions: Mapping[str, LedgerEntry],
) -> dict[str, Any]:
    """Return a work order as data.

    Nothing is read from the ledger, except exchanges that ``calls`` looks up.

    Args:
        wo_id: id of the work order.
        entries: entries of the work order, in ledger order; at least one.
        calls: calls of the turn.
        decisions: decisions on approvals, keyed by entry id of the request.

    Returns:
        The fields of the plan (``wo_type``, ``step``, ``depends_on``, …), the contract and its
        version, ``state`` after the last entry, the entry ids of undecided requests
        (``waiting_for``), times, usage and cost, and ``steps``: model calls, tool calls, approvals,
        resumptions and notes by time. ``planned``, ``dispatched``, ``executing`` (a list) and
        ``ended`` show the entries of these events. A single value that no entry tells is None.

    Raises:
        LedgerError: an exchange outside the turn cannot be read.
    """
    by_event: dict[str, list[LedgerEntry]] = {}
    tally = Tally()
    for entry in entries:
        by_event.setdefault(entry.event_type, []).append(entry)
        tally.add(entry)
    planned = next(iter(by_event.get("WO_PLANNED", ())), None)
    executing = by_event.get("WO_EXECUTING", [])
    ends = [entry for entry in entries if entry.event_type in ("WO_COMPLETED", "WO_FAILED")]
    ended = ends[-1] if ends else None
    plan: Mapping[str, Any] = planned.metadata if planned else {}
    limits = plan.get("constraints")
    steps = [
        *calls.steps(entry for entry in entries if entry.event_type in _CALLS),
        *_tools([entry for entry in entries if entry.event_type in _TOOLS]),
        *(_approval(entry, decisions, ended) for entry in by_event.get("APPROVAL_REQUESTED", ())),
        *(_step("resumed", entry) for entry in executing if entry.metadata.get("resumed")),
        *(_note(entry) for entry in entries if _is_note(entry, decisions)),
    ]
    steps.sort(key=lambda step: str(step["started_at"]))
    first = next(iter(executing), None)
    started = (first or planned or entries[0]).timestamp if first or planned else None
    if started is None:  # an order without a plan: a client's own name for some calls
        started = steps[0]["started_at"] if steps else entries[0].timestamp
    states = [_STATES[entry.event_type] for entry in entries if entry.event_type in _STATES]
    return {
        "wo_id": wo_id,
        "parent_wo_id": plan.get("parent_wo_id"),
        "wo_type": plan.get("wo_type"),
        "step": plan.get("step"),
        "depends_on": list(plan.get("depends_on") or ()),
        "attempt": plan.get("attempt"),
        "contract_id": _contract(limits, steps),
        "contract_version": next(
            (
                entry.metadata["contract_version"]
                for entry in reversed(executing)
                if "contract_version" in entry.metadata
            ),
            None,
        ),
        "state": states[-1] if states else None,
        "waiting_for": [
            step["entry_id"]
            for step in steps
            if step["kind"] == "approval" and step["status"] == "waiting"
        ],
        "started_at": started,
        "ended_at": ended and ended.timestamp,
        "elapsed_ms": between_ms(started, ended.timestamp if ended else None),
        **tally.to_dict(),
        "planned": planned and _moment(planned, _PLAN),
        "dispatched": next(
            (_moment(e, ("prior_results",)) for e in by_event.get("WO_DISPATCHED", ())), None
        ),
        "executing": [_moment(e, _BEGIN) for e in executing],
        "steps": steps,
        "ended": ended and {"event_type": ended.event_type, **_moment(ended, _END)},
    }


def _moment(entry: LedgerEntry, keys: Sequence[str] = ()) -> dict[str, Any]:
    shown = {key: entry.metadata[key] for key in keys if key in entry.metadata}
    return {"entry_id": entry.id, "timestamp": entry.timestamp, **shown}


def _contract(limits: Any, steps: Sequence[Mapping[str, Any]]) -> str | None:
    named = limits.get("prompt_contract_id") if isinstance(limits, dict) else None
    for step in steps:
        named = named or step.get("contract_id")
    return str(named) if named else None


def _tools(entries: Sequence[LedgerEntry]) -> list[dict[str, Any]]:
    """Return tool calls: intents joined with their results by key.

    An intent without a result has an unknown outcome.
    """
    steps: list[dict[str, Any]] = []
    unfinished: dict[str, dict[str, Any]] = {}
    for entry in entries:
        metadata = entry.metadata
        key = str(metadata.get("idempotency_key") or entry.id)
        step = unfinished.get(key)
        if step is None:
            step = _step(
                "tool_call",
                entry,
                **{
                    name: metadata.get(name) for name in ("tool_id", "idempotency_key", "arguments")
                },
                status="unknown",
                result=None,
                tool_error=None,
                entry_id=None,
                intent_entry_ids=[],
            )
            steps.append(step)
            unfinished[key] = step
        if entry.event_type == "TOOL_INTENT":
            step["intent_entry_ids"].append(entry.id)
            if sub_session := metadata.get("sub_session_id"):
                step["sub_session_id"] = sub_session
            continue
        begun = bool(step["intent_entry_ids"])
        step |= {
            "entry_id": entry.id,
            "timestamp": entry.timestamp,
            "elapsed_ms": between_ms(step["started_at"], entry.timestamp) if begun else None,
        }
        step |= {name: metadata[name] for name in _RESULT if name in metadata}
        del unfinished[key]  # the same key again is another run
    return steps


def _approval(
    entry: LedgerEntry, decisions: Mapping[str, LedgerEntry], ended: LedgerEntry | None
) -> dict[str, Any]:
    metadata = entry.metadata
    decision = decisions.get(entry.id)
    status = "waiting" if ended is None else "void"
    if decision is not None:
        status = "granted" if decision.event_type == "APPROVAL_GRANTED" else "denied"
    end = decision or ended
    return _step(
        "approval",
        entry,
        **{name: metadata.get(name) for name in _TOOL},
        approval_kind=metadata.get("kind", "approval"),
        status=status,
        elapsed_ms=between_ms(entry.timestamp, end.timestamp) if end else None,
        decided=decision and _moment(decision, ("decided_by", "decision_reason")),
    )


def _is_note(entry: LedgerEntry, decisions: Mapping[str, LedgerEntry]) -> bool:
    """Return True if no other part of the view shows the entry, so that a note must."""
    if entry.event_type in _DECISIONS:
        return all(decision.id != entry.id for decision in decisions.values())
    return entry.event_type not in _OTHER and entry.event_type != "APPROVAL_REQUESTED"


def _note(entry: LedgerEntry) -> dict[str, Any]:
    details = {k: v for k, v in entry.metadata.items() if k not in ("provenance", "scope")}
    return _step("note", entry, event_type=entry.event_type, details=details)


def _step(kind: str, entry: LedgerEntry, **fields: Any) -> dict[str, Any]:
    """Return a step: the fields common to all steps, and its own."""
    return {
        "kind": kind,
        "entry_id": entry.id,
        "timestamp": entry.timestamp,
        "started_at": entry.timestamp,
        "elapsed_ms": None,
        **fields,
    }
