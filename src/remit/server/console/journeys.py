"""The journey of a prompt: contract, dispatch, attempts, exchange, cost, proof."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from remit.ledger import LedgerEntry
from remit.server.asgi import Answer
from remit.server.console.forms import see
from remit.server.console.length_limits import Shortened
from remit.server.console.pages import Asked, Page, Sources, View
from remit.server.console.rows import call_row, key_names
from remit.views import (
    SESSION_EVENTS,
    open_journey,
    wording,
)
from remit.views.entries import order_of, plain, session_of
from remit.views.page import has_focus, sums_of

_LISTED = 50
_NAMED = ("key_id", "user_id", "team_id", "agent_id", "requested_model_id", "provider_id",
          "contract_id")  # fmt: skip


def show(sources: Sources, asked: Asked) -> Page | Answer:
    """Return the list of the latest calls, an entry, or the journey of an entry or work order.

    The list reads 50 attempts and shows each call once. A journey has all attempts of a client's
    call. A refused request, and an entry without a session, have a short page of their own.
    Entries that begin or end a session are redirected to the page of the session, and so is any id
    without ``LED-`` or ``WO-``, whether or not there is such a session.

    Args:
        sources: the data sources.
        asked: the request; ``rest`` is an entry, work order or session id, and ``before`` of its
            query an entry id before which older calls are listed.

    Raises:
        NotFoundError: there is no such entry or work order, or the entry is archived.
        InvalidInputError: ``before`` is not an entry id.
        LedgerError: the ledger cannot be read.
    """
    ledger = sources.ledger
    if not asked.rest:
        found = list(
            ledger.query(
                event_type="EXCHANGE", order="desc", after=asked.query.get("before"),
                limit=_LISTED, with_content=False,
            )
        )  # fmt: skip
        # A call is listed once, by its last attempt, which is newer than the others.
        earlier = {str(entry.metadata.get("retry_of")) for entry in found}
        rows = [call_row(entry) for entry in found if entry.id not in earlier]
        more = found[-1].id if len(found) == _LISTED else ""
        return Page("journeys.html.j2", {"calls": rows, "before": more})
    name = asked.rest
    entry: LedgerEntry | None = None
    if name.startswith("LED-"):
        entry = ledger.read(name)
        if not session_of(entry):
            said = {"metadata": plain(entry.metadata), "reason": plain(entry.reason)}
            return Page("entry.html.j2", {**_about(entry), **Shortened().cut(said)})
    if entry is not None and entry.event_type == "PROMPT_REJECTED" and not order_of(entry):
        return _refusal(sources, entry)
    if entry is not None and entry.event_type in SESSION_EVENTS:
        return see(f"/console/sessions/{quote(session_of(entry), safe='')}")
    if not name.startswith(
        ("LED-", "WO-")
    ):  # The session page shows a session of any length in parts.
        return see(f"/console/sessions/{quote(name, safe='')}")
    journey = (
        open_journey(ledger, work_order_id=name)
        if entry is None
        else open_journey(ledger, entry_id=name)
    )
    short = Shortened()
    turns = [short.cut(turn) for turn in journey["turns"]]
    call = _only_call(turns)
    if call is not None:
        entry = ledger.read(call["entry_id"], with_content=False)
    sums = sums_of(journey["totals"])
    return Page(
        "journey.html.j2",
        {
            "journey": {**journey, "turns": turns},
            "sums": [one for one in sums if call is None or one[1] != "0"],
            "has_focus": functools.partial(has_focus, str(journey.get("focus") or "")),
            "opened": len(turns) == 1,
            "key_names": key_names(ledger, set(_key_ids(turns))),
            "way": _about(entry) if entry is not None else None,
            "attempts": [*call["attempts"], call] if call else [],
            "total_ms": turns[0]["elapsed_ms"] if call else None,
        },
    )


def _key_ids(value: Any) -> Iterator[str]:
    """Yield the ids of the keys that made the calls of turns."""
    if isinstance(value, Mapping):
        if isinstance(key_id := value.get("key_id"), str):
            yield key_id
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _key_ids(one)


def _only_call(turns: list[Any]) -> dict[str, Any] | None:
    """Return the call of a journey that is a single call of a client; else ``None``."""
    is_single = len(turns) == 1 and turns[0]["kind"] == "call"
    calls: list[dict[str, Any]] = turns[0]["calls"] if is_single else []
    is_call = len(calls) == 1 and calls[0]["kind"] == "model_call"
    return calls[0] if is_call else None


def _refusal(sources: Sources, entry: LedgerEntry) -> Page:
    """Return the page of a refused request: caller, model, reason and links to related calls."""
    data = plain(entry.metadata)
    named = {name: text for name in _NAMED if isinstance(text := data.get(name), str) and text}
    key_id = named.get("key_id", "")
    code = str(data.get("error_code") or "")
    same = {"outcome": "refused", "error": code, "key": key_id}
    query = urlencode({name: value for name, value in same.items() if value})
    return Page(
        "refusal.html.j2",
        {
            "entry": {"id": entry.id, "at": entry.timestamp},
            "code": code,
            "message": data.get("error_message", ""),
            "named": named,
            "key_name": key_names(sources.ledger, {key_id}).get(key_id, key_id),
            "session_id": session_of(entry),
            "same": f"/console/calls?{query}",
        },
    )


def _about(entry: LedgerEntry) -> dict[str, Any]:
    """Return the steps of a call for the page: its entries, model, cost and contract."""
    data = entry.metadata
    dispatch = data.get("dispatch_entry_id") if entry.event_type == "EXCHANGE" else ""
    return {
        "entry": {
            "id": entry.id,
            "event": entry.event_type,
            "at": entry.timestamp,
            "submission_id": entry.submission_id,
            "decision": entry.decision,
        },
        "contract_id": data.get("contract_id", ""),
        "contract_version": data.get("contract_version", ""),
        "dispatch": dispatch if isinstance(dispatch, str) else "",
        "attempt": data.get("attempt", 1),
        "outcome": data.get("outcome", ""),
        "model": data.get("model_id", ""),
        "cost": wording.one_cost(data) if entry.event_type == "EXCHANGE" else "",
        "passed_over": [
            one for one in _list(data.get("fallback_from")) if isinstance(one, dict)
        ],
        "order": order_of(entry),
        "session_id": session_of(entry),
        "is_call": entry.event_type in ("EXCHANGE", "DISPATCH", "EXCHANGE_ORPHANED",
                                         "PROMPT_REJECTED"),
    }  # fmt: skip


VIEWS = (View("/console/journey", show),)


def _list(value: object) -> list[Any]:
    """Return a list of an entry's metadata as JSON data; empty for a value of another type."""
    found = plain(value)
    return found if isinstance(found, list) else []
