"""Gate G2: every work order follows the state machine and costs as much as its exchanges.

An order's exchanges are its own and those of the sessions of its sub-agents. Tools with a price
cost that price. The check keeps only open orders in memory, whatever the size of the ledger.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

from remit.agents.workorders import Caller, Usage, WorkOrder, moved_by, replay
from remit.kernel.errors import RemitError
from remit.ledger import LedgerClient, LedgerEntry, is_authentic, parse_entry_id
from remit.packages.checks import Finding
from remit.packages.gates.context import GateContext, GateRun, in_order

_STEPS = ("WO_DISPATCHED", "WO_EXECUTING", "WO_COMPLETED", "WO_FAILED")
_EVENTS = ("WO_PLANNED", *_STEPS, "EXCHANGE", "LLM_CALL", "SESSION_START", "TOOL_INTENT")
_MAX_LISTED = 5  # The message lists no more open orders.
_REPEATED_EVENTS = (
    "SELECT submission_id, count(*) FROM entries WHERE {where} "
    "GROUP BY submission_id HAVING count(*) > 1 ORDER BY submission_id LIMIT ?"
)
# The expression keeps the planner from the index of events; the index of submissions is faster.
_LATER_ORDERS = (
    "event_type || '' IN ({marks}) AND submission_id IN "
    "(SELECT submission_id FROM entries WHERE event_type IN ({marks}) AND seq >= ?)"
)
_NEXT_STEP = (
    "Run `remit ledger query --json` with the id of the work order, and `remit ledger verify`."
)


@dataclass(slots=True)
class _Open:
    """An order that has not ended.

    Attributes:
        order: the order as replayed so far.
        planned: the sequence number of its plan.
        sums: running sums over its exchanges, each with the sequence number of its last exchange.
            The worker may have counted one exchange more than it recorded, so any of these sums is
            a valid cost.
    """

    order: WorkOrder
    planned: int
    sums: list[tuple[int, Usage]] = field(default_factory=lambda: [(-1, Usage())])


def check_orders(context: GateContext) -> GateRun:
    """Check all work orders against the state machine and the cost of their exchanges (gate G2).

    Yields a finding for each faulty order, once, after all entries were read; and one for an empty
    ledger. An order is faulty if it is never planned, planned or ended twice, or planned by another
    than the supervisor; if it moves illegally or an entry lacks a value; or if it ends with another
    cost than its exchanges and priced tools. Open orders are no fault. Orders that ended before the
    mark of the last pass are not read again if the ledger has more than ``gates.full_entries``
    entries, unless all are requested.

    Args:
        context: the open root.

    Returns:
        One line with the number of ended and open orders, and the mark of the gate.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    ledger = context.ledger
    entries = context.entries
    verified_entries, first, verified = context.mark("G2")
    orders = _Orders(verified_entries)
    after = first - 1
    streams = (ledger.query(event_type=event, after=after, with_content=False) for event in _EVENTS)
    for seq, entry in in_order(streams, entries):
        try:
            orders.take(seq, entry)
        except RemitError as error:
            orders.fail(entry.submission_id, error.message)
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            problem = f"{entry.id} ({entry.event_type}) lacks a value: "
            orders.fail(entry.submission_id, f"{problem}{type(error).__name__} {error}.")
        context.progress("G2", seq, entries)
    orders.check_once(ledger, first, context.most_errors)
    yield from orders.findings
    if not entries:
        yield Finding("The ledger is empty.", "Run `remit init`.")
    still_open = sorted(orders.open, key=lambda wo_id: orders.open[wo_id].planned)
    message = (
        f"work orders: {orders.ended} ended, each with legal transitions and the cost of its "
        "exchanges"
    )
    if still_open:
        listed = ", ".join(still_open[:_MAX_LISTED]) + (
            ", …" if len(still_open) > _MAX_LISTED else ""
        )
        message += f"; {len(still_open)} open: {listed}"
    if verified:
        message += (
            f"; read from entry {first} on, because the first {verified_entries} were {verified}"
        )
    resume_at = min((order.planned for order in orders.open.values()), default=entries)
    return message, {"verified_entries": entries, "resume_at": resume_at}


