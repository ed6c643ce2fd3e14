"""The journey of a prompt: the turns of a session, read from the ledger."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from remit.kernel.errors import InvalidInputError, NotFoundError
from remit.ledger import LedgerEntry, LedgerPort
from remit.views.entries import Tally, begin_of, named, place_of, plain, session_of
from remit.views.turn import build_turn
from remit.views.turn_ranges import SESSION_EVENTS, Place, Places
from remit.views.turn_search import find_places

_SPAN = 100  # numbers of a turn's entries from first to last
_LATER = 500  # later calls of a session that are searched for the next attempt of a call


def prompt_journey(
    ledger: LedgerPort,
    *,
    session_id: str | None = None,
    work_order_id: str | None = None,
    entry_id: str | None = None,
    turn: int | None = None,
    with_content: bool = True,
) -> dict[str, Any]:
    """Return the journey of a prompt: plan, dispatch, calls, tools, checks and delivery.

    Give exactly one of ``session_id``, ``work_order_id`` and ``entry_id``. A work order or entry
    selects its turn and is named under ``focus``. ``docs/trace.md`` describes the data. Sessions of
    sub-agents are nested below the tool calls that they answer.

    Args:
        ledger: a client, or a handle that may read the tiers in question.
        session_id: selects all turns of a session.
        work_order_id: selects the turn that planned the work order.
        entry_id: selects the turn that the entry belongs to; for a failed attempt of a call, the
            turn of its last attempt.
        turn: with ``session_id``, selects only the turn of that number; all turns with the number
            if it was used again.
        with_content: ``False`` returns commitments (hash and length) in place of content.

    Returns:
        ``session_id``, ``agent_id`` (empty if unknown), ``started_at``, ``ended_at``,
        ``start_entry_id`` and ``end_entry_id`` (None if not recorded), ``focus`` (None with
        ``session_id``), ``totals`` of the returned turns, and ``turns``.

    Raises:
        InvalidInputError: not exactly one id is given, or ``turn`` without ``session_id``.
        NotFoundError: the ledger has no such session, work order or turn, or the entry belongs to
            no session.
        EntryNotFoundError: there is no such entry.
        LedgerError: the ledger cannot be read, or the entry is damaged.
    """
    journey = open_journey(
        ledger, session_id=session_id, work_order_id=work_order_id, entry_id=entry_id, turn=turn,
        with_content=with_content,
    )  # fmt: skip
    return {**journey, "turns": list(journey["turns"])}


def open_journey(
    ledger: LedgerPort,
    *,
    session_id: str | None = None,
    work_order_id: str | None = None,
    entry_id: str | None = None,
    turn: int | None = None,
    with_content: bool = True,
    above: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the data of :func:`prompt_journey` with ``turns`` as a lazy iterator.

    The iterator reads each turn when requested and can be consumed once, so memory holds one turn.
    All other keys are complete on return.

    Args:
        ledger: see :func:`prompt_journey`.
        session_id: see :func:`prompt_journey`.
        work_order_id: see :func:`prompt_journey`.
        entry_id: see :func:`prompt_journey`.
        turn: see :func:`prompt_journey`.
        with_content: see :func:`prompt_journey`.
        above: ids of sessions that contain this one, which are not nested again.

    Raises:
        InvalidInputError: as :func:`prompt_journey`.
        NotFoundError: as :func:`prompt_journey`.
        EntryNotFoundError: as :func:`prompt_journey`.
        LedgerError: the ledger cannot be read; the iterator raises it too.
    """
    given = (session_id, work_order_id, entry_id)
    if [bool(value) for value in given if value is not None] != [True]:
        raise InvalidInputError("Give exactly one of session_id, work_order_id and entry_id.")
    if turn is not None and session_id is None:
        raise InvalidInputError("turn requires session_id.")
    focus: str | None = work_order_id or entry_id
    entry: LedgerEntry | None = None
    if entry_id is not None:
        entry = _last_attempt(ledger, ledger.read(entry_id))
    elif work_order_id is not None:
        entry = _entry_of_order(ledger, work_order_id)
    session = session_id if entry is None else session_of(entry)
    if not session:
        raise NotFoundError(
            f"{focus} belongs to no session.", next_step="`remit ledger show` shows the entry."
        )
    is_inside = entry is not None and entry.event_type not in SESSION_EVENTS
    places = find_places(ledger, session, entry if is_inside else None)
    if not places.found:
        raise NotFoundError(
            f"The ledger has no session {session}.",
            next_step="`remit session list` lists the sessions.",
        )
    chosen: Iterable[Place] = places
    tally = places.tally
    orders = places.orders
    turns = places.turns
    if turn is not None:
        chosen = places.of_turn(turn)
        if not chosen:
            raise NotFoundError(
                f"{session} has no turn {turn}.", next_step=f"The session has {places.turns} turns."
            )
    elif entry is not None and is_inside:
        chosen = places.of_entry(entry)
    if chosen is not places:
        chosen = list(chosen)
        tally, orders = _counted(ledger, session, places, chosen)
        turns = sum(place.kind == "turn" for place in chosen)
    return {
        "session_id": session,
        "agent_id": _agent_of(ledger, session, places),
        "started_at": places.start and places.start.timestamp,
        "ended_at": places.end and places.end.timestamp,
        "start_entry_id": places.start and places.start.id,
        "end_entry_id": places.end and places.end.id,
        "focus": focus,
        "totals": {"turns": turns, "work_orders": orders, **tally.to_dict()},
        "turns": _turns(ledger, session, places, chosen, with_content, above),
    }


