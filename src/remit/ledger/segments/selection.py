"""Selection of the entries that can move: work of ended sessions that nothing refers to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import orjson

from remit.ledger.archived_ranges import LEAVING, Places
from remit.ledger.clock import Clock
from remit.ledger.entry import entry_id, parse_entry_id
from remit.ledger.entry_reader import chunks, marks
from remit.ledger.filter import Filter
from remit.ledger.store import Execute, Store

_PAGE = 5_000
_TYPES = f"({', '.join(map(repr, LEAVING))})"
_BY_SESSION = (
    "SELECT session_id, event_type, seq FROM entries WHERE session_id IS NOT NULL "
    "AND (session_id, event_type, seq) > (?, ?, ?) "
    f"ORDER BY session_id, event_type, seq LIMIT {_PAGE}"
)
# Open work: orders, approvals, and lists that a remaining entry shows.
_OPEN = (
    "SELECT DISTINCT p.session_id FROM entries AS p WHERE p.event_type = 'WO_PLANNED' "
    "AND p.seq < ? AND NOT EXISTS (SELECT 1 FROM entries AS e "
    "WHERE e.submission_id = p.submission_id "
    "AND e.event_type || '' IN ('WO_COMPLETED', 'WO_FAILED'))",
    "SELECT DISTINCT p.session_id FROM entries AS p WHERE p.event_type = 'APPROVAL_REQUESTED' "
    "AND p.seq < ? AND NOT EXISTS (SELECT 1 FROM entries AS e "
    "WHERE e.submission_id = p.id "
    "AND e.event_type || '' IN ('APPROVAL_GRANTED', 'APPROVAL_DENIED'))",
    "SELECT DISTINCT e.session_id FROM shown_lists AS l JOIN entries AS e ON e.seq = l.seq "
    f"WHERE e.seq < ? AND e.event_type NOT IN {_TYPES}",
)
_STATE = (
    "SELECT session_id FROM in_flight",
    "SELECT session_id FROM orders",
)
# These rows need the entry that they name.
_NAMING = (
    "SELECT entry_id FROM provider_objects",
    "SELECT entry_id FROM batches UNION SELECT dispatch_entry_id FROM batches",
)
_ANSWERS = (
    "SELECT exchange_entry_id FROM idempotency WHERE exchange_entry_id <> '' AND until_ms >= ?"
)
_LEASES = "SELECT name FROM leases WHERE until_ms >= ?"
_CALLED = (
    "SELECT session_id, record FROM entries WHERE event_type = 'SESSION_START' "
    "AND record LIKE '%\"caller\":{%'"
)
_LAST = "SELECT max(seq) FROM entries WHERE session_id = ?"
# An approval is used up by the entry of the tool that it let go on.
_APPROVED = (
    "SELECT DISTINCT session_id FROM entries WHERE event_type = 'APPROVAL_REQUESTED' AND seq < ?"
)


def leaving(store: Store, end: int) -> Places:
    """Return the entries before ``end`` that can be archived; the database is only read.

    An entry can be archived if its type is in :data:`LEAVING` and its session qualifies: the
    session has no entry at or after ``end`` and no open work, and nothing refers to it. Of sessions
    with an approval, tool intents stay. Memory use is one bit for each entry.

    Args:
        store: the store of the ledger.
        end: the first sequence number that stays.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    staying = _staying(store, end)
    approved = {name for (name,) in store.select(_APPROVED, (end,))}
    places = Places(end)
    for session_id, entries in sessions_of(store):
        if session_id in staying or any(seq >= end for _, seq in entries):
            continue
        for event_type, seq in entries:
            if event_type in _LEAVING and not (
                event_type == "TOOL_INTENT" and session_id in approved
            ):
                places.add(seq)
    return places


_LEAVING = frozenset(LEAVING)


def sessions_of(store: Store) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Yield each session with event type and sequence number of its entries, by session id.

    Entries without a session are left out. Rows are read in pages; the entries of a session are
    sorted by event type, then by number.

    Args:
        store: the store of the ledger.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    place: tuple[str, str, int] = ("", "", -1)
    session_id, entries = "", list[tuple[str, int]]()
    while rows := store.select(_BY_SESSION, place):
        for name, event_type, seq in rows:
            if name != session_id:
                if entries:
                    yield session_id, entries
                session_id, entries = name, []
            entries.append((event_type, seq))
        place = tuple(rows[-1])
    if entries:
        yield session_id, entries


