"""The list of sessions, and the page of a session, ten turns at a time."""

from __future__ import annotations

import functools
import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from remit.agents.sessions import overview_of, session_overview
from remit.kernel.errors import NotFoundError
from remit.ledger import Erased, LedgerClient, LedgerEntry, entry_id
from remit.server.console.length_limits import Shortened
from remit.server.console.pages import Asked, Page, Sources, View, page_of_list
from remit.server.console.rows import ALARMS
from remit.views import wording
from remit.views.entries import Tally, begin_of, is_foreign, place_of, plain
from remit.views.periods import instant_of, time_of
from remit.views.usage import latest_quarters, quarters_between, read_usage

_LISTED = 25
_LATEST_CALLS = 1_000
_LATEST_ROWS = 20_000  # A page adds up so many rows of usage for sessions of gateway calls.
_TURNS = 10
_MAX_EVENTS = 400
_MAX_MESSAGES = 40  # A longer prompt is not read to show its last message.
_IN_LINE = (
    "EXCHANGE", "TOOL_CALL", "APPROVAL_REQUESTED", "APPROVAL_SIGNED", "APPROVAL_GRANTED",
    "APPROVAL_DENIED", "SESSION_START", "SESSION_END", "ERASURE",
    "PROMPT_REJECTED", *ALARMS,
)  # fmt: skip


def show(sources: Sources, asked: Asked) -> Page:
    """Return the list of sessions, latest first, or the page of a session.

    The list has 25 sessions of agents. Its first page also has the sessions of the latest 1,000
    calls, at most 25. A session's page has ten turns, or ten calls if there are no turns, and at
    most 400 events. Costs are sums of the sessions' calls.

    Args:
        sources: the data sources.
        asked: the request; ``rest`` is a session id, and ``before`` of its query an entry id before
            which older sessions or turns are shown.

    Raises:
        NotFoundError: the ledger has no such session, or the session is archived.
        InvalidInputError: ``before`` is not an entry id.
        LedgerError: the ledger cannot be read.
    """
    if asked.rest:
        return _one(sources.ledger, asked.rest, asked.query.get("before"))
    ledger = sources.ledger
    started = list(
        ledger.query(
            event_type="SESSION_START", order="desc", after=asked.query.get("before"),
            limit=_LISTED + 1, with_content=False, known=sources.known,
        )
    )  # fmt: skip
    listed, more = page_of_list(started, _LISTED)
    ids = [entry.submission_id for entry in listed]
    spent = _spent(ledger, ids, None)
    agents = [
        overview_of(ledger, entry).to_dict() | spent.get(entry.submission_id, {})
        for entry in listed
    ]
    active = (
        []
        if asked.query.get("before")
        else sources.unchanged.read("active", lambda: _active(ledger))
    )
    return Page(
        "sessions.html.j2",
        {"active": active, "listed": agents, "before": listed[-1].id if more else ""},
    )


def _active(ledger: LedgerClient) -> list[dict[str, Any]]:
    """Return the sessions of the latest calls, the latest first."""
    rows = ledger.select(
        "SELECT session_id, max(agent_id), max(timestamp), count(*), min(timestamp) FROM ("
        "SELECT session_id, agent_id, timestamp FROM entries WHERE event_type = 'EXCHANGE' "
        "ORDER BY seq DESC LIMIT ?) AS latest WHERE session_id IS NOT NULL "
        "GROUP BY session_id ORDER BY 3 DESC LIMIT ?",
        (_LATEST_CALLS, _LISTED),
    )
    begin = min((instant_of(row[4]) for row in rows), default=None)
    spent = _spent(ledger, [str(row[0]) for row in rows], begin)
    names = ("session_id", "agent_id", "last_at", "calls", "first_at")
    return [dict(zip(names, row, strict=True)) | spent.get(str(row[0]), {}) for row in rows]