def _turns(
    ledger: LedgerPort,
    session: str,
    places: Places,
    chosen: Iterable[Place],
    with_content: bool,
    above: tuple[str, ...],
) -> Iterator[dict[str, Any]]:
    stream = _Stream(ledger, session, with_content)
    for place in chosen:
        built = build_turn(place, stream.entries(places, place), ledger, with_content)
        turn: dict[str, Any] = plain(built, commitments=not with_content)
        _nest(turn, ledger, with_content, (*above, session))
        yield turn


def _nest(
    turn: dict[str, Any], ledger: LedgerPort, with_content: bool, above: tuple[str, ...]
) -> None:
    """Put the sessions of sub-agents below the tool calls with their answers."""
    for order in turn["work_orders"]:
        for step in order["steps"]:
            name = step.get("sub_session_id")
            if not isinstance(name, str) or not name or name in above:
                continue
            with contextlib.suppress(NotFoundError):  # The inner session never began.
                inner = open_journey(
                    ledger, session_id=name, with_content=with_content, above=above
                )
                step["session"] = {**inner, "turns": [*inner["turns"]]}
                waiting = [
                    request
                    for below in step["session"]["turns"]
                    for one in below["work_orders"]
                    for request in one["waiting_for"]
                ]
                if waiting and step["status"] == "unknown":
                    step["status"] = "waiting"
                    order["waiting_for"] += waiting
                    turn["outcome"] = "waiting" if turn["outcome"] == "open" else turn["outcome"]


