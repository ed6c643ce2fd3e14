"""ADMIN's tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from remit.admin.files import RootFiles
from remit.config import ToolSettings
from remit.ledger import EVENTS, LedgerClient
from remit.sessions import list_sessions
from remit.tools import Tool

__all__ = ["admin_tools"]

_MOST_ENTRIES = 100


def admin_tools(ledger: LedgerClient, root: Path, settings: ToolSettings) -> list[Tool]:
    """The tools that look at one root. They read; none of them writes.

    Args:
        ledger: the root's ledger.
        root: its directory.
        settings: limits.
    """
    files = RootFiles(root, settings.hidden_files, settings.max_output_bytes // 2)

    def query_ledger(
        event_type: str | None = None,
        max_entries: int = 10,
        session_id: str | None = None,
        work_order_id: str | None = None,
    ) -> dict[str, Any]:
        entries = ledger.query(
            event_type=event_type,
            session_id=session_id,
            work_order_id=work_order_id,
            order="desc",
            limit=max_entries,
        )
        rows = [
            {
                "id": entry.id,
                "event_type": entry.event_type,
                "submission_id": entry.submission_id,
                "decision": entry.decision,
                "reason": entry.reason[: settings.reason_chars],
                "timestamp": entry.timestamp,
                "metadata_keys": sorted(entry.metadata),
            }
            for entry in entries
        ]
        return {"status": "ok", "count": len(rows), "entries": rows}

    def sessions(max_sessions: int = 20) -> dict[str, Any]:
        rows = [item.to_dict() for item in list_sessions(ledger, limit=max_sessions)]
        return {"status": "ok", "count": len(rows), "sessions": rows}

    def verify_ledger() -> dict[str, Any]:
        report = ledger.verify()
        return {
            "verified": report.verified,
            "entries": report.entries,
            "first_bad_seq": report.first_bad_seq,
            "problems": [str(problem) for problem in report.problems[:10]],
        }

    return [
        Tool(
            "query_ledger",
            "Show the latest entries recorded in the ledger, the newest first. Full texts stay in "
            "the ledger.",
            {
                "type": "object",
                "properties": {
                    "event_type": {
                        "enum": list(EVENTS),
                        "description": "only this event type",
                    },
                    "max_entries": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": _MOST_ENTRIES,
                        "default": 10,
                    },
                    "session_id": {"type": "string"},
                    "work_order_id": {"type": "string"},
                },
                "additionalProperties": False,
            },
            query_ledger,
            (
                ("show the ledger", {}),
                ("what happened recently?", {}),
                ("show me the latest 5 events", {"max_entries": 5}),
                ("which TOOL_CALL entries were recorded?", {"event_type": "TOOL_CALL"}),
            ),
            _describe_entries,
            "events",
        ),
        Tool(
            "list_sessions",
            "List the conversations on record, with their number of turns.",
            {
                "type": "object",
                "properties": {
                    "max_sessions": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": _MOST_ENTRIES,
                        "default": 20,
                    }
                },
                "additionalProperties": False,
            },
            sessions,
            (
                ("which sessions exist?", {}),
                ("list my conversations", {}),
                ("show sessions", {}),
                ("how many sessions are there?", {}),
            ),
            _describe_sessions,
            "sessions",
        ),
        Tool(
            "read_file",
            "Read one text file of the root.",
            {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "path relative to the root"}
                },
                "required": ["path"],
                "additionalProperties": False,
            },
            files.read_file,
            (
                ("open notes.txt", {"path": "notes.txt"}),
                ("show me the file config.json", {"path": "config.json"}),
                ("what is in README.md?", {"path": "README.md"}),
                ("read src/main.py", {"path": "src/main.py"}),
            ),
            lambda output: f"The file {output['path']} says: {_first_line(output['text'])}",
            "read",
        ),
        Tool(
            "list_files",
            "List the files of the root.",
            {
                "type": "object",
                "properties": {
                    "path": {
                        "type": "string",
                        "description": "a directory relative to the root",
                        "default": ".",
                    }
                },
                "additionalProperties": False,
            },
            files.list_files,
            (
                ("list the files", {}),
                ("what is in this folder?", {}),
                ("show the directory", {}),
                ("which files do you have?", {}),
            ),
            _describe_files,
            "files",
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
        ),
    ]


def _describe_entries(output: dict[str, Any]) -> str:
    rows = output["entries"]
    if not rows:
        return "There are no such entries."
    return f"There are {len(rows)} entries, the latest is {rows[0]['id']}."


def _describe_sessions(output: dict[str, Any]) -> str:
    rows = output["sessions"]
    shown = ", ".join(
        f"{row['session_id']} with {row['turns']} turn{'' if row['turns'] == 1 else 's'}"
        for row in rows[:3]
    )
    noun = "is 1 session" if len(rows) == 1 else f"are {len(rows)} sessions"
    return f"There {noun}: {shown}."


def _describe_files(output: dict[str, Any]) -> str:
    shown = ", ".join(row["path"] for row in output["files"][:3])
    return f"There are {output['count']} files, among them: {shown}."


def _describe_verification(output: dict[str, Any]) -> str:
    if output["verified"]:
        return f"The ledger verifies: {output['entries']} entries, no problem."
    return f"The ledger does not verify: {'; '.join(output['problems'][:2])}."


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "nothing")[:200]
