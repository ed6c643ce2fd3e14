"""What the supervisor of one session works with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from remit.agents.outputs import OutputType
from remit.agents.sessions import SessionManager
from remit.agents.supervisor.aside import AsidePolicy, SetAside
from remit.agents.supervisor.attention import Candidate
from remit.agents.supervisor.classification import ClassificationRules
from remit.agents.supervisor.journal import SupervisorJournal
from remit.agents.supervisor.plan import Planner, PlanStep
from remit.agents.supervisor.quality import QualityGate
from remit.agents.tools import tool_id_of
from remit.agents.worker import HO1Executor
from remit.kernel.settings import SupervisorSettings
from remit.ledger import LedgerPort, Transaction


class Lease(Protocol):
    """The right to work on something alone, for as long as it is renewed."""

    released: bool

    @property
    def read(self) -> Any:
        """What was read in the transaction that took it."""
        ...

    @property
    def stop_requested(self) -> bool:
        """Whether the holder was asked to stop."""
        ...

    def release_in(self, tx: Transaction) -> None:
        """Release it in a transaction; set ``released`` when that is durable."""
        ...

    def check(self) -> None:
        """Raise when the lease is no longer held; called before what cannot be undone."""
        ...


class LeasePort(Protocol):
    """Makes sure that only one process works on something."""

    def hold(
        self,
        name: str,
        *,
        wait_s: float,
        on_stop: Callable[[], None] | None = None,
        read: Callable[[Transaction], Any] | None = None,
    ) -> AbstractAsyncContextManager[Lease]:
        """Hold ``name`` while the block runs; ``read`` is called as it is taken."""
        ...

    def request_stop(self, name: str) -> bool:
        """Ask the holder of ``name`` to stop; false when it is not held."""
        ...


class ContextPort(Protocol):
    """What the tier above pushes down: the supervisor itself may not read it."""

    def policies(self) -> Sequence[Candidate]:
        """What adopted policy says."""
        ...

    def threads(self, session_id: str) -> Sequence[Candidate]:
        """What other sessions left open that may matter now."""
        ...

    def required(self, contract_id: str, session_id: str) -> Mapping[str, Any]:
        """What a contract's ``required_context`` asks for; empty when it asks for nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Responder:
    """An agent as it answers a session: one of its own, or one that was handed over to it.

    Attributes:
        agent_id: its name on the record.
        answer: the step that answers, where there is no planner: contract, tools, limits.
        worker: executes orders, as that agent.
        context: what the tier above pushes down; nothing when left out.
        handoffs: to whom it can hand the session over, by the agent's id.
    """

    agent_id: str
    answer: PlanStep
    worker: HO1Executor
    context: ContextPort | None = None
    handoffs: Mapping[str, Responder] = field(default_factory=dict)

    @property
    def tool_id(self) -> str:
        """The tool with which a model hands over to it."""
        return tool_id_of(f"transfer_to_{self.agent_id}")


@dataclass(frozen=True, kw_only=True)
class Services:
    """What the supervisor of one session works with.

    Attributes:
        agent: whose session it is.
        ledger: a handle of tier ``ho2``.
        session: the conversation.
        config: how turns are planned and checked.
        leases: see to it that one process at a time works on the session, or on an order.
        wait_s: how long to wait for another process that works on it.
        output: the type of its answers; text, or what its contract says, when left out.
        planner: makes the plan of each turn instead; its steps may use no other tools.
        model: provider and model of the agent, where they are not the root's default.
        work_order_tokens: token budget of an order whose step names none; 0 for none.
        agent_class: of what class the agent is.
        next_best: names the models to ask in place of a ``provider/model``, the best first.
        aside_policy: gives when something that fails is set aside; asked only where it does.
        rules: reads by which rules a classification is used; asked only with one.
        starting: waits for the write that begins the session, where it is still under way.
    """

    agent: Responder
    ledger: LedgerPort
    session: SessionManager
    config: SupervisorSettings
    leases: LeasePort
    wait_s: float
    output: OutputType[Any] | None = None
    planner: Planner | None = None
    model: tuple[str, str] | None = None
    work_order_tokens: int = 0
    agent_class: str = "ADMIN"
    starting: Callable[[], Awaitable[None]] | None = None
    next_best: Callable[[str], Sequence[str]]
    aside_policy: Callable[[], AsidePolicy]
    rules: Callable[[], ClassificationRules]

    @cached_property
    def journal(self) -> SupervisorJournal:
        """The journal of the session's turns."""
        return self.new_journal()

    @cached_property
    def gate(self) -> QualityGate:
        """Whether an answer may be delivered."""
        return QualityGate(self.config.error_markers, self.config.claim_patterns)

    @cached_property
    def aside(self) -> SetAside:
        """What the session has set aside."""
        next_best = {
            "model": lambda name, _: self.next_best(name),
            "tool": self._tools_instead,
            "contract": self.agent.worker.versions_before,
        }
        return SetAside(self.journal, next_best, self.aside_policy, self.model)

    def _tools_instead(self, tool_id: str, _: Collection[str]) -> Sequence[str]:
        """The tools that the policy names for another and that the agent may use anyway."""
        named = self.aside_policy().tool_fallbacks.get(tool_id, ())
        return [one for one in named if one in self.agent.answer.tools]

    def new_journal(self) -> SupervisorJournal:
        """Another journal of the session, for work beside its turns."""
        return SupervisorJournal(
            self.ledger,
            self.session.session_id,
            self.agent.agent_id,
            self.agent_class,
            self.session.principal.subject_id,
        )

    @asynccontextmanager
    async def alone(
        self,
        name: str,
        on_stop: Callable[[], None] | None = None,
        read: Callable[[Transaction], Any] | None = None,
    ) -> AsyncIterator[Lease]:
        """Hold the lease ``name``, once the session has begun."""
        async with self.leases.hold(name, wait_s=self.wait_s, on_stop=on_stop, read=read) as lease:
            if self.starting is not None:
                await self.starting()  # the lease was taken behind it
            yield lease
