"""Sessions: conversations that are read from the ledger and written to it.

This subpackage owns the start, the turns and the end of a session, and overviews of all sessions.
It runs no turn: the supervisor does. A session is nothing but its entries, so any process can
continue it. Start reading in ``manager.py``.
"""

from remit.agents.sessions.manager import Marks, SessionManager
from remit.agents.sessions.overview import (
    SessionOverview,
    list_sessions,
    overview_of,
    session_overview,
    sessions_with_calls,
)
from remit.agents.sessions.recorded_turns import Turn, latest_of, response_of
from remit.kernel.errors import NotFoundError

__all__ = [
    "Marks",
    "SessionManager",
    "SessionOverview",
    "Turn",
    "latest_of",
    "list_sessions",
    "overview_of",
    "response_of",
    "session_overview",
    "sessions_with_calls",
]

# Earlier names, for programs that catch them; they end with version 1.0.
SessionNotFoundError = NotFoundError
