"""What the supervisor of one session works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from remit.agents.sessions import SessionManager
from remit.agents.supervisor.attention import Candidate
from remit.agents.supervisor.journal import SupervisorJournal
from remit.agents.supervisor.plan import Planner, PlanStep
from remit.agents.supervisor.quality import QualityGate
from remit.agents.worker import HO1Executor
from remit.kernel.exchange import GatewayPort
from remit.kernel.settings import SupervisorSettings

__all__ = ["ContextPort", "Lease", "LeasePort", "Services"]


class Lease(Protocol):
    """The right to work on something alone, for as long as it is renewed."""

    @property
    def stop_requested(self) -> bool:
        """Whether the holder was asked to stop."""
        ...

    def check(self) -> None:
        """Raise when the lease is no longer held; called before what cannot be undone."""
        ...


class LeasePort(Protocol):
    """Makes sure that only one process works on something."""

    def hold(
        self, name: str, *, wait_s: float, on_stop: Callable[[], None] | None = None
    ) -> AbstractAsyncContextManager[Lease]:
        """Hold ``name`` while the block runs."""
        ...


class ContextPort(Protocol):
    """What the tier above pushes down: the supervisor itself may not read it (SPEC 2)."""

    def pushed(self, session_id: str) -> Sequence[Candidate]:
        """What other sessions and adopted policy say that may matter now."""
        ...

    def required(self, contract_id: str, session_id: str) -> Mapping[str, Any]:
        """What a contract's ``required_context`` asks for; empty when it asks for nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """What a supervisor uses; see :class:`remit.agents.supervisor.HO2Supervisor`."""

    worker: HO1Executor
    journal: SupervisorJournal
    session: SessionManager
    config: SupervisorSettings
    gate: QualityGate
    answer: PlanStep
    context: ContextPort | None
    fallback: GatewayPort | None
    planner: Planner | None
    model: tuple[str, str] | None
    repeatable: Callable[[str], bool]
    work_order_tokens: int
    agent_class: str
