"""Entries of the supervisor, in tier ``ho2``: written, and read back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from remit.agents.sessions import SessionManager, SessionOverview, latest_of
from remit.agents.supervisor.plan import SUPERVISOR_STEPS, Plan, PlanStep
from remit.agents.workorders import (
    Journal,
    OrderHistory,
    WorkOrder,
    WorkOrderConstraints,
    WorkOrderState,
    plan_of,
    recorded_order,
    sub_session_id,
    trace_hash_of,
    work_order_id,
)
from remit.ledger import Erased, LedgerEntry, LedgerPort, Transaction, is_authentic, utc_now

_TURN_FIELDS = (
    "user_input", "classification", "assembled_context", "prior_results", "rejected_because",
    "files",
)  # fmt: skip
"""Fields of ``input_context`` that an order takes from its turn, not from its step."""


class SupervisorJournal(Journal):
    """The journal of one session's supervisor, which also numbers its work orders.

    Entries are returned unwritten by :meth:`planned`, or held until the next write by
    :meth:`checked`.
    """

    def last_number(self, latest: LedgerEntry | None) -> int:
        """Return the number of the latest numbered order; 0 if there is none.

        Orders outside the session's turns have no number and are skipped.

        Args:
            latest: the session's latest ``WO_PLANNED``; None without one.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        if latest is None:
            return 0
        earlier = self.ledger.query(
            session_id=self.session_id, event_type="WO_PLANNED", order="desc", after=latest.id,
            with_content=False,
        )  # fmt: skip
        numbers = map(self._number_of, chain([latest], earlier))
        return next((number for number in numbers if number is not None), 0)

    def _number_of(self, plan: LedgerEntry) -> int | None:
        """Return the number of an order of a turn; None for a standalone order."""
        head, _, number = plan.submission_id.rpartition("-")
        in_a_turn = plan.metadata.get("turn_number") is not None
        if in_a_turn and head == f"WO-{self.session_id}" and number.isdigit():
            return int(number)
        return None

    def next_number(self, number: int) -> int:
        """Return the next number whose order id no entry uses. Read-only.

        A client can name an order that was never planned, so used ids are skipped. The number is
        not reserved.

        Args:
            number: number of the latest numbered order; 0 for none.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        number += 1
        while self.has(work_order_id=work_order_id(self.session_id, number)):
            number += 1
        return number

    def order(
        self,
        wo_id: str,
        step: PlanStep,
        context: Mapping[str, Any],
        tokens: int,
        parent: str | None = None,
    ) -> WorkOrder:
        """Return a plan step as an unwritten work order.

        The step's own input takes precedence over ``context``. The order is in the state planned,
        created now by the journal's agent. Nothing is read or written.

        Args:
            wo_id: id of the order.
            step: the step.
            context: joins the step's input.
            tokens: token budget if the step has none.
            parent: order that this one is a part of; None for none.
        """
        return WorkOrder(
            wo_id=wo_id,
            session_id=self.session_id,
            wo_type=step.wo_type,
            parent_wo_id=parent,
            created_at=utc_now(),
            created_by=self.agent_id,
            input_context={**context, **step.input},
            constraints=WorkOrderConstraints(
                prompt_contract_id=step.contract_id,
                token_budget=tokens if step.token_budget is None else step.token_budget,
                usd_budget=step.usd_budget,
                turn_limit=step.turn_limit,
                timeout_seconds=step.timeout_seconds,
                tools_allowed=step.tools,
                tools_requiring_approval=step.approve,
                output_schema=step.output_schema,
            ),
            acceptance_criteria=dict(step.acceptance),
        )

    def planned(self, order: WorkOrder, **details: Any) -> LedgerEntry:
        """Return the ``WO_PLANNED`` entry of an order, not yet written.

        Args:
            order: the order.
            details: its place in the plan, such as ``step``, ``attempt`` and ``turn_number``.
        """
        return self.entry("WO_PLANNED", order.wo_id, **plan_of(order), **details)

    async def checked(
        self,
        last: WorkOrder,
        ids: list[str],
        cost: dict[str, Any],
        reasons: list[str],
        attempt: int,
        further: Sequence[LedgerEntry] = (),
    ) -> None:
        """Record the end of a chain of orders and the verdict on its result.

        The entries are ``WO_CHAIN_COMPLETE`` and ``WO_QUALITY_GATE``, with the trace hash of the
        orders as of their transaction. An accepting verdict is held for the caller's next write,
        such as the record of the turn. A rejecting one is written at once, with everything that is
        held. A second call records a second verdict.

        Args:
            last: the last order.
            ids: ids of all orders of the chain.
            cost: usage of the chain.
            reasons: reasons to reject; empty to accept.
            attempt: number of the attempt, from 1.
            further: entries that follow in the same transaction.

        Raises:
            LedgerError: a rejecting verdict could not be written.
        """
        verdict = {"verdict": "reject" if reasons else "accept", "reasons": reasons}
        complete = self.entry(
            "WO_CHAIN_COMPLETE", last.wo_id, work_order_ids=ids, cost=cost, outcome=str(last.state)
        )
        gate = self.entry(
            "WO_QUALITY_GATE", last.wo_id, work_order_ids=ids, **verdict, attempt=attempt
        )

        def close(tx: Transaction) -> None:
            trace = trace_hash_of(tx, ids)
            for entry in (complete, gate):
                entry.metadata["trace_hash"] = trace
                tx.append(self.ledger.prepare(entry, subject_id=self._subject_id))

        self.hold(close, *further)
        if reasons:
            await self.flush()

    def has(self, **which: Any) -> bool:
        """Return True if the ledger has an entry that matches a query.

        Args:
            which: fields of :meth:`remit.ledger.LedgerPort.query`.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return any(True for _ in self.ledger.query(**which, limit=1, with_content=False))

    def shown(self, wo_id: str) -> str:
        """Return the texts that an order's calls showed the model: prompts and tool results.

        Joined by spaces; the model's own messages are left out, and so are prompts that are a
        single text or erased. Content blocks appear as their Python representation.

        Args:
            wo_id: the order.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        prompts = (
            exchange.metadata["prompt"]
            for exchange in self.ledger.query(work_order_id=wo_id, event_type="EXCHANGE")
        )
        messages = chain.from_iterable(sent for sent in prompts if isinstance(sent, list))
        return " ".join(
            str(message["content"])
            for message in messages
            if isinstance(message, Mapping) and message.get("role") != "assistant"
        )


@dataclass(frozen=True, slots=True)
class RecordedOrder:
    """An order of a turn in its present state, and its place in the plan.

    Immutable.

    Attributes:
        order: the order.
        step: name of its step.
        attempt: number of the attempt, from 1.
        depends_on: names of the steps that it needs.
        planned: its ``WO_PLANNED`` entry.
        requests: undecided requests of the order and of its sub-agents.
        idle: False if the order can continue now: dispatched, or executing and not waiting for
            people alone, or waiting and a person has decided since it was last resumed.
    """

    order: WorkOrder
    step: str
    attempt: int
    depends_on: tuple[str, ...]
    planned: LedgerEntry
    requests: tuple[LedgerEntry, ...] = ()
    idle: bool = True

    @property
    def plan_step(self) -> PlanStep:
        """The step that the order was planned from.

        The step's input lacks the fields that the order took from its turn, and is empty if it was
        erased. A token budget that the step left open is the one that the order got.

        Raises:
            InvalidInputError: a recorded limit is not a number in range.
        """
        order, limits = self.order, self.order.constraints
        given = {name: v for name, v in order.input_context.items() if name not in _TURN_FIELDS}
        return PlanStep(
            name=self.step,
            contract_id=limits.prompt_contract_id,
            wo_type=order.wo_type,
            input=given,
            tools=limits.tools_allowed,
            approve=limits.tools_requiring_approval,
            depends_on=self.depends_on,
            acceptance=order.acceptance_criteria,
            token_budget=limits.token_budget,
            usd_budget=limits.usd_budget,
            turn_limit=limits.turn_limit,
            timeout_seconds=limits.timeout_seconds,
            output_schema=limits.output_schema,
        )


@dataclass(frozen=True, slots=True)
class UnfinishedTurn:
    """The recorded part of a turn without ``TURN_RECORDED``.

    Immutable; read at one moment. Its properties read no ledger.

    Attributes:
        turn_number: number of the turn.
        message: the user's message; empty if it was erased.
        orders: orders, in the order of their plans.
        verdicts: reasons of the quality gate, keyed by order id; no reasons mean acceptance.
        erased: True if the input was erased: the turn can be ended, but not continued.
    """

    turn_number: int
    message: str
    orders: tuple[RecordedOrder, ...]
    verdicts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    erased: bool = False

    @property
    def requests(self) -> tuple[LedgerEntry, ...]:
        """The ``APPROVAL_REQUESTED`` entries without a decision."""
        return tuple(entry for order in self.orders for entry in order.requests)

    @property
    def idle(self) -> bool:
        """True if the turn waits only for people, and nobody has decided since the last resume."""
        return all(order.idle for order in self.orders)

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Ids of the requests without a decision."""
        return tuple(entry.id for entry in self.requests)

    @property
    def files(self) -> Sequence[Mapping[str, Any]]:
        """Content blocks of the images and documents of the message."""
        contexts = (recorded.order.input_context for recorded in self.orders)
        return next((context["files"] for context in contexts if context.get("files")), ())

    @property
    def plan(self) -> Plan | None:
        """The recorded plan of the turn; None if no plan was recorded.

        Further attempts and steps of the supervisor are left out.

        Raises:
            InvalidInputError: the recorded steps do not form a plan.
        """
        found = [
            one for one in self.orders if one.attempt == 1 and one.step not in SUPERVISOR_STEPS
        ]
        if not found:
            return None
        answering = [one.step for one in found if one.planned.metadata.get("answering")]
        return Plan(tuple(one.plan_step for one in found), answering[0] if answering else "")

    def find(self, step: str, attempt: int) -> RecordedOrder | None:
        """Return the order of a step and attempt; None if there is none.

        Args:
            step: name of the step.
            attempt: number of the attempt, from 1.
        """
        return next((o for o in self.orders if (o.step, o.attempt) == (step, attempt)), None)


