"""Threads: what a conversation leaves open, known to later turns and to other sessions.

A model opens and closes them by tools that only return what they were asked: the supervisor
writes the entries itself, once the order that asked has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from remit.agents.supervisor.attention import Candidate
from remit.agents.tools import Tool, tool
from remit.ledger import Erased, LedgerPort

__all__ = ["is_date", "open_threads", "proposals", "thread_tools"]

COMMITMENTS: Mapping[str, float] = {"agent": 1.0, "user": 0.7, "none": 0.3}
"""How binding a thread is: the agent promised, the user promised, neither did."""

_MAX_LOOKED_AT = 200


@tool(on_unknown="retry")
def open_thread(
    title: Annotated[str, Field(min_length=1, max_length=300)],
    commitment: Literal["agent", "user", "none"] = "agent",
    due: str = "",
) -> dict[str, Any]:
    """Note something that stays open after this conversation: a promise, a question to come
    back to. Later conversations will know of it.

    Args:
        commitment: who is bound by it
        due: ISO 8601 date, if there is one
    """
    return {"opened": title, "commitment": commitment, "due": due}


@tool(on_unknown="retry")
def close_thread(thread_id: str) -> dict[str, Any]:
    """Note that an open thread is settled."""
    return {"closed": thread_id}


def thread_tools() -> list[Tool]:
    """The two tools, for models that can choose tools by themselves."""
    return [open_thread, close_thread]


def proposals(
    tool_results: Sequence[Mapping[str, Any]], session_id: str, turn_number: int
) -> list[tuple[str, dict[str, Any]]]:
    """What an order's tools asked for: event types and metadata of the entries."""
    found: list[tuple[str, dict[str, Any]]] = []
    for number, result in enumerate(tool_results):
        output = result.get("output")
        if result.get("status") != "ok" or not isinstance(output, Mapping):
            continue
        if result["tool_id"] == open_thread.tool_id:
            thread: dict[str, Any] = {
                "thread_id": f"THR-{session_id}-{turn_number:03d}-{number}",
                "title": str(output["opened"]),
                "commitment": str(output["commitment"]),
            }
            if is_date(output.get("due")):
                thread["due"] = str(output["due"])
            found.append(("THREAD_OPENED", thread))
        elif result["tool_id"] == close_thread.tool_id:
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
    """Open threads, the latest first.

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
            ref=data["thread_id"],
            text=data["title"],
            commitment=COMMITMENTS.get(data["commitment"], 0.0),
            at=entry.timestamp,
            due=str(data.get("due", "")),
        )
        for entry in opened
        if (data := entry.metadata)["thread_id"] not in closed
        and not isinstance(data["title"], Erased)
    ]
