"""The collaborators of one session's supervisor: ports, settings, agents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from remit.agents.output_type import OutputType
from remit.agents.sessions import SessionManager
from remit.agents.supervisor.attention import Candidate
from remit.agents.supervisor.entries import SupervisorJournal
from remit.agents.supervisor.operational_loop import Exclusions
from remit.agents.supervisor.plan import ClassificationRules, Plan, Planner, PlanStep
from remit.agents.supervisor.quality_gate import QualityGate
from remit.agents.tools import tool_id_of
from remit.agents.worker import HO1Executor
from remit.contracts import PromptContract
from remit.kernel.settings import SupervisorSettings
from remit.ledger import LedgerPort, Transaction

if TYPE_CHECKING:
    from remit.gateway.leases import Lease, LeaseManager


class ContextPort(Protocol):
    """Context from the tier above, which the supervisor itself may not read.

    The methods return policies, threads of other sessions, and required context; all may be empty.
    """

    def policies(self) -> Sequence[Candidate]:
        """Return candidates of adopted policy, to be shown to the model as far as they fit.

        The list may be empty.

        Raises:
            ChangedFileError: the table of installed files cannot be read.
        """

    def threads(self, session_id: str) -> Sequence[Candidate]:
        """Return open threads of other sessions that may matter now.

        Args:
            session_id: the present session.

        Raises:
            LedgerError: the ledger cannot be read.
        """

    def required(self, contract: PromptContract, session_id: str) -> Mapping[str, Any]:
        """Return the context that a contract's ``required_context`` asks for; empty if none.

        The keys are ``ledger`` (rows), ``frameworks`` (text by id) and ``files`` (text by path).

        Args:
            contract: the contract.
            session_id: the session of the turn.

        Raises:
            ContractError: something that the contract requires is missing, refused or too large.
            LedgerError: the ledger cannot be read.
        """


@dataclass(frozen=True)
class Responder:
    """An agent that answers a session: the session's own agent, or a handover's target.

    Immutable.

    Attributes:
        agent_id: recorded name of the agent.
        answer: the answering step without a planner: contract, tools, limits.
        worker: runs orders as this agent.
        context: context from the tier above; None for none.
        handoffs: agents to which it can hand over, keyed by agent id.
    """

    agent_id: str
    answer: PlanStep
    worker: HO1Executor
    context: ContextPort | None = None
    handoffs: Mapping[str, Responder] = field(default_factory=dict)

    @property
    def tool_id(self) -> str:
        """Id of the tool with which a model hands over to the agent: ``transfer_to_`` and the
        agent's id.
        """
        return tool_id_of(f"transfer_to_{self.agent_id}")

    @cached_property
    def plan(self) -> Plan:
        """The plan of a turn without a planner: the answering step alone. Made once.

        Raises:
            InvalidInputError: the step's name is reserved, the step depends on another one, or no
                answer can meet its acceptance criteria.
        """
        return Plan((self.answer,))


@dataclass(frozen=True, kw_only=True)
class Services:
    """The collaborators of one session's supervisor.

    Immutable, apart from its journal, gate and exclusions, which are made at first use and shared
    by all turns of the session.

    Attributes:
        agent: agent of the session.
        ledger: a handle of tier ``ho2``.
        session: the conversation.
        config: settings of planning and checking.
        leases: ensure that one process at a time works on the session, or on an order.
        wait_s: longest wait for another process, seconds.
        output: type of the answers; None for text, or the data of the contract.
        planner: makes the plan of each turn, within the agent's tools; None for the default plan.
        model: provider and model of the agent; None for the root's default.
        work_order_tokens: token budget of an order whose step has none; 0 for no limit.
        agent_class: class of the agent.
        next_best: returns the fallbacks of a ``provider/model``, best first.
        exclusion_policy: returns the number of consecutive turns with a failure that excludes a
            name, and the substitutes of tools keyed by tool id; called only after a failure.
        rules: returns the rules for classifications; called only with a classification.
        starting: waits for the write that begins the session, while it is in progress; None for no
            wait.
    """

    agent: Responder
    ledger: LedgerPort
    session: SessionManager
    config: SupervisorSettings
    leases: LeaseManager
    wait_s: float
    output: OutputType[Any] | None = None
    planner: Planner | None = None
    model: tuple[str, str] | None = None
    work_order_tokens: int = 0
    agent_class: str = "ADMIN"
    starting: Callable[[], Awaitable[None]] | None = None
    next_best: Callable[[str], Sequence[str]]
    exclusion_policy: Callable[[], tuple[int, Mapping[str, Sequence[str]]]]
    rules: Callable[[], ClassificationRules]

    @cached_property
    def journal(self) -> SupervisorJournal:
        """The journal of the session's turns, with the entries that wait to be written."""
        return self.new_journal()

    @cached_property
    def gate(self) -> QualityGate:
        """The quality gate with the configured markers and claim patterns."""
        return QualityGate(self.config.error_markers, self.config.claim_patterns)

    @cached_property
    def exclusions(self) -> Exclusions:
        """The object that knows the models, tools and contract versions that the session excludes.

        Made at first use with the configured substitutes, without names: it reads no ledger yet.
        """
        substitutes = {
            "model": lambda name, _: self.next_best(name),
            "tool": self._tools_instead,
            "contract": self.agent.worker.versions_before,
        }
        return Exclusions(self.journal, substitutes, lambda: self.exclusion_policy()[0], self.model)

    def _tools_instead(self, tool_id: str, _: Collection[str]) -> Sequence[str]:
        """Return the policy's substitutes for a tool that the agent may use."""
        found = self.exclusion_policy()[1].get(tool_id, ())
        return [one for one in found if one in self.agent.answer.tools]

    def new_journal(self) -> SupervisorJournal:
        """Return another journal of the session's agent and data subject, with a buffer of its own.

        For work outside the session's turns. Nothing is written.
        """
        return SupervisorJournal(
            self.ledger,
            "ho2",
            self.session.session_id,
            self.agent.agent_id,
            self.agent_class,
            subject_id=self.session.principal.subject_id,
        )

    @asynccontextmanager
    async def alone(
        self,
        name: str,
        on_stop: Callable[[], None] | None = None,
        read: Callable[[Transaction], Any] | None = None,
    ) -> AsyncIterator[Lease]:
        """Yield the lease ``name``, held while the block runs.

        Once the lease is held, waits for the session to begin. The lease is released at the end; a
        lost lease does not end the block, see :meth:`Lease.check`. The block's errors are let
        through, and so are errors of the write that begins the session.

        Args:
            name: the lease, such as ``session:SES-…``.
            on_stop: called if somebody requests a stop; None to ignore requests.
            read: read in the transaction that takes the lease; its value is the lease's ``read``.
                None to read nothing.

        Raises:
            LeaseBusyError: another process holds the lease for longer than ``wait_s``.
            LedgerError: the ledger cannot be written.
        """
        async with self.leases.hold(name, wait_s=self.wait_s, on_stop=on_stop, read=read) as lease:
            if self.starting is not None:
                await self.starting()  # The lease may have been granted before the session began.
            yield lease
