"""The work order and its transitions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any

from remit.kernel.errors import RemitError


class WorkOrderState(StrEnum):
    """The state of an order."""

    PLANNED = "planned"
    DISPATCHED = "dispatched"
    EXECUTING = "executing"
    COMPLETED = "completed"
    FAILED = "failed"


class WorkOrderType(StrEnum):
    """What kind of work it is."""

    CLASSIFY = "classify"
    TOOL_CALL = "tool_call"
    SYNTHESIZE = "synthesize"
    EXECUTE = "execute"


class Actor(StrEnum):
    """Who may take an order from one state to the next."""

    SUPERVISOR = "supervisor"
    WORKER = "worker"


_TRANSITIONS: Mapping[tuple[WorkOrderState, WorkOrderState], Actor] = {
    (WorkOrderState.PLANNED, WorkOrderState.DISPATCHED): Actor.SUPERVISOR,
    (WorkOrderState.PLANNED, WorkOrderState.FAILED): Actor.SUPERVISOR,
    (WorkOrderState.DISPATCHED, WorkOrderState.EXECUTING): Actor.WORKER,
    (WorkOrderState.EXECUTING, WorkOrderState.COMPLETED): Actor.WORKER,
    (WorkOrderState.EXECUTING, WorkOrderState.FAILED): Actor.WORKER,
}
"""Every transition there is, and who makes it."""


class IllegalTransitionError(RemitError, ValueError):
    """The state machine has no such transition, or not by that actor."""


@dataclass(frozen=True, slots=True)
class WorkOrderConstraints:
    """What an order may use. ``None`` and 0 mean that only the configuration limits it.

    Attributes:
        output_schema: JSON Schema that the answer is held to, instead of its contract's; the
            result then has it as ``output``, beside ``text`` and ``tool_results``.
        set_aside: what its session has set aside: models, ``provider/model``, that are passed over
            for those named after them; tools, which the model is not offered; contract versions,
            ``contract@version``.
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
        """The models among what is set aside."""
        aside = self.set_aside
        return aside and tuple(name for name in aside if "/" in name)


@dataclass(frozen=True, slots=True)
class WorkOrderCost:
    """What an order has used so far."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    llm_calls: int = 0
    tool_calls: int = 0
    elapsed_ms: float = 0.0
    cost_usd: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def sum(cls, costs: Iterable[WorkOrderCost]) -> WorkOrderCost:
        """All of them together. One unknown price of something used makes the sum unknown."""
        listed = list(costs)
        used = [cost for cost in listed if cost.llm_calls or cost.total_tokens]
        prices = [cost.cost_usd for cost in used if cost.cost_usd is not None]
        known = used and len(prices) == len(used)
        return cls(
            sum(cost.input_tokens for cost in listed),
            sum(cost.output_tokens for cost in listed),
            sum(cost.total_tokens for cost in listed),
            sum(cost.llm_calls for cost in listed),
            sum(cost.tool_calls for cost in listed),
            round(sum(cost.elapsed_ms for cost in listed), 3),
            float(sum(Decimal(str(price)) for price in prices)) if known else None,
        )


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """One piece of delegated work. Immutable: a transition gives a new value.

    Attributes:
        input_context: ``user_input``, ``prior_results``, ``assembled_context`` and what else
            the contract's template wants.
        error: ``{"code": …, "message": …}`` of a failed order.
        waiting_for: ids of the ``APPROVAL_REQUESTED`` entries that an order in state
            ``executing`` waits for.
        met_fault: whether a model did not answer it, or a tool failed by its own doing, as far as
            this process has seen.
        has_unknown: whether the outcome of a tool's call, or of one in a sub-agent, may be unknown,
            as far as this process has seen.
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
        """Whether it is completed or failed."""
        return self.state in (WorkOrderState.COMPLETED, WorkOrderState.FAILED)

    @property
    def tool_results(self) -> list[Mapping[str, Any]]:
        """What its tools gave, as its result says."""
        result = self.output_result
        return list(result.get("tool_results", ())) if isinstance(result, Mapping) else []

    def with_input(self, further: Mapping[str, Any]) -> WorkOrder:
        """The order with more in its ``input_context``."""
        return dataclasses.replace(self, input_context={**self.input_context, **further})

    def moved_to(self, state: WorkOrderState, *, by: Actor, **changes: Any) -> WorkOrder:
        """The order in its next state, taken there by ``by``, with ``changes`` to other fields.

        Raises:
            IllegalTransitionError: the state machine has no such step, or it is another's.
        """
        actor = _TRANSITIONS.get((self.state, state))
        if actor is None:
            further = sorted(after for before, after in _TRANSITIONS if before is self.state)
            raise IllegalTransitionError(
                f"{self.wo_id} is {self.state} and cannot become {state}.",
                next_step=f"From {self.state} it may become: "
                f"{', '.join(further) or 'nothing, it has ended'}.",
            )
        if actor is not by:
            raise IllegalTransitionError(
                f"Only the {actor} may take {self.wo_id} from {self.state} to {state}, "
                f"not the {by}."
            )
        return dataclasses.replace(self, state=state, **changes)


def work_order_id(session_id: str, sequence: int) -> str:
    """``WO-{session_id}-{seq:03d}``."""
    return f"WO-{session_id}-{sequence:03d}"
