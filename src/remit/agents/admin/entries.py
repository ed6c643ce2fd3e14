"""Entries of the ledger: in a line each, whole, and whether they are intact."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remit.agents.admin.fitting import fit, plain
from remit.agents.admin.hiding import Hiding
from remit.agents.tools import Tool, ToolError
from remit.kernel.settings import ToolSettings
from remit.ledger import EVENTS, EntryNotFoundError, LedgerClient, LedgerEntry

__all__ = ["entry_tools"]

_MAX_ENTRIES = 100
_MAX_WHOLE = 20
_MAX_PROBLEMS = 10
_WHICH = {
    "session_id": {
        "type": "string",
        "pattern": "^SES-[A-Za-z0-9_.-]+$",
        "description": "only entries of this session",
    },
    "work_order_id": {
        "type": "string",
        "pattern": "^WO-[A-Za-z0-9_.-]+$",
        "description": "only entries of this work order",
    },
}
_EVENT = {"enum": list(EVENTS), "description": "only this event type"}
# What the ledger adds to an entry is for verifying it, not for reading.
_TOLD = ("id", "event_type", "submission_id", "decision", "reason", "timestamp", "prompts_used",
         "metadata")  # fmt: skip


def entry_tools(ledger: LedgerClient, settings: ToolSettings, hiding: Hiding) -> list[Tool]:
    """``query_ledger``, ``query_ledger_full`` and ``verify_ledger``.

    Args:
        ledger: the root's.
        settings: where reasons and outputs are cut.
        hiding: takes keys out of content.
    """

    def query_ledger(max_entries: int = 10, **which: str) -> dict[str, Any]:
        rows = [
            {
                "id": entry.id,
                "event_type": entry.event_type,
                "submission_id": entry.submission_id,
                "decision": entry.decision,
                "reason": hiding.text(str(entry.reason))[: settings.reason_chars],
                "timestamp": entry.timestamp,
                "metadata_keys": sorted(entry.metadata),
            }
            for entry in _latest(max_entries, which)
        ]
        return {"status": "ok", "count": len(rows), "entries": rows}

    def query_ledger_full(
        entry_id: str | None = None, max_entries: int = 3, **which: str
    ) -> dict[str, Any]:
        found: Iterable[LedgerEntry]
        if entry_id is None:
            found = _latest(max_entries, which)
        else:
            try:
                found = [ledger.read(entry_id)]
            except EntryNotFoundError as error:
                raise ToolError(f"The ledger has no entry {entry_id}.") from error
        rows = [
            hiding.value({name: plain(getattr(entry, name)) for name in _TOLD}) for entry in found
        ]
        fitted = fit(rows, settings.max_output_bytes // 2)
        output = {"status": "ok", "count": len(rows), "entries": fitted.value}
        if fitted.cut:
            output["cut"] = [_where(rows, place) for place in fitted.cut[:_MAX_PROBLEMS]]
            output["note"] = (
                "Cut to fit. Ask for one entry by its entry_id to see more of it; "
                "`remit ledger show ID` prints it whole."
            )
        return output

    def verify_ledger() -> dict[str, Any]:
        report = ledger.verify()
        return {
            "verified": report.verified,
            "entries": report.entries,
            "first_bad_seq": report.first_bad_seq,
            "problems": [str(problem) for problem in report.problems[:_MAX_PROBLEMS]],
        }

    def _latest(limit: int, which: dict[str, str]) -> Iterable[LedgerEntry]:
        return ledger.query(**which, order="desc", limit=limit)  # type: ignore[arg-type]

    return [
        Tool(
            "query_ledger",
            "Show the latest entries recorded in the ledger, a line each, the newest first.",
            {
                "type": "object",
                "properties": {
                    "event_type": _EVENT,
                    "max_entries": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": _MAX_ENTRIES,
                        "default": 10,
                    },
                    **_WHICH,
                },
                "additionalProperties": False,
            },
            query_ledger,
            (
                ("show the ledger", {}),
                ("what happened recently?", {}),
                ("show the latest 5 events", {"max_entries": 5}),
                ("which TOOL_CALL entries were recorded?", {"event_type": "TOOL_CALL"}),
            ),
            _describe_entries,
            "events",
            on_unknown="retry",
        ),
        Tool(
            "query_ledger_full",
            "Read the full content, the whole text of a record: one by its id, or of the latest "
            "few. What is too long is cut, and it is said where.",
            {
                "type": "object",
                "properties": {
                    "entry_id": {
                        "type": "string",
                        "pattern": "^LED-[0-9a-f]{8,}$",
                        "description": "this one entry",
                    },
                    "event_type": _EVENT,
                    "max_entries": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": _MAX_WHOLE,
                        "default": 3,
                    },
                    **_WHICH,
                },
                "additionalProperties": False,
            },
            query_ledger_full,
            (
                ("show the full content of LED-0000002a", {"entry_id": "LED-0000002a"}),
                ("whole text of LED-00000010", {"entry_id": "LED-00000010"}),
                ("full TOOL_CALL with its content", {"event_type": "TOOL_CALL"}),
                ("LED-00000007 in full", {"entry_id": "LED-00000007"}),
            ),
            _describe_whole,
            "content",
            on_unknown="retry",
        ),
        Tool(
            "verify_ledger",
            "Check that the ledger is intact: every record, link and content value.",
            {"type": "object", "properties": {}, "additionalProperties": False},
            verify_ledger,
            (
                ("verify the ledger", {}),
                ("check the hash chain", {}),
                ("has the ledger been tampered with?", {}),
                ("is the log intact?", {}),
            ),
            _describe_verification,
            "verify",
            on_unknown="retry",
        ),
    ]


def _where(rows: list[dict[str, Any]], place: str) -> str:
    """A place in the list of entries, said by the entry's id."""
    number, _, below = place.partition(".")
    return f"{rows[int(number)]['id']}: {below}" if number.isdigit() and below else "entries"


def _describe_entries(output: dict[str, Any]) -> str:
    rows = output["entries"]
    if not rows:
        return "There are no such entries."
    return f"There are {len(rows)} entries, the latest is {rows[0]['id']}."


def _describe_whole(output: dict[str, Any]) -> str:
    rows = output["entries"]
    if not rows:
        return "There are no such entries."
    first = rows[0]
    return f"The entry {first['id']} is a {first['event_type']}: {first['reason']}."


def _describe_verification(output: dict[str, Any]) -> str:
    if output["verified"]:
        return f"The ledger verifies: {output['entries']} entries, no problem."
    return f"The ledger does not verify: {'; '.join(output['problems'][:2])}."
