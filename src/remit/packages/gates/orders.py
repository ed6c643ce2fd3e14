"""G2: every work order went a legal way, ended at most once, and cost what its exchanges did.

Reads entry by entry and keeps what is open: memory grows with the open orders, not with the
ledger.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from remit.agents.workorders import WorkOrder, moved_by, replay
from remit.kernel.errors import RemitError
from remit.ledger import LedgerClient, LedgerEntry, parse_entry_id
from remit.packages.checks import Checked, Finding
from remit.packages.gates.context import GateContext
from remit.packages.gates.marks import last_mark

__all__ = ["check_orders"]

_STEPS = ("WO_DISPATCHED", "WO_EXECUTING", "WO_COMPLETED", "WO_FAILED")
_EVENTS = ("WO_PLANNED", *_STEPS, "EXCHANGE", "LLM_CALL")
_LISTED = 5  # open orders in the message
_TWICE = (
    "SELECT submission_id, count(*) FROM entries WHERE event_type IN ({marks}) "
    "GROUP BY submission_id HAVING count(*) > 1 ORDER BY submission_id LIMIT ?"
)
_LOOK = "Look at it: `remit ledger query --json` with its work order, and `remit ledger verify`."


@dataclass(slots=True)
class _Cost:
    """Sum of the first exchanges of an order."""

    input_tokens: int = 0
    output_tokens: int = 0
    usd: Decimal = field(default_factory=Decimal)
    known: bool = True
    priced: bool = False

    def plus(self, metadata: dict[str, Any]) -> _Cost:
        """With one exchange more; by the rule of the worker's own sum."""
        usd = metadata.get("cost_usd")
        tokens = metadata["input_tokens"], metadata["output_tokens"]
        return _Cost(
            self.input_tokens + tokens[0],
            self.output_tokens + tokens[1],
            self.usd + (Decimal(0) if usd is None else Decimal(str(usd))),
            self.known and (usd is not None or not any(tokens)),
            self.priced or usd is not None,
        )

    @property
    def cost_usd(self) -> float | None:
        return float(self.usd) if self.known and self.priced else None


@dataclass(slots=True)
class _Open:
    """An order that has not ended.

    Attributes:
        planned: sequence number of its plan.
        sums: over its first exchanges, up to each of those that the worker may have counted: it
            has read all that it noted as calls, and perhaps one that came in the meantime.
        seqs: sequence number of the last exchange of each sum.
    """

    order: WorkOrder
    planned: int
    sums: list[_Cost] = field(default_factory=lambda: [_Cost()])
    seqs: list[int] = field(default_factory=lambda: [-1])

    def exchanged(self, seq: int, metadata: dict[str, Any]) -> None:
        self.sums.append(self.sums[-1].plus(metadata))
        self.seqs.append(seq)

    def noted(self, seq: int) -> None:
        """The worker knew of that exchange: what ends before it is no sum of this order."""
        if seq in self.seqs:
            first = self.seqs.index(seq)
            del self.sums[:first], self.seqs[:first]


def check_orders(context: GateContext, *, full: bool) -> Checked:
    """Gate G2.

    Args:
        context: of the root.
        full: read the whole ledger, however great.
    """
    ledger = context.ledger
    entries = ledger.count()
    most = context.full_entries
    mark = None if full else last_mark(ledger, "G2", entries, full_entries=most)
    check = _Check(ledger, mark.verified_entries if mark else 0)
    for seq, entry in _stream(ledger, mark.resume_at if mark else 0, entries):
        try:
            check.take(seq, entry)
        except RemitError as error:
            check.fail(error.message, entry)
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            problem = f"{entry.id} ({entry.event_type}) lacks what it has to say: "
            check.fail(f"{problem}{type(error).__name__} {error}.", entry)
    check.twice(context.most_errors)
    if not entries:
        check.findings.append(Finding("The ledger has no entry.", "Run `remit init`."))
    opened = sorted(check.open, key=lambda wo_id: check.open[wo_id].planned)
    message = (
        f"work orders: {check.ended} ended, each in a legal way and at the cost of its exchanges"
    )
    if opened:
        listed = ", ".join(opened[:_LISTED]) + (", …" if len(opened) > _LISTED else "")
        message += f"; {len(opened)} open: {listed}"
    if mark is not None:
        message += (
            f"; entries from {mark.resume_at} on were read, the {mark.verified_entries} before "
            f"were verified at {mark.timestamp} ({mark.entry_id}; --full reads all)"
        )
    resume_at = min((one.planned for one in check.open.values()), default=entries)
    reached = {"verified_entries": entries, "resume_at": resume_at}
    return Checked(check.findings, message=message, mark=reached)