class _Orders:
    """The state machine of all orders at once.

    Args:
        verified: the number of entries read before; orders that ended in them are unknown here.
    """

    def __init__(self, verified: int) -> None:
        self._verified = verified
        self._failed: set[str] = set()  # Each order is reported once.
        # By sub-session, the calling orders, its own caller first.
        self._callers: dict[str, tuple[str, ...]] = {}
        self.open: dict[str, _Open] = {}
        self.ended = 0
        self.findings: list[Finding] = []

    def fail(self, wo_id: str, message: str) -> None:
        """Record a finding about an order, once, and ignore the order from now on."""
        self.open.pop(wo_id, None)
        if wo_id not in self._failed:
            self._failed.add(wo_id)
            self.findings.append(Finding(message, _NEXT_STEP))

    def take(self, seq: int, entry: LedgerEntry) -> None:
        """Process the next entry, in the order of the ledger.

        Raises:
            RemitError: the entry is not allowed in the order's state.
        """
        if entry.event_type == "EXCHANGE":
            # The worker sums up exchanges of its own tier and order, and all of sub-agents.
            own = entry.metadata.get("tier") == "ho1" and entry.metadata.get("work_order_id")
            session_id = entry.metadata.get("session_id") or ""
            self._add(seq, own or "", session_id, lambda used: used.add(entry))
            return
        if entry.event_type == "TOOL_INTENT":
            if price := entry.metadata.get("price_usd"):
                session_id = entry.metadata["provenance"]["session_id"]
                self._add(seq, entry.submission_id, session_id, lambda used: used.pay(price))
            return
        if entry.event_type == "SESSION_START":
            caller = Caller.of(entry.metadata.get("caller"))
            if caller is not None and is_authentic(entry):
                above = self._callers.get(caller.session_id, ())
                self._callers[entry.submission_id] = (caller.work_order_id, *above)
            return
        wo_id = entry.submission_id
        if wo_id in self._failed:
            return
        found = self.open.get(wo_id)
        if entry.event_type == "LLM_CALL":
            if found is not None:
                # The worker knew of that exchange, so sums that end before it are not valid.
                known = parse_entry_id(str(entry.metadata.get("exchange_entry_id") or ""))
                counted = [at for at, _ in found.sums]
                if known in counted:
                    del found.sums[: counted.index(known)]
        elif entry.event_type == "WO_PLANNED":
            # The check needs no content, which may have been erased.
            order = replay([entry], allow_erased=True)
            if found is not None:
                self.fail(wo_id, f"{wo_id} was planned twice ({entry.id}).")
            elif (entry.metadata.get("scope") or {}).get("tier") != "ho2":
                self.fail(wo_id, f"{entry.id} plans {wo_id}, but the supervisor did not write it.")
            else:
                self.open[wo_id] = _Open(order, seq)
        elif found is not None:
            found.order = moved_by(found.order, entry)
            if found.order.ended:
                del self.open[wo_id]
                self.ended += 1
                self._compare(found, entry)
                if self._callers:
                    self._callers = {
                        name: callers
                        for name, callers in self._callers.items()
                        if callers[-1] != wo_id
                    }
        elif seq >= self._verified:
            problem = f"{entry.id} ({entry.event_type}) belongs to {wo_id}, which had ended or was "
            self.fail(wo_id, f"{problem}never planned.")

    def _add(self, seq: int, own: str, session_id: str, count: Callable[[Usage], None]) -> None:
        """Add a cost to an order and to the orders that its session is part of."""
        for wo_id in (own, *self._callers.get(session_id, ())):
            if (found := self.open.get(wo_id)) is not None:
                used = copy.copy(found.sums[-1][1])
                count(used)
                found.sums.append((seq, used))

    def check_once(self, ledger: LedgerClient, first: int, most: int) -> None:
        """Record findings about orders that the ledger plans or ends more than once.

        Args:
            ledger: the root's ledger.
            first: the sequence number from which on an entry must plan or end the order; 0 for all
                orders.
            most: the maximum number of findings of each kind.
        """
        for what, events in (("planned", _EVENTS[:1]), ("ended", _STEPS[2:])):
            marks = ", ".join("?" * len(events))
            where, given = f"event_type IN ({marks})", [*events]
            if first:
                where, given = _LATER_ORDERS.format(marks=marks), [*events, *events, first]
            for wo_id, times in ledger.select(_REPEATED_EVENTS.format(where=where), (*given, most)):
                self.fail(wo_id, f"{wo_id} was {what} {times} times.")

    def _compare(self, found: _Open, entry: LedgerEntry) -> None:
        cost = found.order.cost
        stated = cost.input_tokens, cost.output_tokens, cost.cost_usd
        sums = [
            (used.input_tokens, used.output_tokens, used.cost_usd if used.priced else None)
            for _, used in found.sums
        ]
        if stated not in sums or cost.total_tokens != cost.input_tokens + cost.output_tokens:
            problem = (
                f"The cost of {found.order.wo_id} in {entry.id} is {_words(*stated)}, but its "
                f"exchanges cost {_words(*sums[-1])}."
            )
            self.fail(found.order.wo_id, problem)


def _words(input_tokens: int, output_tokens: int, usd: float | None) -> str:
    price = "no known price" if usd is None else f"{usd} USD"
    return f"{input_tokens} + {output_tokens} tokens, {price}"
