"""Search for the turns of a session: all turns, or the turn of an entry and its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from remit.ledger import LedgerEntry, LedgerPort
from remit.views.entries import is_foreign, order_of, place_of
from remit.views.turn_ranges import Places, number_of

_BESIDE = 2  # turns on each side of one that are looked at: some happen at once
_MEANWHILE = 8  # turns that may end while one goes on, and it is still found with all its orders
_PLANS = 16  # orders that are looked at where it is not known which turn's are wanted


def find_places(ledger: LedgerPort, session_id: str, around: LedgerEntry | None = None) -> Places:
    """Return the turns of a session, found without reading content.

    Refusals because the session is another caller's are in no turn, except ``around`` itself.

    Args:
        ledger: a client, or a handle that may read the session.
        session_id: id of the session.
        around: an entry of the session whose turn is wanted. Then only nearby turns are read, which
            takes no longer in a long session, and sums cover these alone. ``None`` reads all.

    Returns:
        The turns; ``found`` is False if the ledger has no entry of the session.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    if around is not None:
        return _find_around(ledger, session_id, around)
    places = Places()
    for entry in ledger.query(session_id=session_id, with_content=False):
        if is_foreign(entry.event_type, entry.metadata):
            places.found = True
        else:
            places.add(entry)
    places.finish()
    return places


def _find_around(ledger: LedgerPort, session_id: str, entry: LedgerEntry) -> Places:
    seq, order = place_of(entry.id), order_of(entry)

    def query(**where: Any) -> Iterator[LedgerEntry]:
        return ledger.query(session_id=session_id, with_content=False, **where)

    plan = (
        next(query(work_order_id=order, event_type="WO_PLANNED", limit=1), None) if order else None
    )
    begin = seq if plan is None else min(seq, place_of(plan.id))
    number = number_of(plan) if plan is not None else None
    ends = query(event_type="TURN_RECORDED", after=begin - 1)
    end = next((one for one in ends if number is None or number_of(one) == number), None)
    if end is None and plan is not None and number is None:  # an order by itself
        return _finished(Places(), [plan], query)
    upto = end.id if end is not None else None
    wanted = number if end is None else number_of(end)
    is_known = end is not None or number is not None
    ended = [*query(event_type="TURN_RECORDED", order="desc", after=upto, limit=_MEANWHILE)]
    least = place_of(ended[-1].id) if len(ended) == _MEANWHILE else -1
    plans = query(event_type="WO_PLANNED", order="desc", after=upto)
    for one in plans if is_known else islice(plans, _PLANS):
        if place_of(one.id) < least:
            break
        if not is_known or number_of(one) == wanted:
            begin = min(begin, place_of(one.id))  # other turns may have ended since
    before = [*query(event_type="TURN_RECORDED", order="desc", after=begin, limit=_BESIDE)]
    if end is None and plan is None and not before:  # calls outside of turns: each is its own end
        before = [*query(event_type="EXCHANGE", order="desc", after=begin, limit=_BESIDE)]
        ends = query(event_type="EXCHANGE", after=begin - 1)
        end = next(ends, None)
    last = place_of([end, *islice(ends, _BESIDE)][-1].id) if end is not None else None
    if len(before) == _BESIDE:
        after = place_of(before[-1].id)
    else:
        after = place_of(next(query(limit=1), entry).id) - 1

    def is_planned(name: str) -> bool:
        found = query(work_order_id=name, event_type="WO_PLANNED", limit=1)
        return any(place_of(one.id) <= after for one in found)

    near = (
        one for one in _until(last, query(after=after))
        if one.id == entry.id or not is_foreign(one.event_type, one.metadata)
    )  # fmt: skip
    places = _finished(Places(after, is_planned), near, query)
    for place in places.of_entry(entry) if last is not None else ():
        for name in places.orders_of(place):
            place.strays += [place_of(one.id) for one in query(work_order_id=name, after=last)]
    return places


def _until(last: int | None, entries: Iterator[LedgerEntry]) -> Iterator[LedgerEntry]:
    """Yield entries up to a sequence number without reading another page; all if it is None."""
    for entry in entries:
        yield entry
        if last is not None and place_of(entry.id) >= last:
            return


def _finished(
    places: Places, entries: Iterable[LedgerEntry], query: Callable[..., Iterator[LedgerEntry]]
) -> Places:
    """Some turns of a session, with the beginning and end of the whole."""
    for entry in entries:
        places.add(entry)
    places.finish()
    places.start = next(query(event_type="SESSION_START", limit=1), None)
    latest = next(query(order="desc", limit=1), None)
    places.end = latest if latest is not None and latest.event_type == "SESSION_END" else None
    return places
