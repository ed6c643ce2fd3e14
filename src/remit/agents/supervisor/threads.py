"""Threads: what a conversation leaves open, known to later turns and to other sessions.

A model opens and closes them by tools that only give back what they were asked: writing the
supervisor's record is the supervisor's own business, once the order that asked has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from remit.agents.supervisor.attention import Candidate
from remit.agents.tools import Tool
from remit.ledger import Erased, LedgerPort

__all__ = ["CLOSE_THREAD", "OPEN_THREAD", "is_date", "open_threads", "proposals", "thread_tools"]

OPEN_THREAD, CLOSE_THREAD = "open_thread", "close_thread"
COMMITMENTS: Mapping[str, float] = {"agent": 1.0, "user": 0.7, "none": 0.3}
"""How binding a thread is: the agent promised, the user promised, nobody did."""

_MAX_LOOKED_AT = 200


def thread_tools() -> list[Tool]:
    """The two tools, for models that can choose tools by themselves."""

    def open_thread(title: str, commitment: str = "agent", due: str = "") -> dict[str, Any]:
        return {"opened": title, "commitment": commitment, "due": due}

    def close_thread(thread_id: str) -> dict[str, Any]:
        return {"closed": thread_id}

    return [
        Tool(
            OPEN_THREAD,
            "Note something that stays open after this conversation: a promise, a question to come "
            "back to. Later conversations will know of it.",
            {
                "type": "object",
                "properties": {
                    "title": {"type": "string", "minLength": 1, "maxLength": 300},
                    "commitment": {
                        "enum": list(COMMITMENTS),
                        "default": "agent",
                        "description": "who is bound by it",
                    },
                    "due": {"type": "string", "description": "ISO 8601 date, if there is one"},
                },
                "required": ["title"],
                "additionalProperties": False,
            },
            open_thread,
            on_unknown="retry",
        ),
        Tool(
            CLOSE_THREAD,
            "Note that an open thread is settled.",
            {
                "type": "object",
                "properties": {"thread_id": {"type": "string"}},
                "required": ["thread_id"],
                "additionalProperties": False,
            },
            close_thread,
            on_unknown="retry",
        ),
    ]


def proposals(
    tool_results: Sequence[Mapping[str, Any]], session_id: str, turn_number: int
) -> list[tuple[str, dict[str, Any]]]:
    """What an order's tools asked for: event types, and what the entries hold."""
    found: list[tuple[str, dict[str, Any]]] = []
    for number, result in enumerate(tool_results):
        output = result.get("output")
        if result.get("status") != "ok" or not isinstance(output, Mapping):
            continue
        if result["tool_id"] == OPEN_THREAD:
            thread: dict[str, Any] = {
                "thread_id": f"THR-{session_id}-{turn_number:03d}-{number}",
                "title": str(output["opened"]),
                "commitment": str(output["commitment"]),
            }
            if is_date(output.get("due")):
                thread["due"] = str(output["due"])
            found.append(("THREAD_OPENED", thread))
        elif result["tool_id"] == CLOSE_THREAD:
            found.append(("THREAD_CLOSED", {"thread_id": str(output["closed"])}))
    return found


def is_date(text: Any) -> bool:
    """Whether a text is an ISO 8601 date or time: nothing else goes on record as one."""
    try:
        return bool(text) and datetime.fromisoformat(str(text)) is not None
    except ValueError:
        return False


def open_threads(
    ledger: LedgerPort,
    *,
    session_id: str | None = None,
    agent_id: str | None = None,
    most: int = _MAX_LOOKED_AT,
) -> list[Candidate]:
    """Threads that nobody has closed, the latest first.

    Args:
        ledger: a handle that sees the supervisor's entries.
        session_id: only those that this session opened; of all sessions when left out.
        agent_id: only those of this agent.
        most: how many are looked at.
    """
    opened = list(
        ledger.query(
            event_type="THREAD_OPENED",
            session_id=session_id,
            agent_id=agent_id,
            order="desc",
            limit=most,
        )
    )
    if not opened:
        return []
    # Any session may close a thread; what was closed before the oldest was opened is another's.
    first = min(int(entry.id[4:], 16) for entry in opened)
    closed = {
        entry.metadata["thread_id"]
        for entry in ledger.query(event_type="THREAD_CLOSED", after=first)
    }
    return [
        Candidate(
            kind="thread",
            ref=told["thread_id"],
            text=told["title"],
            commitment=COMMITMENTS.get(told["commitment"], 0.0),
            at=entry.timestamp,
            due=str(told.get("due", "")),
        )
        for entry in opened
        if (told := entry.metadata)["thread_id"] not in closed
        and not isinstance(told["title"], Erased)
    ]
