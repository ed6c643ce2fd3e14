"""The work order: its state machine, its usage, and the principal for whom it works."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any

from remit.kernel.budget_values import BudgetScope
from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.exchange import MAX_ID_CHARS
from remit.ledger import LedgerEntry, LedgerPort, require_plain_text


class WorkOrderState(StrEnum):
    """The state of an order.

    Attributes:
        PLANNED: recorded, not started.
        DISPATCHED: given to the worker.
        EXECUTING: taken up by the worker; also while the order waits for a person.
        COMPLETED: ended with a result.
        FAILED: ended with an error; also after a cancellation.
    """

    PLANNED = "planned"
    DISPATCHED = "dispatched"
    EXECUTING = "executing"
    COMPLETED = "completed"
    FAILED = "failed"


class WorkOrderType(StrEnum):
    """The kind of work of an order.

    A ``tool_call`` runs the tools that its input names, without a model. Orders of the other kinds
    call a model under their contract.

    Attributes:
        CLASSIFY: finds out what a message asks for, before the supervisor plans.
        TOOL_CALL: runs tools without a model.
        SYNTHESIZE: writes the answer.
        EXECUTE: does a step that is described in words; the default of a plan's step.
    """

    CLASSIFY = "classify"
    TOOL_CALL = "tool_call"
    SYNTHESIZE = "synthesize"
    EXECUTE = "execute"


_TRANSITIONS: Mapping[tuple[WorkOrderState, WorkOrderState], str] = {
    (WorkOrderState.PLANNED, WorkOrderState.DISPATCHED): "ho2",
    (WorkOrderState.PLANNED, WorkOrderState.FAILED): "ho2",
    (WorkOrderState.DISPATCHED, WorkOrderState.EXECUTING): "ho1",
    (WorkOrderState.EXECUTING, WorkOrderState.COMPLETED): "ho1",
    (WorkOrderState.EXECUTING, WorkOrderState.FAILED): "ho1",
}
"""All transitions with the tier that makes each: ``ho2``, the supervisor, or ``ho1``, the worker.
"""


class OrderRecordError(RemitError, ValueError):
    """An order cannot make a transition, or the ledger's entries do not form an order.

    Nothing was written.
    """


@dataclass(frozen=True, slots=True)
class WorkOrderConstraints:
    """Limits of an order. None and 0 mean that only the configuration limits it.

    Immutable.

    Attributes:
        prompt_contract_id: contract of the order's prompts.
        token_budget: largest sum of tokens.
        usd_budget: largest cost, US dollars.
        turn_limit: largest number of model calls.
        timeout_seconds: longest duration.
        tools_allowed: ids of the tools that the model may call; empty for none.
        tools_requiring_approval: ids of the tools that need a person's approval.
        domain_tags: tags for the router.
        output_schema: JSON Schema of the answer, in place of the contract's. The result then
            contains ``output`` as well as ``text`` and ``tool_results``.
        set_aside: names that the session excludes: models (``provider/model``), which the fallback
            replaces; tools, which the model is not offered unless the order needs them; contract
            versions (``contract@version``), of which the newest older one that allows no more
            replaces it, if there is one.
    """

    prompt_contract_id: str = ""
    token_budget: int = 0
    usd_budget: float | None = None
    turn_limit: int = 0
    timeout_seconds: float = 0.0
    tools_allowed: tuple[str, ...] = ()
    tools_requiring_approval: tuple[str, ...] = ()
    domain_tags: tuple[str, ...] = ()
    output_schema: Mapping[str, Any] | None = None
    set_aside: tuple[str, ...] = ()

    @property
    def models_aside(self) -> tuple[str, ...]:
        """The excluded models (``provider/model``), without excluded tools and contracts."""
        aside = self.set_aside
        return aside and tuple(name for name in aside if "/" in name)


@dataclass(frozen=True, slots=True)
class WorkOrderCost:
    """Usage of an order so far.

    Immutable.

    Attributes:
        input_tokens: tokens sent to models.
        output_tokens: tokens received.
        total_tokens: their sum.
        llm_calls: number of model calls.
        tool_calls: number of tool calls.
        elapsed_ms: duration, milliseconds.
        cost_usd: price in US dollars; None if it is unknown, or nothing with a price was used.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    llm_calls: int = 0
    tool_calls: int = 0
    elapsed_ms: float = 0.0
    cost_usd: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the usage by attribute, as plain data; ``elapsed_ms`` is in milliseconds."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def sum(cls, costs: Iterable[WorkOrderCost]) -> WorkOrderCost:
        """Return the sum of costs.

        ``cost_usd`` is None if no order used a model or a priced tool, or if one used models at an
        unknown price. Without costs all other numbers are 0.

        Args:
            costs: costs of orders.
        """
        counts, elapsed_ms, usd, known, used = [0] * 5, 0.0, Decimal(0), True, False
        for cost in costs:
            for index, name in enumerate(cls.__slots__[:5]):
                counts[index] += getattr(cost, name)
            elapsed_ms += cost.elapsed_ms
            if cost.llm_calls or cost.total_tokens or cost.cost_usd is not None:
                used, known = True, known and cost.cost_usd is not None
                usd += Decimal(str(cost.cost_usd or 0))
        total = cls(*counts)
        cost_usd = float(usd) if used and known else None
        return dataclasses.replace(total, elapsed_ms=round(elapsed_ms, 3), cost_usd=cost_usd)


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """A piece of delegated work. Immutable: a transition returns a new object.

    :meth:`moved_to` is the only way to another state.

    Attributes:
        wo_id: id of the order.
        session_id: session of the order.
        wo_type: kind of work.
        tier_target: tier that does the work.
        parent_wo_id: order that this one is a part of; None without one.
        state: present state.
        created_at: time of the plan, ISO 8601.
        created_by: agent that planned it.
        input_context: ``user_input``, ``prior_results``, ``assembled_context`` and other values
            that the contract's template needs.
        constraints: limits.
        acceptance_criteria: conditions that the result must meet.
        output_result: result of a completed order; None otherwise.
        error: ``{"code": …, "message": …}`` of a failed order; None otherwise.
        completed_at: time of the end, ISO 8601; None before.
        cost: usage.
        waiting_for: ids of the ``APPROVAL_REQUESTED`` entries that an order in state ``executing``
            waits for.
        met_fault: True if this process saw a model that did not answer, or a tool that failed by
            its own fault.
        has_unknown: True if this process saw a tool call, its own or a sub-agent's, whose outcome
            may be unknown.
    """

    wo_id: str
    session_id: str
    wo_type: WorkOrderType
    tier_target: str = "ho1"
    parent_wo_id: str | None = None
    state: WorkOrderState = WorkOrderState.PLANNED
    created_at: str = ""
    created_by: str = ""
    input_context: Mapping[str, Any] = field(default_factory=dict)
    constraints: WorkOrderConstraints = field(default_factory=WorkOrderConstraints)
    acceptance_criteria: Mapping[str, Any] = field(default_factory=dict)
    output_result: Any = None
    error: Mapping[str, str] | None = None
    completed_at: str | None = None
    cost: WorkOrderCost = field(default_factory=WorkOrderCost)
    waiting_for: tuple[str, ...] = ()
    met_fault: bool = False
    has_unknown: bool = False

    @property
    def ended(self) -> bool:
        """True if the order is completed or failed."""
        return self.state in (WorkOrderState.COMPLETED, WorkOrderState.FAILED)

    @property
    def tool_results(self) -> list[Mapping[str, Any]]:
        """Results of the order's tools, from its result; empty without a result."""
        result = self.output_result
        return list(result.get("tool_results", ())) if isinstance(result, Mapping) else []

    def with_input(self, further: Mapping[str, Any]) -> WorkOrder:
        """Return the order with ``further`` merged into ``input_context``; later values win."""
        return dataclasses.replace(self, input_context={**self.input_context, **further})

    def moved_to(self, state: WorkOrderState, *, by: str, **changes: Any) -> WorkOrder:
        """Return the order in its next state. Nothing is written.

        Args:
            state: the next state.
            by: the tier that makes the transition: ``ho1`` or ``ho2``.
            changes: new values of other fields.

        Raises:
            OrderRecordError: the state machine does not allow the transition, or not to
                ``by``.
        """
        tier = _TRANSITIONS.get((self.state, state))
        if tier is None:
            further = sorted(after for before, after in _TRANSITIONS if before is self.state)
            raise OrderRecordError(
                f"{self.wo_id} is {self.state} and cannot become {state}.",
                next_step=f"From {self.state} it may become: "
                f"{', '.join(further) or 'nothing, it has ended'}.",
            )
        if tier != by:
            raise OrderRecordError(
                f"Only tier {tier} may take {self.wo_id} from {self.state} to {state}, not {by!r}."
            )
        return dataclasses.replace(self, state=state, **changes)