def _spent(
    ledger: LedgerClient, session_ids: Sequence[str], since: datetime | None
) -> dict[str, dict[str, Any]]:
    """Return cost (nano-dollars), tokens and unpriced calls of sessions.

    Sessions with a budget, as agents have, are read from the budget. Others are read from the
    latest usage; ``later`` is its beginning if it does not cover the time since ``since``.

    Args:
        ledger: the ledger.
        session_ids: the sessions.
        since: the beginning of the usage of sessions without a budget; None if all have one.
    """
    if not session_ids:
        return {}
    marks = ", ".join("?" * len(session_ids))
    rows = ledger.select(
        "SELECT scope, spent_nano, spent_tokens, unpriced_calls FROM budgets "
        f"WHERE scope IN ({marks})",
        [f"session:{name}" for name in session_ids],
    )
    found = {
        str(scope).removeprefix("session:"): (nano, tokens, unpriced, "")
        for scope, nano, tokens, unpriced in rows
    }
    if since is not None:
        begin, end = quarters_between(ledger, since, None)
        first = latest_quarters(ledger, begin, end, _LATEST_ROWS)
        later = time_of(first).isoformat(timespec="microseconds") if first > begin else ""
        others = [name for name in session_ids if name not in found]
        used = read_usage(ledger, since=time_of(first), by=["session"], where={"session": others})
        for row in used.rows:
            tokens = row.input_tokens + row.output_tokens
            found[row.names["session"]] = (row.nano, tokens, row.unpriced_calls, later)
    names = ("nano", "tokens", "unpriced", "later")
    return {name: dict(zip(names, values, strict=True)) for name, values in found.items()}


def _one(ledger: LedgerClient, session_id: str, before: str | None) -> Page:
    begin = begin_of(ledger, session_id)
    if begin is None:
        end = ledger.archived_to
        archived = f" Entries before {entry_id(end)} may be in a segment." if end else ""
        raise NotFoundError(f"The ledger has no session {session_id[:100]}.{archived}")
    bounds = _bounds(ledger, session_id, before)
    read = functools.partial(_read, ledger, session_id, begin, bounds, before)
    return Page("session.html.j2", {"session_id": session_id, "read": read})


def _read(
    ledger: LedgerClient,
    session_id: str,
    begin: tuple[str, str],
    bounds: tuple[list[str], int, bool],
    before: str | None,
) -> dict[str, Any]:
    """Return the values of a session's page.

    Args:
        ledger: the ledger.
        session_id: the session.
        begin: the result of :func:`begin_of`.
        bounds: the result of :func:`_bounds`.
        before: an entry id; only older turns are shown.
    """
    overview = session_overview(ledger, session_id)
    ends, after, more = bounds
    events = list(islice(_events(ledger, session_id, after, ends, before), _MAX_EVENTS + 1))
    shown, cut = page_of_list(events, _MAX_EVENTS)
    talks = (
        {} if any(one.event_type == "TURN_RECORDED" for one in shown) else read_talks(ledger, shown)
    )
    return {
        "overview": overview.to_dict() if overview is not None else {},
        "agent_id": begin[0],
        "started_at": begin[1],
        "spent": _spent(ledger, [session_id], instant_of(begin[1]) if begin[1] else None).get(
            session_id, {}
        ),
        "groups": list(_by_turn(ledger, shown, talks)),
        "before": ends[0] if more else "",
        "later": bool(before),
        "cut": cut,
    }


def _bounds(
    ledger: LedgerClient, session_id: str, before: str | None
) -> tuple[list[str], int, bool]:
    """Return where a page's turns end (entry ids), the sequence number before the page, and True if
    earlier turns exist. A session without turns has its calls instead.
    """
    for event in ("TURN_RECORDED", "EXCHANGE"):
        found = ledger.query(
            session_id=session_id, event_type=event, order="desc", after=before,
            limit=_TURNS + 1, with_content=False,
        )  # fmt: skip
        ids = [entry.id for entry in found][::-1]
        if len(ids) > _TURNS:
            return ids[1:], place_of(ids[0]), True
        if ids:
            return ids, -1, False
    return [], -1, False


def _events(
    ledger: LedgerClient, session_id: str, after: int, ends: Sequence[str], before: str | None
) -> Iterator[LedgerEntry]:
    """Yield the events of a page's turns; the latest page includes events after the last turn.

    Refusals because the session is another caller's are left out.
    """
    last = place_of(ends[-1]) if before and ends else None
    merged = heapq.merge(
        *(
            ledger.query(
                session_id=session_id,
                event_type=event,
                after=after,
                with_content=False,
            )
            for event in ("TURN_RECORDED", *_IN_LINE)
        ),
        key=lambda entry: place_of(entry.id),
    )
    for entry in merged:
        if last is not None and place_of(entry.id) > last:
            return
        if not is_foreign(entry.event_type, entry.metadata):
            yield entry