def handed_to(ledger: LedgerPort, session_id: str, latest: LedgerEntry | None) -> tuple[str, ...]:
    """Return the ids of agents to which the session was handed over, by the plan of its last turn.

    The ids are in order of the handovers; empty without one.

    Args:
        ledger: contains the session.
        session_id: the session.
        latest: the session's latest ``WO_PLANNED``; None if it has none.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    if (
        latest is not None and latest.metadata.get("turn_number") is None
    ):  # The latest plan is a standalone order.
        plans = ledger.query(
            session_id=session_id, event_type="WO_PLANNED", order="desc", with_content=False
        )
        of_turns = (plan for plan in plans if plan.metadata.get("turn_number") is not None)
        latest = next(of_turns, None)
    return tuple(latest.metadata.get("handed_to", ())) if latest is not None else ()


def unfinished_sessions(ledger: LedgerPort, sessions: Iterable[SessionOverview]) -> Iterator[str]:
    """Yield the ids of sessions with an unfinished turn, except sessions of sub-agents.

    Each session is read when the iterator reaches it.

    Args:
        ledger: a handle that may read entries of supervisor and worker.
        sessions: the sessions.

    Raises:
        OrderRecordError: the entries of an order are not valid.
        LedgerError: the ledger cannot be read.
    """
    for one in sessions:
        own = not one.caller_session_id  # The caller of a sub-agent continues its session.
        if own and unfinished_turn(ledger, one.session_id, one.turns) is not None:
            yield one.session_id


def unfinished_turn(
    ledger: LedgerPort,
    session_id: str,
    turns_recorded: int,
    latest: LedgerEntry | None = None,
) -> UnfinishedTurn | None:
    """Return the session's unfinished turn; None if there is none. Read-only.

    A turn counts as unfinished if an order was planned for the number after the ended turns.
    Entries that are not authentic are ignored. Its requests include those of sub-agents. An erased
    input raises nothing: the turn is marked ``erased``, and an erased message is empty.

    Args:
        ledger: a handle that may read entries of supervisor and worker.
        session_id: the session.
        turns_recorded: number of ended turns.
        latest: the session's latest ``WO_PLANNED``, if the caller has read it; None to read it.

    Raises:
        OrderRecordError: the entries of an order are not valid.
        LedgerError: the ledger cannot be read.
    """
    number = turns_recorded + 1
    latest = latest or latest_of(ledger, session_id, "WO_PLANNED")
    if latest is None or latest.metadata.get("turn_number") not in (None, number):
        return None  # The usual case needs no further query.
    planned: list[str] = []
    plans = ledger.query(
        session_id=session_id, event_type="WO_PLANNED", order="desc", with_content=False
    )
    for entry in filter(is_authentic, plans):
        of_turn = entry.metadata.get("turn_number")
        if of_turn == number:
            planned.append(entry.id)
        elif of_turn is not None:  # Standalone orders have no turn number.
            break
    if not planned:
        return None
    orders = [_recorded(ledger, ledger.read(entry_id)) for entry_id in reversed(planned)]
    said = (recorded.order.input_context.get("user_input") for recorded in orders)
    message = next(filter(None, said), "")
    gates = (
        gate
        for recorded in orders
        for gate in ledger.query(work_order_id=recorded.order.wo_id, event_type="WO_QUALITY_GATE")
    )
    verdicts = {gate.submission_id: reasons_of(gate) for gate in filter(is_authentic, gates)}
    return UnfinishedTurn(
        number,
        "" if isinstance(message, Erased) else str(message),
        tuple(orders),
        verdicts,
        any(isinstance(recorded.planned.metadata["input_context"], Erased) for recorded in orders),
    )


def _recorded(ledger: LedgerPort, planned: LedgerEntry) -> RecordedOrder:
    order = recorded_order(ledger, planned.submission_id, allow_erased=True)
    assert order is not None  # The ledger contains its plan.
    data = planned.metadata
    requests, idle = _waiting(ledger, order)
    return RecordedOrder(
        order,
        str(data.get("step", "")),
        int(data.get("attempt", 1)),
        tuple(data.get("depends_on", ())),
        planned,
        requests,
        idle,
    )


def _waiting(ledger: LedgerPort, order: WorkOrder) -> tuple[tuple[LedgerEntry, ...], bool]:
    """Return the undecided requests of an order, and True if it waits for nothing else."""
    if order.state is not WorkOrderState.EXECUTING:
        return (), order.state is not WorkOrderState.DISPATCHED
    history = OrderHistory(ledger, order.wo_id, order.session_id)
    requests, idle = history.undecided, history.untouched
    for session_id in map(sub_session_id, history.open_sub_agents):
        turns = SessionManager(ledger, session_id).turn_count
        inner = unfinished_turn(ledger, session_id, turns)
        requests += inner.requests if inner else ()
        idle = idle and inner is not None and inner.idle
    return tuple(requests), idle and bool(requests)


def reasons_of(gate: LedgerEntry) -> tuple[str, ...]:
    """Return the reasons of a rejecting ``WO_QUALITY_GATE``; empty if it accepts.

    Erased reasons are replaced by a sentence that says so.

    Args:
        gate: the entry, with its content.
    """
    recorded = gate.metadata["reasons"]
    if isinstance(recorded, Erased):
        return () if gate.metadata["verdict"] == "accept" else ("its reasons were erased",)
    return tuple(map(str, recorded))
