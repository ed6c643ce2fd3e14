"""An agent: who answers, under which contract, with which tools, within which limits."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from remit.blocking import run_blocking
from remit.budget import BudgetLimits, BudgetScope, TokenBudgeter, nano_of
from remit.config import Settings, SupervisorSettings
from remit.contracts import ContractLoader
from remit.exchange import GatewayPort
from remit.leases import LeaseOffice
from remit.ledger import LedgerClient
from remit.runtime.conversation import Conversation
from remit.runtime.pushing import KernelContext
from remit.sessions import SessionManager
from remit.supervisor import (
    HO2Supervisor,
    Planner,
    PlanStep,
    SingleOrders,
    SupervisorJournal,
    TurnResult,
    consolidate,
)
from remit.tools import ToolDispatcher
from remit.worker import HO1Executor
from remit.workorders import EventSink

__all__ = ["Agent", "AgentParts", "AgentShape"]


@dataclass(frozen=True, slots=True)
class AgentParts:
    """What the runtime gives an agent to work with."""

    settings: Settings
    ledger: LedgerClient
    gateway: GatewayPort
    budgeter: TokenBudgeter
    leases: LeaseOffice
    contracts: ContractLoader
    tools: ToolDispatcher
    context: KernelContext


@dataclass(frozen=True, slots=True)
class AgentShape:
    """What the agent's author decided."""

    agent_id: str
    agent_class: str
    answer: PlanStep
    supervisor: SupervisorSettings
    model: tuple[str, str] | None = None
    planner: Planner | None = None
    session_tokens: int | None = None
    session_usd: float | None = None


class Agent:
    """Made by :meth:`remit.Runtime.agent`. Holds no state of its own: sessions are in the ledger.

    Attributes:
        agent_id: its name on the record.
    """

    def __init__(self, parts: AgentParts, shape: AgentShape) -> None:
        self._parts = parts
        self._shape = shape
        self.agent_id = shape.agent_id
        settings = parts.settings
        self._worker = HO1Executor(
            parts.gateway,
            parts.ledger.scoped(tier="ho1"),
            parts.budgeter if settings.budget.mode != "off" else None,
            parts.tools,
            parts.contracts,
            settings.worker,
            model=shape.model,
        )

    def __repr__(self) -> str:
        return f"Agent({self.agent_id!r})"

    @property
    def tools(self) -> Sequence[str]:
        """Ids of the tools it may use."""
        return self._shape.answer.tools

    def session(
        self,
        session_id: str | None = None,
        *,
        tokens: int | None = None,
        usd: float | None = None,
    ) -> Conversation:
        """Begin a session, or go on with one.

        Args:
            session_id: the session to go on with; a new one when left out.
            tokens: most tokens of a new session; the agent's, else the configured limit.
            usd: most US dollars of a new session.

        Raises:
            SessionNotFoundError: the ledger has no such session.
        """
        parts, shape = self._parts, self._shape
        ledger = parts.ledger.scoped(tier="ho2")
        session = SessionManager(
            ledger, session_id, agent_id=shape.agent_id, agent_class=shape.agent_class
        )
        if session_id is None:
            session.start()
            self._allocate(session.session_id, tokens, usd)
        else:
            session.require()
        wait_s = parts.settings.leases.session_wait_s
        tokens_per_order = parts.settings.budget.work_order_tokens
        supervisor = HO2Supervisor(
            self._worker,
            ledger,
            session,
            shape.supervisor,
            parts.leases,
            session_wait_s=wait_s,
            answer=shape.answer,
            context=parts.context,
            fallback=parts.gateway,
            planner=shape.planner,
            work_order_tokens=tokens_per_order,
            agent_id=shape.agent_id,
            agent_class=shape.agent_class,
        )
        journal = SupervisorJournal(ledger, session.session_id, shape.agent_id, shape.agent_class)
        orders = SingleOrders(self._worker, journal, parts.leases, wait_s, tokens_per_order)
        ending = None
        if shape.supervisor.consolidate:
            turns = shape.supervisor.context_turns
            ending = functools.partial(consolidate, orders, journal, session, turns)
        return Conversation(session, supervisor, orders, shape.answer, parts.leases, ending)

    def run(self, message: str, *, on_event: EventSink | None = None) -> TurnResult:
        """One message, one answer, in a session of its own."""
        return run_blocking(self.arun(message, on_event=on_event))

    async def arun(self, message: str, *, on_event: EventSink | None = None) -> TurnResult:
        """:meth:`run` for callers with an event loop."""
        async with self.session() as session:
            return await session.aturn(message, on_event=on_event)

    def _allocate(self, session_id: str, tokens: int | None, usd: float | None) -> None:
        budget = self._parts.settings.budget
        most = tokens if tokens is not None else self._shape.session_tokens
        limit_usd = usd if usd is not None else self._shape.session_usd
        limits = BudgetLimits(
            tokens=(budget.session_tokens if most is None else most) or None,
            nano=None if limit_usd is None else nano_of(limit_usd),
            turns=budget.session_turns or None,
        )
        self._parts.budgeter.allocate(BudgetScope(session_id), limits=limits)