def read_talks(ledger: LedgerClient, entries: Sequence[LedgerEntry]) -> dict[str, dict[str, Any]]:
    """Return the last message (``asked``) and the answer (``said``) of the latest model calls.

    ``wish`` is the person's last message if others, such as results of tools, follow it.

    Args:
        ledger: the ledger of the calls.
        entries: entries, of which the latest ten ``EXCHANGE`` entries are read.

    Returns:
        The messages, keyed by entry id, as JSON data. ``asked`` and ``wish`` are empty if a prompt
        has more than 40 messages. An erased message is data that says so.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    calls = [entry for entry in entries if entry.event_type == "EXCHANGE"]
    found = {}
    for call in calls[-_TURNS:]:
        prompt = call.metadata.get("prompt")
        count = prompt.get("count", 1) if isinstance(prompt, dict) else 0
        names = ("response", "prompt") if count <= _MAX_MESSAGES else ("response",)
        exact = ledger.exact(call.id, names)
        asked = exact.get("prompt", b'""')
        last = asked[-1] if isinstance(asked, list) and asked else asked
        found[call.id] = {
            "asked": plain(_content(decoded(last))),
            "wish": plain(_wish(asked)),
            "said": plain(decoded(exact.get("response", b'""'))),
        }
    return found


def _wish(messages: Any) -> Any:
    """Return the content of a person's last message if later messages follow it, else ``""``."""
    earlier = messages[:-1] if isinstance(messages, list) else []
    for value in map(decoded, reversed(earlier)):
        content = value.get("content") if isinstance(value, dict) else None
        parts = (
            content if isinstance(content, list) else [content] if isinstance(content, str) else []
        )
        is_result = any(isinstance(one, dict) and one.get("type") == "tool_result" for one in parts)
        if parts and value.get("role") == "user" and not is_result:
            return content
    return ""


def decoded(exact: Any) -> Any:
    """Return the value of exact JSON; the text itself if it is not JSON.

    An erased value is returned unchanged, and any other value that is not ``bytes`` as ``""``.
    """
    if not isinstance(exact, bytes):
        return exact if isinstance(exact, Erased) else ""
    try:
        return json.loads(exact)
    except (ValueError, RecursionError):
        return exact.decode("utf-8", "replace")


def _content(message: Any) -> Any:
    """Return the content of a message; a plain text is its own content."""
    return message.get("content", message) if isinstance(message, dict) else message


def _by_turn(
    ledger: LedgerClient, entries: Sequence[LedgerEntry], talks: Mapping[str, Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield events by turn: ``turn`` (``None`` for gateway calls), ``events``, calls and cost."""
    events: list[dict[str, Any]] = []
    calls: list[LedgerEntry] = []
    short = Shortened()
    for entry in entries:
        is_call = entry.event_type == "EXCHANGE"  # which holds the whole conversation each time
        read = entry if is_call else ledger.read(entry.id)
        data = plain({**read.metadata, "reason": read.reason}, commitments=is_call)
        data = short.cut(data)
        item = {**data, "id": entry.id, "event": entry.event_type, "at": entry.timestamp}
        item |= short.cut(talks.get(entry.id, {}))
        if entry.event_type == "TURN_RECORDED":
            yield {"turn": item, "events": events, "calls": len(calls), "cost": _cost(calls)}
            events, calls = [], []
            continue
        events.append(item)
        if is_call:
            calls.append(entry)
        elif entry.event_type == "SESSION_START":
            yield {"turn": None, "events": events}
            events = []
    if events:
        yield {"turn": None, "events": events}


def _cost(calls: Sequence[LedgerEntry]) -> str:
    """Return the total cost of calls as text, with the number of unpriced calls."""
    tally = Tally()
    for call in calls:
        tally.add(call)
    return wording.money(tally.to_dict())


VIEWS = (View("/console/sessions", show),)
