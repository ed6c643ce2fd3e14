"""What sessions there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from remit.ledger import LedgerPort

__all__ = ["SessionOverview", "list_sessions", "session_overview"]


@dataclass(frozen=True, slots=True)
class SessionOverview:
    """One session in a line."""

    session_id: str
    agent_id: str
    started_at: str
    turns: int
    last_turn_at: str
    ended: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


def list_sessions(ledger: LedgerPort, *, limit: int | None = None) -> Iterator[SessionOverview]:
    """Sessions, the latest first."""
    for entry in ledger.query(
        event_type="SESSION_START", order="desc", limit=limit, with_content=False
    ):
        yield _overview(ledger, entry.submission_id, entry.metadata, entry.timestamp)


def session_overview(ledger: LedgerPort, session_id: str) -> SessionOverview | None:
    """One session, or ``None`` where the ledger has no such."""
    for entry in ledger.query(
        session_id=session_id, event_type="SESSION_START", limit=1, with_content=False
    ):
        return _overview(ledger, session_id, entry.metadata, entry.timestamp)
    return None


def _overview(
    ledger: LedgerPort, session_id: str, metadata: dict[str, Any], started_at: str
) -> SessionOverview:
    def latest(event_type: str) -> Any:
        found = ledger.query(
            session_id=session_id, event_type=event_type, order="desc", limit=1, with_content=False
        )
        return next(iter(found), None)

    turn, end = latest("TURN_RECORDED"), latest("SESSION_END")
    ended = end is not None and (turn is None or int(end.id[4:], 16) > int(turn.id[4:], 16))
    return SessionOverview(
        session_id=session_id,
        agent_id=str(metadata.get("provenance", {}).get("agent_id", "")),
        started_at=started_at,
        turns=turn.metadata["turn_number"] if turn else 0,
        last_turn_at=turn.timestamp if turn else "",
        ended=ended,
    )
