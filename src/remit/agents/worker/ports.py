"""What the worker needs of others, all of it injected; and what one execution shares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from remit.agents.tools import Tool, ToolCall, ToolResult
from remit.agents.workorders import EventSink, Journal, OrderHistory, WorkOrder
from remit.contracts import PromptContract, PromptPack
from remit.kernel.budget import BudgetCheckResult, BudgetLimits, BudgetScope
from remit.kernel.exchange import GatewayPort
from remit.kernel.settings import WorkerSettings
from remit.ledger import LedgerPort

__all__ = ["BudgetPort", "ContractPort", "Execution", "Services", "ToolPort"]


class BudgetPort(Protocol):
    """The worker asks and allocates; only the gateway debits."""

    def allocate_soon(self, scope: BudgetScope, *, limits: BudgetLimits) -> asyncio.Future[Any]:
        """Set the limits of the narrowest scope named, before whatever is written later."""
        ...

    def check(self, scope: BudgetScope) -> BudgetCheckResult:
        """Whether the scope's request would be allowed."""
        ...


class ContractPort(Protocol):
    """Finds contracts and packs."""

    def load(self, contract_id: str, version: str | None = None) -> PromptContract:
        """The newest version of a contract, or the one asked for."""
        ...

    def load_pack(self, prompt_pack_id: str) -> PromptPack:
        """The pack with that id."""
        ...


class ToolPort(Protocol):
    """Knows tools and runs them."""

    def tools(self, tool_ids: Iterable[str]) -> list[Tool]:
        """The tools with these ids."""
        ...

    async def aexecute(
        self, tool_id: str, arguments: Mapping[str, Any], *, call: ToolCall | None = None
    ) -> ToolResult:
        """Run one tool; never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """What a worker uses; see :class:`remit.agents.worker.HO1Executor`."""

    gateway: GatewayPort
    ledger: LedgerPort
    budgeter: BudgetPort | None
    tools: ToolPort
    contracts: ContractPort
    config: WorkerSettings
    agent_id: str
    model: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of one order.

    Attributes:
        journal: where its steps are recorded.
        history: what was on record of the order when it was taken up.
        guard: called before a step that cannot be undone; raises
            :class:`~remit.agents.worker.errors.WorkLostError` when the order is no longer this
            worker's.
        on_event: receives text and tool events.
    """

    services: Services
    order: WorkOrder
    journal: Journal
    history: OrderHistory
    guard: Callable[[], None]
    on_event: EventSink | None
