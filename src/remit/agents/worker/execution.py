"""What one execution of one order works with, and how it can stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from remit.agents.tools import ToolDispatcher
from remit.agents.workorders import (
    NOBODY,
    EventSink,
    Journal,
    OrderHistory,
    Principal,
    TurnEvent,
    Usage,
    WorkOrder,
    WriteBuffer,
)
from remit.contracts import ContractLoader
from remit.kernel.budget import BudgetCheckResult, BudgetLimits, BudgetScope
from remit.kernel.errors import RemitError
from remit.kernel.exchange import GatewayPort
from remit.kernel.settings import WorkerSettings
from remit.ledger import LedgerPort, ScopedLedger, Transaction


class WorkFailedError(RemitError):
    """The order cannot be completed; ``code`` is the order's, or the gateway's own."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class WorkLostError(RemitError):
    """Somebody else may be working on the order: this worker must not go on."""


class WorkParkedError(RemitError):
    """The order waits for a person to decide the requests ``request_ids``."""

    def __init__(self, request_ids: tuple[str, ...]) -> None:
        super().__init__(
            f"Waiting for {', '.join(request_ids)}.",
            next_step="`remit approve` lists what waits, and decides it.",
        )
        self.request_ids = request_ids


class BudgetPort(Protocol):
    """The worker asks and allocates; what tools cost is charged as they begin."""

    def allocation(
        self, scope: BudgetScope, limits: BudgetLimits, by: str
    ) -> Callable[[Transaction], str]:
        """Sets the limits of the narrowest scope named, in a transaction; ``by`` whom."""
        ...

    def check(self, scope: BudgetScope) -> BudgetCheckResult:
        """Whether the scope's request would be allowed."""
        ...

    def paid(
        self,
        scope: BudgetScope,
        nano: int,
        reason: str,
        then: Callable[[Transaction], str],
        *,
        enforce: bool,
    ) -> Callable[[Transaction], str]:
        """Charges a sum for what ``then`` does in the same transaction; gives why it must not."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """What a worker uses; see :class:`remit.agents.worker.HO1Executor`."""

    gateway: GatewayPort
    ledger: LedgerPort
    budgeter: BudgetPort | None
    tools: ToolDispatcher
    contracts: ContractLoader
    config: WorkerSettings
    agent_id: str
    agent_class: str
    model: tuple[str, str] | None
    session_usage: Callable[[str], Usage]
    on_request: Callable[[str], None]
    enforce: bool
    context_tokens: int | None


class Execution:
    """One execution of one order, which is in state ``executing``.

    Args:
        guard: raises when the order is no longer this worker's.
        fresh: nothing is on record of the order but its plan; the caller has looked.
        buffer: where the caller's writes are held, to be followed by the order's.
        check: see :meth:`remit.agents.worker.HO1Executor.aexecute`.
        principal: for whom the order's session works.
    """

    def __init__(
        self,
        services: Services,
        order: WorkOrder,
        on_event: EventSink | None = None,
        guard: Callable[[], None] | None = None,
        *,
        fresh: bool = False,
        buffer: WriteBuffer | None = None,
        check: Callable[[Any], str] | None = None,
        principal: Principal = NOBODY,
    ) -> None:
        self.check_output = check
        self.services = services
        self.principal = principal
        self.order = order
        self.on_event = on_event
        self._guard = guard
        ledger = ScopedLedger(services.ledger, tier="ho1", work_order_id=order.wo_id)
        self.journal = Journal(
            ledger,
            "ho1",
            order.session_id,
            services.agent_id,
            services.agent_class,
            work_order_id=order.wo_id,
            buffer=buffer,
            subject_id=principal.subject_id,
        )
        self.history = OrderHistory(ledger, order.wo_id, order.session_id, fresh=fresh).load()

    @property
    def scope(self) -> BudgetScope:
        """Whose budgets what the order uses counts in."""
        return BudgetScope(
            self.order.session_id, self.order.wo_id, self.services.agent_id,
            user_id=self.principal.user_id or None, team_id=self.principal.team_id or None,
            organisation_id=self.principal.organisation_id or None,
            charged_to=self.principal.charged_to,
        )  # fmt: skip

    def check(self) -> None:
        """Raise :class:`WorkLostError` when the order is no longer this worker's."""
        if self._guard is None:
            return
        try:
            self._guard()
        except RemitError as error:
            raise WorkLostError(error.message, next_step=error.next_step) from error

    def emit(self, event: TurnEvent) -> None:
        """Pass an event to the listener, if there is one."""
        if self.on_event is not None:
            self.on_event(event)
