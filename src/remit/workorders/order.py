"""The work order and the ways it may go."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from remit.errors import RemitError

__all__ = [
    "IllegalTransitionError",
    "WorkOrder",
    "WorkOrderConstraints",
    "WorkOrderCost",
    "WorkOrderState",
    "WorkOrderType",
    "work_order_id",
]


class WorkOrderState(StrEnum):
    """Where an order stands."""

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


_LEGAL: Mapping[WorkOrderState, frozenset[WorkOrderState]] = {
    WorkOrderState.PLANNED: frozenset({WorkOrderState.DISPATCHED, WorkOrderState.FAILED}),
    WorkOrderState.DISPATCHED: frozenset({WorkOrderState.EXECUTING}),
    WorkOrderState.EXECUTING: frozenset({WorkOrderState.COMPLETED, WorkOrderState.FAILED}),
    WorkOrderState.COMPLETED: frozenset(),
    WorkOrderState.FAILED: frozenset(),
}


class IllegalTransitionError(RemitError, ValueError):
    """An order was asked to go a way that does not exist."""


@dataclass(frozen=True, slots=True)
class WorkOrderConstraints:
    """What an order may use. ``None`` and 0 mean that only the configuration limits it."""

    prompt_contract_id: str = ""
    token_budget: int = 0
    usd_budget: float | None = None
    turn_limit: int = 0
    timeout_seconds: float = 0.0
    tools_allowed: tuple[str, ...] = ()
    tools_requiring_approval: tuple[str, ...] = ()
    domain_tags: tuple[str, ...] = ()


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

    def plus(self, other: WorkOrderCost) -> WorkOrderCost:
        """The sum; an unknown price stays unknown."""
        usd = None
        if self.cost_usd is not None and other.cost_usd is not None:
            usd = self.cost_usd + other.cost_usd
        return WorkOrderCost(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.total_tokens + other.total_tokens,
            self.llm_calls + other.llm_calls,
            self.tool_calls + other.tool_calls,
            round(self.elapsed_ms + other.elapsed_ms, 3),
            usd,
        )


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """One piece of delegated work. Immutable: a transition gives a new value.

    Attributes:
        input_context: ``user_input``, ``prior_results``, ``assembled_context`` and what else
            the contract's template wants.
        error: ``{"code": …, "message": …}`` of a failed order.
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

    def moved_to(self, state: WorkOrderState, **changes: Any) -> WorkOrder:
        """The order in its next state, with ``changes`` to other fields.

        Raises:
            IllegalTransitionError: the state machine has no such step.
        """
        if state not in _LEGAL[self.state]:
            raise IllegalTransitionError(
                f"{self.wo_id} is {self.state} and cannot become {state}.",
                next_step=f"From {self.state} it may become: "
                f"{', '.join(sorted(_LEGAL[self.state])) or 'nothing, it has ended'}.",
            )
        return dataclasses.replace(self, state=state, **changes)


def work_order_id(session_id: str, sequence: int) -> str:
    """``WO-{session_id}-{seq:03d}``."""
    return f"WO-{session_id}-{sequence:03d}"
