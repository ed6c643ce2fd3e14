"""Operations on sessions, and on the work orders in them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import NotFoundError
from remit.operations.operation import Feed, field, verb
from remit.operations.ports import Caller, RootPort

if TYPE_CHECKING:
    from remit.ledger import LedgerClient, LedgerEntry

# fmt: off
_OF_EXCHANGE = ("model_id", "provider_id", "outcome", "input_tokens", "output_tokens", "cost_usd",
                "cost_certainty", "latency_ms", "finish_reason", "agent_id", "work_order_id",
                "contract_id", "key_id", "attempt", "error_code")
_OF_STEP = ("wo_type", "model_id", "outcome", "input_tokens", "output_tokens", "latency_ms",
            "tool_id", "status", "tool_error", "verdict", "reasons", "error_code",
            "error_message", "exchange_entry_id", "cost", "error")
_STATES = {"WO_COMPLETED": "completed", "WO_FAILED": "failed", "WO_EXECUTING": "executing",
           "WO_DISPATCHED": "dispatched", "WO_PLANNED": "planned"}
# fmt: on


@verb(
    route="GET /sessions", summary="List sessions", result="SessionPage", member="sessions",
    endpoint="sessions",
)  # fmt: skip
def list_sessions(root: RootPort, caller: Caller) -> Feed:
    """Return sessions that began with a ``SESSION_START``, latest first.

    Calls that name no session have one for each key and day, which can be read by its id.

    Raises:
        InvalidInputError: the cursor is no entry's id; raised when the list is read.
        LedgerError: the ledger cannot be read; raised when the list is read.
    """
    from remit.agents.sessions import overview_of

    def read(cursor: str | None, most: int | None) -> Iterator[tuple[str, Any]]:
        for entry in root.ledger.query(
            event_type="SESSION_START", order="desc", after=cursor, limit=most,
            with_content=False,
        ):  # fmt: skip
            yield entry.id, overview_of(root.ledger, entry).to_dict()

    return Feed(read)


@verb(
    route="GET /sessions/{session_id:path}", summary="One session", result="SessionDetail",
    member="turn_list", endpoint="session", tools=("session_overview",),
)  # fmt: skip
def show_session(
    root: RootPort, caller: Caller, *, session_id: str = field("Id of the session.")
) -> Feed:
    """Return a session: both sides of its turns, and a summary of its model calls.

    Returns:
        A list in ledger order, page by page, in two members: ``turn_list``, and ``exchanges``
        without content. With it comes the overview of the session.

    Raises:
        NotFoundError: the ledger has no entry of the session.
        InvalidInputError: the cursor is no entry's id; raised when the list is read.
        LedgerError: the ledger cannot be read; raised at once, or when the list is read.
    """

    def read(cursor: str | None, most: int | None) -> Iterator[tuple[str, Any]]:
        found = (
            root.ledger.query(session_id=session_id, event_type=event, after=cursor,
                              with_content=event == "TURN_RECORDED")
            for event in ("TURN_RECORDED", "EXCHANGE")
        )  # fmt: skip
        for entry in heapq.merge(*found, key=attrgetter("seq")):
            yield entry.id, _of_session(entry)

    overview = _overview(root.ledger, session_id)
    return Feed(read, rest=overview, lists=("turn_list", "exchanges"))


@verb(
    route="GET /traces/{work_order_id:path}", summary="Trace of a work order", tag="sessions",
    result="Trace", member="steps", endpoint="trace",
)  # fmt: skip
def show_trace(
    root: RootPort, caller: Caller, *, work_order_id: str = field("Id of the work order.")
) -> Feed:
    """Return the steps of a work order, with entry ids.

    Returns:
        A list in ledger order, page by page: one step for each entry of the order. With it come the
        order, its session (empty if unknown) and its state: the furthest that an entry gives, of
        completed, failed, executing, dispatched and planned; None if none does.

    Raises:
        NotFoundError: the ledger has no entry of the work order.
        LedgerError: the ledger cannot be read; raised at the call or when the list is read.
    """
    from remit.views.entries import named

    ledger, order_id = root.ledger, work_order_id

    def read(cursor: str | None, most: int | None) -> Iterator[tuple[str, Any]]:
        for entry in ledger.query(work_order_id=order_id, after=cursor):
            yield entry.id, {**_place(entry), "event_type": entry.event_type,
                             **_shown(entry.metadata, _OF_STEP)}  # fmt: skip

    first = next(ledger.query(work_order_id=order_id, limit=1, with_content=False), None)
    if first is None:
        raise NotFoundError("The ledger does not contain this work order.")
    state = _state(ledger, order_id)
    rest = {
        "work_order_id": order_id,
        "session_id": named(first.metadata, "session_id"),
        "state": state,
    }
    return Feed(read, rest=rest)


def _overview(ledger: LedgerClient, session_id: str) -> dict[str, Any]:
    """Return the summary of a session; of one without ``SESSION_START``, a summary without turns.

    Refused calls count as no begin: they may be another caller's.

    Raises:
        NotFoundError: the ledger has no entry of the session.
    """
    from remit.agents.sessions import session_overview
    from remit.views.entries import begin_of

    found = session_overview(ledger, session_id)
    if found is not None:
        return found.to_dict()
    begin = begin_of(ledger, session_id)
    if begin is None:
        raise NotFoundError(
            "The ledger does not contain this session.",
            next_step="GET /api/sessions lists the sessions.",
        )
    return {
        "session_id": session_id, "agent_id": begin[0], "started_at": begin[1], "turns": 0,
        "last_turn_at": "", "ended": False,
    }  # fmt: skip


def _of_session(entry: LedgerEntry) -> tuple[str, dict[str, Any]]:
    """Return the list that an entry of a session belongs to, and its JSON object."""
    metadata = entry.metadata
    if entry.event_type == "EXCHANGE":
        return "exchanges", {**_place(entry), **_shown(metadata, _OF_EXCHANGE)}
    turn = {name: metadata.get(name) for name in ("turn_number", "user_message", "response")}
    return "turn_list", {**turn, "outcome": metadata.get("outcome", ""), **_place(entry)}


def _place(entry: LedgerEntry) -> dict[str, str]:
    return {"entry_id": entry.id, "timestamp": entry.timestamp}


def _state(ledger: LedgerClient, work_order_id: str) -> str | None:
    """Return the state of an order by its latest event, in the order of ``_STATES``; else None."""
    for event, state in _STATES.items():
        found = ledger.query(
            work_order_id=work_order_id, event_type=event, limit=1, with_content=False
        )
        if next(found, None) is not None:
            return state
    return None


def _shown(metadata: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: metadata[name] for name in names if name in metadata}