def sessions_in_use(tx: Clock, select: Execute, size: int) -> set[str]:
    """Return the sessions that continue or are in use, so that their entries must stay.

    These are sessions with an entry at or after ``size``, and sessions that rows of state refer to:
    calls in flight, orders, unexpired leases, objects and batches of providers, and unexpired
    stored answers.

    Args:
        tx: the clock by which leases end.
        select: runs a query; its errors are raised.
        size: number of entries; a session with a later one continues.
    """
    rows = select("SELECT DISTINCT session_id FROM entries WHERE seq >= ?", (size,))
    found = {name for (name,) in rows if name is not None}
    return found | _of_state(select, tx)


def _staying(store: Store, end: int) -> set[str]:
    """Return the sessions with open work, and all others that something refers to."""
    found = _of_state(store.select, store)
    for sql in _OPEN:
        found.update(name for (name,) in store.select(sql, (end,)) if name is not None)
    found |= _continued(store, end) | _learned_from(store)
    return _with_callers(store, found, end)


def _of_state(select: Execute, clock: Clock) -> set[str]:
    """Return the sessions that rows of state name, directly or through an entry."""
    found = {name for sql in _STATE for (name,) in select(sql, ())}
    found.update(name for (name,) in select(_LEASES, (clock.now_ms,)))
    ids = [name for sql in _NAMING for (name,) in select(sql, ())]
    ids += [name for (name,) in select(_ANSWERS, (clock.now_ms,))]
    return found | set(_sessions(select, ids))


def _sessions(select: Execute, ids: Iterable[Any]) -> Iterator[str]:
    """Yield the sessions of entries."""
    seqs = sorted({seq for one in ids if (seq := parse_entry_id(str(one))) is not None})
    for part in chunks(seqs):
        for (name,) in select(
            f"SELECT DISTINCT session_id FROM entries WHERE seq IN ({marks(part)})", part
        ):
            if name is not None:
                yield name


def _continued(store: Store, end: int) -> set[str]:
    """Return the sessions before ``end`` whose conversation has an entry from ``end`` on."""
    rows = store.select(
        "SELECT entry_id FROM response_ids WHERE length(entry_id) > 12 OR entry_id >= ?",
        (entry_id(end),),
    )
    seqs = {seq for (one,) in rows if (seq := parse_entry_id(str(one))) is not None}
    wanted, seen = {seq for seq in seqs if seq >= end}, set[int]()
    found: set[str] = set()
    while wanted:
        seen |= wanted
        before: set[int] = set()
        for part in chunks(sorted(wanted)):
            for seq, session_id, record in store.select(
                f"SELECT seq, session_id, record FROM entries WHERE seq IN ({marks(part)})", part
            ):
                if seq < end and session_id is not None:
                    found.add(session_id)
                continues = orjson.loads(record)["metadata"].get("continues")
                if isinstance(continues, str) and (one := parse_entry_id(continues)) is not None:
                    before.add(one)
        wanted = before - seen
    return found


def _learned_from(store: Store) -> set[str]:
    """Return the sessions that proposals name as evidence."""
    where, ids = Filter(equals={"event_type": "SIGNAL_PROPOSED"}), set[str]()
    while rows := store.page(where, 100):
        for entry in store.entries(rows):
            for name in ("evidence", "holds"):
                listed = entry.metadata.get(name)
                ids.update(map(str, listed if isinstance(listed, list) else ()))
        where = replace(where, after=rows[-1].seq)
    return set(_sessions(store.select, ids))


def _with_callers(store: Store, staying: set[str], end: int) -> set[str]:
    """Return ``staying`` with all sessions that call, or are called by, any of the sessions.

    Sessions with an entry at or after ``end`` count like those in ``staying``. The cost of an order
    is recorded in both sessions, so both stay together.
    """
    beside: dict[str, set[str]] = defaultdict(set)
    for session_id, record in store.select(_CALLED):
        caller = orjson.loads(record)["metadata"].get("caller")
        above = caller.get("session_id") if isinstance(caller, dict) else None
        if session_id is not None and isinstance(above, str):
            beside[session_id].add(above)
            beside[above].add(session_id)
    alive = [
        name
        for name in beside
        if name in staying or (store.select(_LAST, (name,))[0][0] or 0) >= end
    ]
    found = set(staying)
    while alive:
        name = alive.pop()
        found.add(name)
        alive += [other for other in beside[name] if other not in found]
    return found
