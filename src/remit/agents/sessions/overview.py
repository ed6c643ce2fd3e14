"""Overviews of sessions, latest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from remit.agents.sessions.recorded_turns import latest_of
from remit.agents.workorders import start_of
from remit.ledger import LedgerEntry, LedgerPort

_CALLS_LOOKED_AT = 10_000


@dataclass(frozen=True, slots=True)
class SessionOverview:
    """The overview of a session.

    Immutable; later turns are not seen.

    Attributes:
        session_id: the session.
        agent_id: its agent.
        started_at: time of its start, ISO 8601.
        turns: number of turns; 0 if its entries were archived.
        last_turn_at: time of the last turn; empty before.
        ended: True if it has a ``SESSION_END`` that no turn follows.
        caller_session_id: session of the calling agent, for a sub-agent's session; otherwise empty.
        user_id: user of the session; empty if none was named.
        archived: True if its entries were moved to a segment.
    """

    session_id: str
    agent_id: str
    started_at: str
    turns: int
    last_turn_at: str
    ended: bool
    caller_session_id: str = ""
    user_id: str = ""
    archived: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes by name, as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


def list_sessions(ledger: LedgerPort, *, limit: int | None = None) -> Iterator[SessionOverview]:
    """Yield overviews of sessions with an agent, latest start first.

    Sessions of model calls without an agent are left out. Nothing is read before the first
    iteration.

    Args:
        ledger: contains the sessions.
        limit: maximum number of sessions; None for all.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    for entry in ledger.query(
        event_type="SESSION_START", order="desc", limit=limit, with_content=False
    ):
        yield overview_of(ledger, entry)


def sessions_with_calls(ledger: LedgerPort, *, limit: int | None) -> list[SessionOverview]:
    """Return overviews of sessions, latest start first, including sessions without an agent.

    A session without an agent consists of model calls through the gateway. Such sessions are found
    among the latest 10,000 calls, and start with their first call that was sent. They have 0
    turns and never count as ended or archived. Sessions whose latest calls lie further back are
    missing.

    Args:
        ledger: contains the sessions.
        limit: maximum number of sessions; None for all.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    latest = list(list_sessions(ledger, limit=limit))
    ids = {session.session_id for session in latest}
    for call in ledger.query(
        event_type="DISPATCH", order="desc", limit=_CALLS_LOOKED_AT, with_content=False
    ):
        if (
            limit is not None
            and len(latest) >= limit
            and call.timestamp < latest[limit - 1].started_at
        ):
            break
        session_id = str(call.metadata["session_id"])
        if session_id in ids:
            continue
        ids.add(session_id)
        if session_overview(ledger, session_id) is None:
            agent_id = str(call.metadata["agent_id"])
            sent = ledger.query(
                session_id=session_id, event_type="DISPATCH", limit=1, with_content=False
            )
            began = next(sent, call).timestamp  # A refusal may be of another caller's call.
            latest.append(SessionOverview(session_id, agent_id, began, 0, "", False))
            latest.sort(key=lambda session: session.started_at, reverse=True)
    return latest[:limit]


def session_overview(ledger: LedgerPort, session_id: str) -> SessionOverview | None:
    """Return the overview of a session; None if the ledger has no ``SESSION_START`` of it.

    So the result is also None for a session that consists of model calls without an agent.

    Args:
        ledger: contains the session.
        session_id: the session.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    start = start_of(ledger, session_id)
    return None if start is None else overview_of(ledger, start)


def overview_of(ledger: LedgerPort, start: LedgerEntry) -> SessionOverview:
    """Return the overview of the session that a ``SESSION_START`` started.

    Turns and end are read from the session's latest ``TURN_RECORDED`` and ``SESSION_END``, and
    without a turn the ledger tells whether the session was archived. All else is from ``start``; a
    field that it lacks is empty.

    Args:
        ledger: contains the session.
        start: the entry; its content is not needed.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    session_id, metadata = start.submission_id, start.metadata
    turn, end = (
        latest_of(ledger, session_id, event_type) for event_type in ("TURN_RECORDED", "SESSION_END")
    )
    ended = end is not None and (turn is None or end.seq > turn.seq)
    number = turn.metadata.get("turn_number") if turn is not None else 0
    return SessionOverview(
        session_id=session_id,
        agent_id=str(_dict(metadata.get("provenance")).get("agent_id", "")),
        started_at=start.timestamp,
        turns=number if type(number) is int else 0,
        last_turn_at=turn.timestamp if turn else "",
        ended=ended,
        caller_session_id=str(_dict(metadata.get("caller")).get("session_id", "")),
        user_id=str(metadata.get("user_id") or ""),
        archived=turn is None and ledger.has_left(session_id),
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