def work_order_id(session_id: str, sequence: int) -> str:
    """Return ``WO-{session_id}-{sequence}``, the sequence with at least three digits.

    Args:
        session_id: the order's session.
        sequence: number of the order in the session.
    """
    return f"WO-{session_id}-{sequence:03d}"


@dataclass(frozen=True, slots=True)
class Caller:
    """The tool call that a sub-agent's session answers.

    Immutable.

    Attributes:
        session_id: session of the calling agent.
        work_order_id: order that made the call.
        agent_id: calling agent.
        idempotency_key: key of the tool call.
    """

    session_id: str
    work_order_id: str
    agent_id: str
    idempotency_key: str

    def to_dict(self) -> dict[str, str]:
        """Return the caller in the form that ``SESSION_START`` records."""
        return asdict(self)

    @classmethod
    def of(cls, recorded: Any) -> Caller | None:
        """Return the caller from the ``caller`` field of a ``SESSION_START``.

        None if the field is no object; absent members become empty texts.

        Args:
            recorded: the field's value.
        """
        if not isinstance(recorded, Mapping):
            return None
        return cls(*(str(recorded.get(name, "")) for name in cls.__slots__))


@dataclass(frozen=True, slots=True)
class Principal:
    """The user, person and key that a session works for.

    Immutable.

    Raises:
        InvalidInputError: the user or the person is longer than an id may be, or contains
            characters that not every database stores.

    Attributes:
        user_id: user whose budget is charged; empty for none.
        subject_id: person whom the content is about, for erasure; empty for nobody.
        callers: the calls that the session is a part of, from its own caller outwards.
        key_id: virtual key whose limits apply; empty for none.
        team_id: team of that key.
        organisation_id: organisation of that key.
    """

    user_id: str = ""
    subject_id: str = ""
    callers: tuple[Caller, ...] = ()
    key_id: str = ""
    team_id: str = ""
    organisation_id: str = ""

    def __post_init__(self) -> None:
        for name, value in (("user", self.user_id), ("subject_id", self.subject_id)):
            require_plain_text(name, value)
            if len(value) > MAX_ID_CHARS:
                raise InvalidInputError(
                    f"{name} has {len(value):,} characters; an id has at most {MAX_ID_CHARS}."
                )

    @property
    def charged_to(self) -> tuple[str, ...]:
        """Accounts that calls are charged to, in addition to the session's.

        They are the key's, and then those of the sessions, orders and agents of the callers,
        outermost first.

        Raises:
            InvalidInputError: an id of a recorded caller cannot name an account.
        """
        own = BudgetScope(key_id=self.key_id).path if self.key_id else ()
        return own + tuple(
            key
            for caller in reversed(self.callers)
            for key in BudgetScope(caller.session_id, caller.work_order_id, caller.agent_id).path
        )


