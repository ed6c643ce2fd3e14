"""The shapes of the record: entries, sessions, traces."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from remit.server.api.responses.page import Paged


class EntryShape(BaseModel):
    """One ledger entry. Erased content stands as `{"$erased": ID of the ERASURE entry}`."""

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


class EntryPage(Paged):
    """Entries. A page of much content may hold fewer than were asked for."""

    entries: list[EntryShape]


class Head(BaseModel):
    """The last entry."""

    seq: int
    entry_hash: str


class Stats(BaseModel):
    """How many entries of which event type."""

    entries: int
    events: dict[str, int]
    head: Head | None
    location: str


class SessionShape(BaseModel):
    """One session in a line."""

    session_id: str
    agent_id: str
    started_at: str
    turns: int
    last_turn_at: str
    ended: bool


class SessionPage(Paged):
    """Sessions, the latest first."""

    sessions: list[SessionShape]


class TurnShape(BaseModel):
    """Both sides of one turn; text, or the marker of what was erased.

    Attributes:
        outcome: empty if the response is the agent's answer, which the quality gate accepted;
            else `notice`, `degraded`, `cancelled` or `abandoned`.
    """

    turn_number: Any
    timestamp: str
    entry_id: str
    user_message: Any
    response: Any
    outcome: str = ""


class ExchangeShape(BaseModel):
    """One model call in a line; its entry holds prompt and response."""

    model_config = ConfigDict(extra="allow")

    entry_id: str
    timestamp: str


class SessionDetail(SessionShape, Paged):
    """A session with the turns and model calls of this page, each in ledger order."""

    turn_list: list[TurnShape]
    exchanges: list[ExchangeShape]


class Step(BaseModel):
    """One entry of a work order in a line, with what its event says."""

    model_config = ConfigDict(extra="allow")

    entry_id: str
    event_type: str
    timestamp: str


class Trace(Paged):
    """What happened in a work order, in ledger order.

    `state` is null where the order was the caller's own and Remit did not plan it.
    """

    work_order_id: str
    session_id: str
    state: Literal["planned", "dispatched", "executing", "completed", "failed"] | None
    steps: list[Step]