class _Check:
    """The state machine of all orders at once.

    Args:
        ledger: for what spans it.
        verified: of orders that ended before this sequence number, the beginning is not read.
    """

    def __init__(self, ledger: LedgerClient, verified: int) -> None:
        self._ledger = ledger
        self._verified = verified
        self.open: dict[str, _Open] = {}
        self.spoilt: set[str] = set()  # reported once; what follows from it is not
        self.ended = 0
        self.findings: list[Finding] = []

    def fail(self, message: str, entry: LedgerEntry) -> None:
        """Note what is wrong; the order is not looked at any more."""
        wo_id = entry.submission_id
        self.open.pop(wo_id, None)
        if wo_id not in self.spoilt:
            self.spoilt.add(wo_id)
            self.findings.append(Finding(message, _LOOK, entry_id=entry.id))

    def take(self, seq: int, entry: LedgerEntry) -> None:
        """One entry, in ledger order."""
        if entry.event_type == "EXCHANGE":
            metadata = entry.metadata
            found = self.open.get(metadata.get("work_order_id") or "")
            # What the worker sums up: its own tier's, of its own order.
            if found is not None and metadata.get("tier") == "ho1":
                found.exchanged(seq, metadata)
            return
        wo_id = entry.submission_id
        if wo_id in self.spoilt:
            return
        found = self.open.get(wo_id)
        if entry.event_type == "LLM_CALL":
            if found is not None:
                exchange = parse_entry_id(str(entry.metadata.get("exchange_entry_id") or ""))
                found.noted(-1 if exchange is None else exchange)
        elif entry.event_type == "WO_PLANNED":
            if found is not None:
                self.fail(f"{wo_id} was planned twice ({entry.id}).", entry)
                return
            self._plan(seq, entry)
        elif found is None:
            if seq >= self._verified:
                problem = "had ended, or was never planned"
                self.fail(f"{entry.id} is a {entry.event_type} of {wo_id}, which {problem}.", entry)
        else:
            found.order = moved_by(found.order, entry)
            if found.order.ended:
                del self.open[wo_id]
                self.ended += 1
                self._compare(found, entry)

    def twice(self, most: int) -> None:
        """Orders that were planned, or ended, more than once, in the whole ledger."""
        for what, events in (("planned", _EVENTS[:1]), ("ended", _STEPS[2:])):
            sql = _TWICE.format(marks=", ".join("?" * len(events)))
            for wo_id, times in self._ledger.select(sql, (*events, most)):
                if wo_id not in self.spoilt:
                    self.spoilt.add(wo_id)
                    problem = f"{wo_id} was {what} {times} times."
                    self.findings.append(Finding(problem, _LOOK))

    def _plan(self, seq: int, entry: LedgerEntry) -> None:
        # Where nobody executed, nothing is known of its content: none is needed.
        order = replay([entry], allow_erased=True)
        if (entry.metadata.get("scope") or {}).get("tier") != "ho2":
            self.fail(f"{entry.id} plans {order.wo_id}, and is not the supervisor's.", entry)
            return
        self.open[order.wo_id] = _Open(order, seq)

    def _compare(self, found: _Open, entry: LedgerEntry) -> None:
        cost = found.order.cost
        stated = (cost.input_tokens, cost.output_tokens, cost.cost_usd)
        sums = [(one.input_tokens, one.output_tokens, one.cost_usd) for one in found.sums]
        if stated in sums and cost.total_tokens == cost.input_tokens + cost.output_tokens:
            return
        self.fail(
            f"{found.order.wo_id} says that it cost {_words(stated)}; its exchanges come to "
            f"{_words(sums[-1])} ({entry.id}).",
            entry,
        )


def _stream(ledger: LedgerClient, first: int, entries: int) -> Iterator[tuple[int, LedgerEntry]]:
    """What speaks of orders, in ledger order, without content."""
    streams = (
        ledger.query(event_type=event, after=first - 1, with_content=False) for event in _EVENTS
    )
    for entry in heapq.merge(*streams, key=_seq):
        if (seq := _seq(entry)) >= entries:
            return
        yield seq, entry


def _seq(entry: LedgerEntry) -> int:
    seq = parse_entry_id(entry.id)
    return -1 if seq is None else seq


def _words(cost: tuple[int, int, float | None]) -> str:
    usd = "no known price" if cost[2] is None else f"{cost[2]} USD"
    return f"{cost[0]} + {cost[1]} tokens, {usd}"
