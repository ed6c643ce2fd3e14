"""The state of one execution of a work order, and the errors that stop it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from remit.agents.workorders import (
    NOBODY,
    EventSink,
    Journal,
    OrderHistory,
    Principal,
    TurnEvent,
    WorkOrder,
    WriteBuffer,
)
from remit.kernel.budget import BudgetCheckResult, BudgetLimits, BudgetScope
from remit.kernel.errors import RemitError
from remit.ledger import ScopedLedger, Transaction

if TYPE_CHECKING:
    from remit.agents.worker.executor import HO1Executor


class WorkFailedError(RemitError):
    """A failure that ends the order.

    Attributes:
        code: the worker's or the gateway's error code, as ``WO_FAILED`` records it.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class WorkParkedError(RemitError):
    """The order waits for a person's decision.

    Attributes:
        request_ids: ids of the ``APPROVAL_REQUESTED`` entries.
    """

    def __init__(self, request_ids: tuple[str, ...]) -> None:
        super().__init__(
            f"Waiting for {', '.join(request_ids)}.",
            next_step="`remit approve` lists what waits, and decides it.",
        )
        self.request_ids = request_ids


class BudgetPort(Protocol):
    """The part of a budgeter that the worker uses."""

    def allocation(
        self, scope: BudgetScope, limits: BudgetLimits, by: str
    ) -> Callable[[Transaction], str]:
        """Return a function that sets the limits of a scope in a transaction.

        Args:
            scope: the budgets.
            limits: the limits to set.
            by: recorded as the allocating agent.
        """
        ...

    def check(self, scope: BudgetScope) -> BudgetCheckResult:
        """Return whether a request of the scope would be allowed, and what remains."""
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
        """Return a function that charges a sum and runs ``then`` in the same transaction.

        The function returns why the action is refused, by the budgets or by ``then``; empty if it
        is not.

        Args:
            scope: the budgets.
            nano: the sum, in billionths of a US dollar.
            reason: recorded with the charge.
            then: the action that is paid for.
            enforce: True to refuse an action that the budgets cannot pay.
        """
        ...


class Execution:
    """The execution of an order in state ``executing``.

    Args:
        services: the worker.
        order: the order.
        on_event: receives text and tool events; None for no listener.
        guard: raises if the order is no longer this worker's; None for no check.
        fresh: True if the caller has seen that nothing but the plan is recorded.
        buffer: holds the caller's unwritten entries; the order's entries follow them. None for a
            new one.
        check: see :meth:`remit.agents.worker.HO1Executor.aexecute`.
        principal: the user, key and team on whose behalf the session works.

    Attributes:
        is_lost: True once ``guard`` has raised: the order is another worker's.
    """

    def __init__(
        self,
        services: HO1Executor,
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
        self.is_lost = False
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
        """The budgets to which the order's usage is charged."""
        return BudgetScope(
            self.order.session_id, self.order.wo_id, self.services.agent_id,
            user_id=self.principal.user_id or None, team_id=self.principal.team_id or None,
            organisation_id=self.principal.organisation_id or None,
            charged_to=self.principal.charged_to,
        )  # fmt: skip

    def check(self) -> None:
        """Raise the guard's error if the order is no longer this worker's.

        Sets ``is_lost`` then. Does nothing without a guard.
        """
        if self._guard is None:
            return
        try:
            self._guard()
        except RemitError:
            self.is_lost = True
            raise

    def emit(self, event: TurnEvent) -> None:
        """Pass an event to the listener, if there is one.

        Args:
            event: an event of the turn; an error of the listener is raised.
        """
        if self.on_event is not None:
            self.on_event(event)
