"""The recorded turns of a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from remit.ledger import LedgerEntry, LedgerPort


@dataclass(frozen=True, slots=True)
class Turn:
    """User message and response of one turn.

    Immutable. Erased texts are placeholders.

    Attributes:
        turn_number: number of the turn in its session, from 1.
        user_message: the user's message.
        response: the delivered text.
        timestamp: time of the turn, ISO 8601.
        entry_id: id of its ``TURN_RECORDED``.
    """

    turn_number: int
    user_message: str
    response: str
    timestamp: str
    entry_id: str

    @property
    def said(self) -> dict[str, str]:
        """User message and response, keyed ``user_message`` and ``response``, as a template
        receives them.
        """
        return {"user_message": self.user_message, "response": self.response}


def response_of(ledger: LedgerPort, turn_entry_id: str) -> dict[str, Any]:
    """Return ``response`` and ``outcome`` of a recorded turn.

    The outcome is empty for the agent's own answer. An erased response is an ``Erased`` value.

    Args:
        ledger: contains the turn.
        turn_entry_id: id of the ``TURN_RECORDED``; if empty, the response is None.

    Raises:
        EntryNotFoundError: the ledger has no such entry.
        LedgerError: the ledger cannot be read.
    """
    if not turn_entry_id:
        return {"response": None, "outcome": ""}
    turn = ledger.read(turn_entry_id).metadata
    return {"response": turn["response"], "outcome": str(turn.get("outcome", ""))}


def latest_of(ledger: LedgerPort, session_id: str, event_type: str) -> LedgerEntry | None:
    """Return a session's latest entry of a type, without content; None if there is none.

    Args:
        ledger: contains the session.
        session_id: the session.
        event_type: the type.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    found = ledger.query(
        session_id=session_id, event_type=event_type, order="desc", limit=1, with_content=False
    )
    return next(found, None)
