"""Ranges of a session's turns: the entries that belong to each turn.

One pass over the session without content finds the ends of all turns. For a single entry, only its
turn and the neighbouring ones are read. A turn has the entries between two ends, except those of
another turn's orders. Entries of its own orders elsewhere also belong to it: a late answer, a call
settled by recovery, or two turns at once. A turn takes some hundred bytes of memory, so a session
of any length can be shown turn by turn.

An order without a turn number belongs to the next turn that ends without a number. Without such a
turn the order stands alone, as rows of a batch do.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from remit.ledger import LedgerEntry
from remit.views.entries import Tally, is_foreign, order_of, place_of

SESSION_EVENTS = frozenset({"SESSION_START", "SESSION_END"})
"""Events of the session, not of a turn."""

_CALL_ENDS = frozenset({"EXCHANGE", "EXCHANGE_ORPHANED", "PROMPT_REJECTED"})


@dataclass(slots=True, eq=False)
class Place:
    """The range of a turn in the ledger.

    Attributes:
        kind: ``turn``; ``order`` or ``call`` for an order or a call that belongs to no turn.
        number: number of the turn; ``None`` if the ledger has none.
        first: sequence number of its first entry; -1 for a call.
        order: id of the work order that belongs to no turn; empty for other kinds.
        after: sequence number before the range, exclusive; -1 for an order, which has no range.
        last: sequence number of the last entry in the range; -1 for an order.
        strays: sequence numbers of its orders' entries outside that range.
        closed: True if a ``TURN_RECORDED`` ended it.
    """

    kind: Literal["turn", "order", "call"] = "turn"
    number: int | None = None
    first: int = -1
    order: str = ""
    after: int = -1
    last: int = -1
    strays: list[int] = field(default_factory=list)
    closed: bool = False


class Places:
    """The places of a session's turns; made by :func:`remit.views.turn_search.find_places`.

    Entries are given by :meth:`add`, in ledger order, then :meth:`finish` is called once; only then
    may places be read. Iteration yields turns and lone orders in ledger order, then calls after the
    last turn. A call with several attempts ends with the last of them.

    Args:
        after: sequence number after which the turns begin.
        is_planned: returns True if a work order was planned before that number.

    Attributes:
        start: the ``SESSION_START``; ``None`` if the ledger has none.
        end: the ``SESSION_END``; ``None`` if the session is open or has later entries.
        found: True if the session has an entry.
        tally: usage of the session.
    """

    def __init__(
        self, after: int = -1, is_planned: Callable[[str], bool] = lambda order: False
    ) -> None:
        self.start: LedgerEntry | None = None
        self.end: LedgerEntry | None = None
        self.tally = Tally()
        self.found = False
        self._turns: list[Place] = []
        self._loose = array("q")  # ends of calls outside of turns, behind the last turn
        self._numbered: dict[int, Place] = {}
        self._owner: dict[str, Place] = {}
        self._open: dict[int, Place] = {}
        self._single: dict[str, Place] = {}  # orders without a number, since the last turn's end
        self._pending: list[tuple[Place, int]] = []
        self._before = after
        self._last = after
        self._rest = False
        self._is_planned = is_planned
        self._unplanned: set[str] = set()
        self._earlier = Place(closed=True)  # Holds entries of orders planned earlier.

    def __iter__(self) -> Iterator[Place]:
        yield from self._turns
        before = self._before
        for last in self._loose:
            yield Place("call", after=before, last=last)
            before = last
        if self._rest:
            yield Place("call", after=before, last=self._last)

    @property
    def orders(self) -> int:
        """Number of work orders of the session's turns."""
        return len(self._owner)

    @property
    def turns(self) -> int:
        """Number of turns, open ones included."""
        return sum(place.kind == "turn" for place in self._turns)

    def of_turn(self, number: int) -> list[Place]:
        """Return the turns of a number: none, one, or several if the number was reused.

        Args:
            number: number of the turn in its session, from 1.
        """
        return [place for place in self._turns if place.number == number]

    def of_entry(self, entry: LedgerEntry) -> list[Place]:
        """Return the place of an entry, as a list of one; empty if the entry has none.

        The place is the turn or lone order of the entry's work order, else the turn or call whose
        range contains the entry.

        Args:
            entry: an entry of the session.
        """
        owner = self._owner.get(order_of(entry))
        return [owner] if owner is not None else self.at(place_of(entry.id))

    def at(self, seq: int) -> list[Place]:
        """Return the turn, or the call, whose range contains a sequence number, as a list; empty if
        none does.

        Lone orders, which have no range, are not found.

        Args:
            seq: sequence number of an entry.
        """
        ends = sorted(
            (place for place in self if place.after < place.last), key=lambda place: place.last
        )
        position = bisect_left(ends, seq, key=lambda place: place.last)
        found = ends[position : position + 1]
        return [place for place in found if place.after < seq]

    def orders_of(self, place: Place) -> list[str]:
        """Return the ids of a turn's work orders, in the order of planning.

        Args:
            place: the turn.
        """
        return [order for order, owner in self._owner.items() if owner is place]

    def has(self, place: Place, entry: LedgerEntry) -> bool:
        """Return True if an entry in a turn's range belongs to that turn.

        An entry without a known work order belongs to the turn of its range. The range itself is
        not compared. The refusal of another caller's call belongs only to the place that it ends.

        Args:
            place: the turn.
            entry: an entry in its range.
        """
        if is_foreign(entry.event_type, entry.metadata):
            return place_of(entry.id) == place.last
        return self._owner.get(order_of(entry), place) is place

    def add(self, entry: LedgerEntry) -> None:
        """Read the next entry of the session and find its turn; entries must come in ledger order.

        ``start``, ``end``, ``found`` and ``tally`` are updated; an entry after a ``SESSION_END``
        resets ``end``. Calls outside of turns and orders are collected. Entries of orders that an
        earlier turn planned belong to that turn. A ``TURN_RECORDED`` ends the open turn of its
        number; if none is open, the orders without a number become its turn.

        Args:
            entry: the entry, with or without content.
        """
        self.found = True
        self._last = seq = place_of(entry.id)
        self.tally.add(entry)
        kind = entry.event_type
        if kind == "SESSION_END":
            self.end = entry
            return
        self.end = None
        if kind == "SESSION_START":
            self.start = self.start or entry
            return
        if kind == "TURN_RECORDED":
            self._close(seq, number_of(entry))
            return
        order = order_of(entry)
        owner = self._owner.get(order)
        if owner is None and kind == "WO_PLANNED" and order:
            number = number_of(entry)
            owner = self._owner[order] = self._opened(number, order, seq)
        elif owner is None and order and order not in self._unplanned:
            if self._is_planned(order):
                owner = self._owner[order] = self._earlier
            else:
                self._unplanned.add(order)
        if owner is not None and owner.kind == "order":
            return
        if owner is not None and owner.closed:
            owner.strays.append(seq)
        elif owner is not None:
            self._pending.append((owner, seq))
        elif kind in _CALL_ENDS:
            self._retried(place_of(str(entry.metadata.get("retry_of") or "")))
            self._loose.append(seq)
            self._rest = False
        elif kind not in ("DISPATCH", "BUDGET_ALLOCATED"):
            self._rest = True

    def _retried(self, seq: int) -> None:
        """Remove an attempt from the ends of calls: the attempt that followed is the end."""
        position = bisect_left(self._loose, seq)
        if position < len(self._loose) and self._loose[position] == seq:
            del self._loose[position]

    def finish(self) -> None:
        """End the reading, after the last :meth:`add`; call once. Unended turns remain open.

        Later entries without a work order become part of the latest open turn. Turns are sorted by
        their first entry.
        """
        still_open = list(self._open.values())
        for place in still_open:
            place.strays += [seq for owner, seq in self._pending if owner is place]
        if still_open:  # Entries without an order most likely belong to the latest open turn.
            place = still_open[-1]
            place.strays = [seq for seq in place.strays if seq <= self._before]
            place.after, place.last = self._before, self._last
            del self._loose[:]
            self._rest = False
        self._turns += [*still_open, *self._single.values()]
        self._turns.sort(key=lambda place: place.first)
        self._pending.clear()
        self._single.clear()

    def _opened(self, number: int | None, order: str, seq: int) -> Place:
        """The turn of a new order: the one of that number, whether it has ended or not."""
        if number is None:
            return self._single.setdefault(order, Place("order", first=seq, order=order))
        if number not in self._open and number in self._numbered:
            return self._numbered[number]
        return self._open.setdefault(number, Place(number=number, first=seq))

    def _close(self, seq: int, number: int | None) -> None:
        place = self._open.pop(number, None) if number is not None else None
        if place is None:
            place = Place(first=min((order.first for order in self._single.values()), default=seq))
            self._owner.update(dict.fromkeys(self._single, place))
        else:
            self._turns += self._single.values()
        self._single.clear()
        place.number, place.after, place.last, place.closed = number, self._before, seq, True
        for owner, at in self._pending:
            if owner is not place:
                owner.strays.append(at)
        self._pending.clear()
        del self._loose[:]
        self._rest = False
        self._before = seq
        self._turns.append(place)
        if number is not None:
            self._numbered[number] = place


def number_of(entry: LedgerEntry) -> int | None:
    """Return the turn number in a turn's record or an order's plan; ``None`` without a whole
    number.

    Args:
        entry: a ``TURN_RECORDED`` or ``WO_PLANNED`` entry.
    """
    number = entry.metadata.get("turn_number")
    return number if type(number) is int else None
