"""The forms of entries, sessions and traces."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from remit.operations.results import Paged, listing


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
    """The last entry.

    `seq` is its number from 0, `entry_hash` its SHA-256 in hex.
    """

    seq: int
    entry_hash: str


class Stats(BaseModel):
    """Number of entries of each event type.

    `entries` counts all, `events` by event type; `head` is null in an empty ledger; `location` is
    the file or URL.
    """

    entries: int
    events: dict[str, int]
    head: Head | None
    location: str


class SessionShape(BaseModel):
    """A summary of a session.

    `session_id` and `agent_id` identify it; `started_at` and `last_turn_at` are in UTC (empty:
    never); `turns` counts turns; `ended` is true after its end.
    """

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
        turn_number: number of the turn in its session, from 1.
        timestamp: time of the record, in UTC.
        entry_id: entry that records the turn.
        user_message: the message.
        response: the answer, or the notice in its place.
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
    """A summary of a model call; its entry contains prompt and response.

    `entry_id` is the entry, `timestamp` its time in UTC; further members come from its metadata.
    """

    model_config = ConfigDict(extra="allow")

    entry_id: str
    timestamp: str


class SessionDetail(SessionShape, Paged):
    """A session with the turns and model calls of this page, each in ledger order.

    `turn_list` holds the turns, `exchanges` the calls.
    """

    turn_list: list[TurnShape]
    exchanges: list[ExchangeShape]


class Step(BaseModel):
    """A summary of one entry of a work order.

    `entry_id`, `event_type` and `timestamp` (UTC) identify it; further members depend on the event
    type.
    """

    model_config = ConfigDict(extra="allow")

    entry_id: str
    event_type: str
    timestamp: str


class Trace(Paged):
    """The steps of a work order, in ledger order.

    `state` is null if Remit did not plan the order.

    `steps` are the entries of `work_order_id`, which belongs to `session_id`.
    """

    work_order_id: str
    session_id: str
    state: Literal["planned", "dispatched", "executing", "completed", "failed"] | None
    steps: list[Step]