def gates_of(turn: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the quality gates of a turn, then the gates of all nested turns of sub-agents.

    Args:
        turn: a turn of a journey.
    """
    yield from turn["gates"]
    for order in turn["work_orders"]:
        for step in order["steps"]:
            for below in step.get("session", {}).get("turns", ()):
                yield from gates_of(below)


def _counted(
    ledger: LedgerPort, session: str, places: Places, chosen: list[Place]
) -> tuple[Tally, int]:
    """Return the usage of some turns and the number of work orders planned there."""
    stream, tally, orders = _Stream(ledger, session, False), Tally(), 0
    for place in chosen:
        for entry in stream.entries(places, place):
            tally.add(entry)
            orders += entry.event_type == "WO_PLANNED"
    return tally, orders


class _Stream:
    """Reads the entries of a session by place, each place after the end of the last."""

    def __init__(self, ledger: LedgerPort, session: str, with_content: bool) -> None:
        self._ledger = ledger
        self._session = session
        self._with_content = with_content
        self._at: int | None = None
        self._rows: Iterator[LedgerEntry] = iter(())

    def entries(self, places: Places, place: Place) -> list[LedgerEntry]:
        """Return the entries of a turn, in ledger order."""
        if place.order:
            return list(
                self._ledger.query(
                    session_id=self._session,
                    work_order_id=place.order,
                    with_content=self._with_content,
                )
            )
        found = [*filter(None, map(self._read, place.strays))]
        if place.after < place.last:
            found += [entry for entry in self._range(place) if places.has(place, entry)]
        if place.kind == "call":
            found = self._of_call(found)
        return sorted(found, key=lambda entry: place_of(entry.id))

    def _of_call(self, found: list[LedgerEntry]) -> list[LedgerEntry]:
        """Return the entries of a single client's call: all its attempts, and no other call's.

        Calls of a session can run at the same time, so attempts can be anywhere before the end.
        """
        known = {entry.id: entry for entry in found}

        def one(name: object) -> LedgerEntry | None:
            wanted = name if isinstance(name, str) else ""
            entry = known.get(wanted) or self._read(place_of(wanted))
            return entry if entry is not None and entry.id == wanted else None

        own: dict[str, LedgerEntry] = {}
        last: LedgerEntry | None = found[-1] if found else None
        while last is not None and last.event_type.startswith("EXCHANGE") and last.id not in own:
            own[last.id] = last
            if (sent := one(last.metadata.get("dispatch_entry_id"))) is not None:
                own[sent.id] = sent
            last = one(last.metadata.get("retry_of"))
        rest = [
            entry for entry in found if entry.event_type not in ("DISPATCH", "EXCHANGE")
        ]  # the calls of others, and earlier attempts of them
        return [*own.values(), *(entry for entry in rest if entry.id not in own)]

    def _range(self, place: Place) -> Iterator[LedgerEntry]:
        span = place.last - place.after
        if span <= _SPAN:  # A lone session has no foreign entries here: no further page is read.
            self._at = None
            found = self._query(place.after, limit=span)
            yield from (entry for entry in found if place_of(entry.id) <= place.last)
            return
        if place.after != self._at:
            self._rows = self._query(place.after)
        self._at = place.last
        for entry in self._rows:
            yield entry
            if place_of(entry.id) >= place.last:
                return

    def _read(self, seq: int) -> LedgerEntry | None:
        return next(self._query(seq - 1, limit=1), None) if seq >= 0 else None

    def _query(self, after: int, limit: int | None = None) -> Iterator[LedgerEntry]:
        return self._ledger.query(
            session_id=self._session, after=after, limit=limit, with_content=self._with_content
        )


def _last_attempt(ledger: LedgerPort, entry: LedgerEntry) -> LedgerEntry:
    """Return the last attempt of the call that an entry belongs to; the entry itself if it is no
    attempt, or the last one.
    """
    links = {"DISPATCH": "dispatch_entry_id", "EXCHANGE": "retry_of"}
    while (link := links.get(entry.event_type)) and entry.metadata.get("outcome") != "success":
        later = ledger.query(
            session_id=session_of(entry), event_type="EXCHANGE", after=place_of(entry.id),
            limit=_LATER, with_content=False,
        )  # fmt: skip
        found = next((one for one in later if one.metadata.get(link) == entry.id), None)
        if found is None:
            break
        entry = found
    return entry


def _entry_of_order(ledger: LedgerPort, work_order_id: str) -> LedgerEntry:
    for event_type in ("WO_PLANNED", None):
        for entry in ledger.query(
            work_order_id=work_order_id, event_type=event_type, limit=1, with_content=False
        ):
            return entry
    raise NotFoundError(
        f"The ledger has no work order {work_order_id}.",
        next_step="`remit trace SESSION` shows the work orders of a session.",
    )


def _agent_of(ledger: LedgerPort, session: str, places: Places) -> str:
    """Return the agent of a session's SESSION_START, or else of its first entry but refusals."""
    if places.start is not None:
        return named(places.start.metadata, "agent_id")
    return (begin_of(ledger, session) or ("",))[0]
