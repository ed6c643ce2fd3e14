"""What a tool may take for granted: the session that asks."""

from __future__ import annotations

from typing import Any

from remit.agents.tools import ToolError, current_call

__all__ = ["SESSION_ID", "asked_session", "asking_session"]

SESSION_ID: dict[str, Any] = {
    "type": "string",
    "pattern": "^SES-[A-Za-z0-9_.-]+$",
    "description": "such as SES-7K2M4QX9; this session when left out",
}
"""JSON Schema of an argument that names a session."""


def asking_session() -> str:
    """The session whose turn this is; empty where a tool runs by itself."""
    call = current_call()
    return call.session_id if call is not None else ""


def asked_session(session_id: str | None) -> str:
    """The session that is meant: the one that is named, else the one that asks.

    Raises:
        ToolError: none is named, and no session asks.
    """
    found = session_id or asking_session()
    if not found:
        raise ToolError("Name a session with session_id; list_sessions shows them.")
    return found
