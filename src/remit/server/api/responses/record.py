"""The forms of entries, sessions and traces."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from remit.server.api.responses.page import Paged, listing


class EntryShape(BaseModel):
    """A ledger entry. Erased content is `{"$erased": ID of the ERASURE entry}`.

    Attributes:
        event_type: kind of the entry, such as `EXCHANGE`.
        submission_id: id of the contract, session or work order that the entry belongs to.
        decision: the outcome in a word.
        reason: the reason in a sentence.
        prompts_used: ids of the prompt packs behind the event.
        metadata: the data of the event type, such as `session_id`; content is shown as a commitment
            unless content was asked for.
        id: `LED-` and the number of the entry in hex.
        timestamp: ISO 8601 in UTC.
        previous_hash: `entry_hash` of the entry before; empty for the first.
        entry_hash: SHA-256 of the canonical record, 64 hex digits.
    """

    event_type: str
    submission_id: str
    decision: str
    reason: str
    prompts_used: list[str]
    metadata: dict[str, Any]
    id: str
    timestamp: str
    previous_hash: str
    entry_hash: str


EntryPage = listing(
    "EntryPage",
    "Entries. A page with much content may have fewer entries than the limit.",
    entries=EntryShape,
)


class Head(BaseModel):
    """The last entry."""

    seq: int
    entry_hash: str


class Stats(BaseModel):
    """Number of entries of each event type."""

    entries: int
    events: dict[str, int]
    head: Head | None
    location: str


class SessionShape(BaseModel):
    """A summary of a session."""

    session_id: str
    agent_id: str
    started_at: str
    turns: int
    last_turn_at: str
    ended: bool


SessionPage = listing("SessionPage", "Sessions, latest first.", sessions=SessionShape)


class TurnShape(BaseModel):
    """Both sides of one turn: texts, or markers of erased content.

    Attributes:
        outcome: empty if the response is the agent's answer and the quality gate accepted it; else
            `notice`, `degraded`, `cancelled` or `abandoned`.
    """

    turn_number: Any
    timestamp: str
    entry_id: str
    user_message: Any
    response: Any
    outcome: str = ""


class ExchangeShape(BaseModel):
    """A summary of a model call; its entry contains prompt and response."""

    model_config = ConfigDict(extra="allow")

    entry_id: str
    timestamp: str


class SessionDetail(SessionShape, Paged):
    """A session with the turns and model calls of this page, each in ledger order."""

    turn_list: list[TurnShape]
    exchanges: list[ExchangeShape]


class Step(BaseModel):
    """A summary of one entry of a work order."""

    model_config = ConfigDict(extra="allow")

    entry_id: str
    event_type: str
    timestamp: str


class Trace(Paged):
    """The steps of a work order, in ledger order.

    `state` is null if Remit did not plan the order.
    """

    work_order_id: str
    session_id: str
    state: Literal["planned", "dispatched", "executing", "completed", "failed"] | None
    steps: list[Step]
