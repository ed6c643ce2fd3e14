"""Sessions: conversations, read from the ledger and written to it (SPEC 9.2)."""

from remit.agents.sessions.manager import (
    SessionManager,
    SessionNotFoundError,
    SessionOverview,
    Turn,
    list_sessions,
    new_session_id,
    session_overview,
)

__all__ = [
    "SessionManager",
    "SessionNotFoundError",
    "SessionOverview",
    "Turn",
    "list_sessions",
    "new_session_id",
    "session_overview",
]
