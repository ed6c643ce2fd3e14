"""Routes of sessions, and of the work orders in them."""

from __future__ import annotations

import heapq
from typing import Annotated, Any

from fastapi import Query

from remit.agents.sessions import session_overview
from remit.kernel.errors import NotFoundError
from remit.ledger import LedgerClient, LedgerEntry
from remit.operations.results import Page
from remit.server.api.routes import Listed, Routes, page_of
from remit.server.refusals import HttpError

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


def session_routes(ledger: LedgerClient) -> Routes:
    """Return the routes that list sessions, and show a session or a work order's trace.

    Nothing is written. An unknown session or work order is answered 404.

    Args:
        ledger: ledger of the root.
    """
    routes = Routes("sessions")

    @routes.add("GET", "/sessions", "List sessions", needs="read", shape="SessionPage")
    def sessions(page: Annotated[Page, Query()]) -> dict[str, Any]:
        """Return sessions that began with a ``SESSION_START``, latest first.

        Calls that name no session have one for each key and day, which can be read by its id.
        """
        started = ledger.query(
            event_type="SESSION_START", order="desc", after=page.cursor, limit=page.limit + 1,
            with_content=False,
        )  # fmt: skip
        listed = (
            (entry.id, "sessions", _overview(ledger, entry.submission_id)) for entry in started
        )
        return page_of(listed, page.limit, "sessions")

    @routes.add(
        "GET",
        "/sessions/{session_id:path}",
        "One session",
        needs="read",
        shape="SessionDetail",
    )
    def session(session_id: str, page: Annotated[Page, Query()]) -> dict[str, Any]:
        """Return a session: both sides of its turns, and a summary of its model calls."""
        overview = _overview(ledger, session_id)
        merged = heapq.merge(
            *(
                ledger.query(session_id=session_id, event_type=event, after=page.cursor,
                             with_content=event == "TURN_RECORDED")
                for event in ("TURN_RECORDED", "EXCHANGE")
            ),
            key=_seq,
        )  # fmt: skip
        found = page_of(map(_of_session, merged), page.limit, "turn_list", "exchanges")
        return {**overview, **found}

    @routes.add(
        "GET",
        "/traces/{work_order_id:path}",
        "Trace of a work order",
        needs="read",
        shape="Trace",
    )
    def trace(work_order_id: str, page: Annotated[Page, Query()]) -> dict[str, Any]:
        """Return the steps of a work order, with entry ids."""
        first = next(ledger.query(work_order_id=work_order_id, limit=1, with_content=False), None)
        if first is None:
            raise HttpError(404, "not_found", "The ledger does not contain this work order.")
        steps = ledger.query(work_order_id=work_order_id, after=page.cursor)
        listed = ((entry.id, "steps", _step(entry)) for entry in steps)
        return {
            "work_order_id": work_order_id,
            "session_id": _own(first, "session_id"),
            "state": _state(ledger, work_order_id),
            **page_of(listed, page.limit, "steps"),
        }

    return routes


def _overview(ledger: LedgerClient, session_id: str) -> dict[str, Any]:
    found = session_overview(ledger, session_id)
    if found is not None:
        return found.to_dict()
    first = next(ledger.query(session_id=session_id, limit=1, with_content=False), None)
    if first is None:
        raise NotFoundError(
            "The ledger does not contain this session.",
            next_step="GET /api/sessions lists the sessions.",
        )
    return {
        "session_id": session_id,
        "agent_id": _own(first, "agent_id"),
        "started_at": first.timestamp,
        "turns": 0,
        "last_turn_at": "",
        "ended": False,
    }


def _of_session(entry: LedgerEntry) -> Listed:
    place = {"entry_id": entry.id, "timestamp": entry.timestamp}
    metadata = entry.metadata
    if entry.event_type == "EXCHANGE":
        return entry.id, "exchanges", {**place, **_shown(metadata, _OF_EXCHANGE)}
    turn = {name: metadata.get(name) for name in ("turn_number", "user_message", "response")}
    turn["outcome"] = metadata.get("outcome", "")
    return entry.id, "turn_list", {**turn, **place}


def _step(entry: LedgerEntry) -> dict[str, Any]:
    return {
        "entry_id": entry.id,
        "event_type": entry.event_type,
        "timestamp": entry.timestamp,
        **_shown(entry.metadata, _OF_STEP),
    }


def _state(ledger: LedgerClient, work_order_id: str) -> str | None:
    """Return an order's state: that of its latest event in the order of ``_STATES``; else None."""
    for event, state in _STATES.items():
        found = ledger.query(
            work_order_id=work_order_id, event_type=event, limit=1, with_content=False
        )
        if next(found, None) is not None:
            return state
    return None


def _shown(metadata: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: metadata[name] for name in names if name in metadata}


def _own(entry: LedgerEntry, name: str) -> str:
    """Return an id from the metadata, or from its provenance; empty without one."""
    provenance = entry.metadata.get("provenance")
    value = entry.metadata.get(name) or (
        provenance.get(name) if isinstance(provenance, dict) else None
    )
    return str(value or "")


def _seq(entry: LedgerEntry) -> int:
    return int(entry.id[4:], 16)
