"""The tools of agents that read entries of the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remit.kernel.errors import NotFoundError
from remit.kernel.json_text import dump
from remit.operations.agent_tools import (
    AgentTool,
    ToolCall,
    argument,
    list_schema,
    session_argument,
)

_ROW = ("id", "event_type", "submission_id", "decision", "reason", "timestamp")
# The other fields of an entry serve verification and are not shown.
_ENTRY = (*_ROW, "prompts_used", "metadata")


def _known_events() -> Iterable[str]:
    from remit.ledger import EVENTS

    return EVENTS


_FILTERS = {
    "event_type": argument("only this event type", known=_known_events, examples=("EXCHANGE",)),
    "session_id": session_argument("only entries of this session"),
    "work_order_id": argument("only entries of this work order",
                              pattern="^WO-[A-Za-z0-9_.-]+$", examples=("WO-SES-7K2M4QX9-001",)),
}  # fmt: skip


def _latest(call: ToolCall) -> dict[str, Any]:
    """Return the request of the latest entries with their content, or of the named one."""
    given = dict(call.given)
    if entry_id := given.pop("entry_id", None):
        before = int(entry_id[4:], 16) - 1
        return {"after": before, "max_entries": 1, "content": True}
    return {**given, "order": "desc", "content": True}


def _shape_rows(call: ToolCall, found: dict[str, Any]) -> dict[str, Any]:
    """Return entries without their content, and the number of all if no owner is named."""
    most, counts = call.settings.reason_chars, call.root.ledger.count_by_event
    rows = [
        {**{name: getattr(entry, name) for name in _ROW},
         "reason": call.redactor.text(str(entry.reason))[:most],
         "metadata_keys": sorted(entry.metadata)}
        for entry in found["entries"]
    ]  # fmt: skip
    event, *owners = (call.given[name] for name in _FILTERS)
    total = {} if any(owners) else {
        "total": counts().get(event, 0) if event else sum(counts().values())
    }  # fmt: skip
    return {**found, **total, "entries": rows}


def _shape_entries(call: ToolCall, found: dict[str, Any]) -> dict[str, Any]:
    """Return entries with their content.

    Raises:
        NotFoundError: the named entry does not exist.
    """
    entries = found["entries"]
    if (wanted := call.given["entry_id"]) and not entries:
        raise NotFoundError(f"The ledger has no entry {wanted}.")
    rows = [{name: getattr(entry, name) for name in _ENTRY} for entry in entries]
    return {"count": len(rows), "entries": rows}


def _say_rows(output: dict[str, Any]) -> str:
    rows = output["entries"]
    number = output.get("total", "more" if output.get("more") else len(rows))
    noun = "is 1 such entry" if number == 1 else f"are {number} such entries"
    lines = [
        f"{row['timestamp']}  {row['id']}  {row['event_type']}: {row['reason']}" for row in rows
    ]
    head = f"There {noun}; the latest {len(rows)}:" if rows else "There are no such entries."
    return "\n".join([head, *lines])


def _say_entries(output: dict[str, Any]) -> str:
    return (
        "\n".join(dump(row).decode() for row in output["entries"]) or "There are no such entries."
    )


QUERY_LEDGER = AgentTool(
    name="query_ledger", label="events", title="Latest entries of the ledger",
    returns=list_schema("entries"), request=_latest, shape=_shape_rows, describe=_say_rows,
    about="Show the latest entries recorded in the ledger, a line each, the newest first. "
    "Use it to see calls, decisions, refusals and approvals, and to find ids for "
    "trace_prompt_journey. The result contains no prompts or answers.",
    arguments={
        "event_type": _FILTERS["event_type"],
        "max_entries": argument(
            "maximum number of entries", 10, type=int, least=1, most=100, examples=(10, 50)
        ),
        **_FILTERS,
    },
    examples=(
        "show the ledger", "what happened recently?",
        ("show the latest 5 events", {"max_entries": 5}),
        "what was written to the log most recently?", "how many records are there?",
        ("which TOOL_CALL entries were recorded?", {"event_type": "TOOL_CALL"}),
        ("query the ledger for SESSION_END events", {"event_type": "SESSION_END"}),
        ("how many EXCHANGE entries are there?", {"event_type": "EXCHANGE"}),
    ),
)  # fmt: skip

QUERY_LEDGER_FULL = AgentTool(
    name="query_ledger_full", label="content", request=_latest, shape=_shape_entries,
    about="Read the full content, the whole text of a record: one by its id, or of the "
    "latest few. What is too long is cut, and it is said where.",
    arguments={
        "entry_id": argument("this one entry", pattern="^LED-[0-9a-f]{8,}$"),
        "event_type": _FILTERS["event_type"],
        "max_entries": argument("maximum number of entries", 3, type=int, least=1, most=20),
        **_FILTERS,
    },
    examples=(
        ("show the full content of LED-0000002a", {"entry_id": "LED-0000002a"}),
        ("whole text of LED-00000010", {"entry_id": "LED-00000010"}),
        ("full TOOL_CALL with its content", {"event_type": "TOOL_CALL"}),
        ("open the entry LED-00000007 in full", {"entry_id": "LED-00000007"}),
        ("when was LED-00000007 written?", {"entry_id": "LED-00000007"}),
    ),
    describe=_say_entries,
    note="Cut to fit. Ask for one entry by its entry_id to see more of it; `remit ledger "
    "show ID` prints all of it.",
)  # fmt: skip