NOBODY = Principal()
"""Of a session that works for anyone who talks to it."""


def sub_session_id(idempotency_key: str) -> str:
    """Return the id of the session that answers a tool call: ``SES-`` and 16 characters.

    Equal keys give equal ids.

    Args:
        idempotency_key: idempotency key of the tool call.
    """
    digest = hashlib.sha256(idempotency_key.encode()).digest()
    return f"SES-{base64.b32encode(digest[:10]).decode()}"


def callers_of(ledger: LedgerPort, session_id: str) -> tuple[Caller, ...]:
    """Return the calls that a recorded session is a part of, from its own caller outwards.

    Empty for a session that no agent called.

    Args:
        ledger: contains the sessions.
        session_id: the session.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    found: list[Caller] = []
    while (start := start_of(ledger, session_id)) is not None:
        caller = Caller.of(start.metadata.get("caller"))
        if caller is None or caller in found:
            break
        found.append(caller)
        session_id = caller.session_id
    return tuple(found)


def start_of(ledger: LedgerPort, session_id: str) -> LedgerEntry | None:
    """Return a session's first ``SESSION_START``, without content; None if there is none.

    Args:
        ledger: contains the session.
        session_id: the session.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    found = ledger.query(
        session_id=session_id, event_type="SESSION_START", limit=1, with_content=False
    )
    return next(found, None)
