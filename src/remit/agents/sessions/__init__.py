"""Sessions: conversations, read from the ledger and written to it."""

from remit.agents.sessions.manager import (
    Marks,
    SessionManager,
    SessionNotFoundError,
    Turn,
    latest_of,
    new_session_id,
    response_of,
)
from remit.agents.sessions.overview import (
    SessionOverview,
    list_sessions,
    session_overview,
    sessions_with_calls,
)

__all__ = [
    "Marks",
    "SessionManager",
    "SessionNotFoundError",
    "SessionOverview",
    "Turn",
    "latest_of",
    "list_sessions",
    "new_session_id",
    "response_of",
    "session_overview",
    "sessions_with_calls",
]
