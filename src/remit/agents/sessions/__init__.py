"""Sessions: conversations that are read from the ledger and written to it.

This subpackage owns the start, the turns and the end of a session, and overviews of all sessions.
It runs no turn: the supervisor does. A session is nothing but its entries, so any process can
continue it. Start reading in ``manager.py``.
"""

from remit.agents.sessions.manager import (
    Marks as Marks,
    SessionManager as SessionManager,
    new_session_id as new_session_id,
)
from remit.agents.sessions.overview import (
    SessionOverview as SessionOverview,
    list_sessions as list_sessions,
    overview_of as overview_of,
    session_overview as session_overview,
    sessions_with_calls as sessions_with_calls,
)
from remit.agents.sessions.recorded_turns import (
    Turn as Turn,
    latest_of as latest_of,
    response_of as response_of,
)
from remit.kernel.errors import NotFoundError

# Earlier names, for programs that catch them; they end with version 1.0.
SessionNotFoundError = NotFoundError
