"""A turn that began and has no end, read from the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.agents.workorders import OrderHistory, WorkOrder, WorkOrderState, recorded_order
from remit.ledger import Erased, LedgerEntry, LedgerPort

__all__ = ["RecordedOrder", "UnfinishedTurn", "unfinished_turn"]


@dataclass(frozen=True, slots=True)
class RecordedOrder:
    """An order of a turn, in its present state.

    Attributes:
        step: the name of its step in the plan.
        attempt: which attempt of that step it is, from 1.
        depends_on: names of the steps that it waits for.
        planned: the ``WO_PLANNED``.
    """

    order: WorkOrder
    step: str
    attempt: int
    depends_on: tuple[str, ...]
    planned: LedgerEntry


@dataclass(frozen=True, slots=True)
class UnfinishedTurn:
    """What is on record of a turn that has no ``TURN_RECORDED``.

    Attributes:
        message: what the user said; empty where it was erased.
        orders: in the order in which they were planned.
        verdicts: reasons of the quality gate by the order that it looked at; none: accepted.
        requests: the ``APPROVAL_REQUESTED`` entries that a person has not decided yet.
        idle: whether it waits for people only, who decided nothing since it was last resumed.
        erased: what it began with was erased: it can be ended, not gone on with.
    """

    turn_number: int
    message: str
    orders: tuple[RecordedOrder, ...]
    verdicts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    requests: tuple[LedgerEntry, ...] = ()
    idle: bool = False
    erased: bool = False

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Ids of the requests that it waits for."""
        return tuple(entry.id for entry in self.requests)

    @property
    def first(self) -> str:
        """Id of the entry that the turn began with."""
        return self.orders[0].planned.id

    def find(self, step: str, attempt: int) -> RecordedOrder | None:
        """The order of that step and attempt."""
        for one in self.orders:
            if (one.step, one.attempt) == (step, attempt):
                return one
        return None


def unfinished_turn(
    ledger: LedgerPort,
    session_id: str,
    turns_recorded: int,
    latest: LedgerEntry | None = None,
) -> UnfinishedTurn | None:
    """The session's turn that has not ended, if there is one.

    Args:
        ledger: a handle that sees the supervisor's and the worker's entries.
        session_id: whose.
        turns_recorded: how many turns have ended.
        latest: the session's latest ``WO_PLANNED``, where the caller has read it.
    """
    number = turns_recorded + 1
    latest = latest or next(
        ledger.query(
            session_id=session_id, event_type="WO_PLANNED", order="desc", limit=1,
            with_content=False,
        ),
        None,
    )  # fmt: skip
    if latest is None or latest.metadata.get("turn_number") not in (None, number):
        return None  # nearly always
    planned: list[LedgerEntry] = []
    for entry in ledger.query(
        session_id=session_id, event_type="WO_PLANNED", order="desc", with_content=False
    ):
        of_turn = entry.metadata.get("turn_number")
        if of_turn is None:
            continue  # an order by itself, of no turn
        if of_turn != number:
            break
        planned.append(entry)
    if not planned:
        return None
    orders = []
    message: Any = ""
    erased = False
    for light in reversed(planned):
        entry = ledger.read(light.id)
        order = recorded_order(ledger, entry.submission_id, allow_erased=True)
        erased = erased or isinstance(entry.metadata["input_context"], Erased)
        assert order is not None  # it was planned
        message = message or order.input_context.get("user_input", "")
        orders.append(
            RecordedOrder(
                order,
                str(entry.metadata.get("step", "")),
                int(entry.metadata.get("attempt", 1)),
                tuple(entry.metadata.get("depends_on", ())),
                entry,
            )
        )
    verdicts = {
        gate.submission_id: tuple(_reasons(gate.metadata["reasons"]))
        for one in orders
        for gate in ledger.query(work_order_id=one.order.wo_id, event_type="WO_QUALITY_GATE")
    }
    requests: list[LedgerEntry] = []
    idle = True
    for one in orders:
        if one.order.state is WorkOrderState.EXECUTING:
            history = OrderHistory(ledger, one.order.wo_id, session_id)
            requests += history.undecided
            idle = idle and history.waits
        else:
            idle = idle and one.order.state is not WorkOrderState.DISPATCHED
    return UnfinishedTurn(
        number,
        "" if isinstance(message, Erased) else str(message),
        tuple(orders),
        verdicts,
        tuple(requests),
        idle,
        erased,
    )


def _reasons(recorded: Any) -> list[str]:
    return ["its reasons were erased"] if isinstance(recorded, Erased) else list(recorded)
