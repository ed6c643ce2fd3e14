"""The worker: starts or resumes a work order, limits its time, and records its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol

from remit.agents.tools import ToolDispatcher, ToolError, UnknownToolError
from remit.agents.worker.external_order import AttachedOrder
from remit.agents.worker.failures import WorkFailedError, WorkParkedError, failure_of
from remit.agents.worker.order_run import OrderRun
from remit.agents.workorders import (
    NOBODY,
    EventSink,
    Principal,
    Usage,
    WorkOrder,
    WorkOrderCost,
    WorkOrderState,
    WriteBuffer,
    moved_by,
)
from remit.contracts import ContractError, ContractLoader, PromptContract, PromptPack
from remit.kernel.budget_values import BudgetCheckResult, BudgetLimits, BudgetScope
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import GatewayPort
from remit.kernel.loops import run_blocking
from remit.kernel.settings import WorkerSettings
from remit.ledger import LedgerClosedError, LedgerEntry, LedgerPort, LedgerWriteError, Transaction

_CANCELLED = WorkFailedError("cancelled", "the order was cancelled")


class BudgetPort(Protocol):
    """The part of a budgeter that the worker uses.

    :meth:`allocation` and :meth:`paid` return functions that set an order's limits, or charge for a
    tool, in a transaction. :meth:`check` tells how many tokens remain.
    """

    def allocation(
        self, scope: BudgetScope, limits: BudgetLimits, by: str
    ) -> Callable[[Transaction], str]:
        """Return a function that sets the limits of a scope in a transaction.

        The function returns the id of the entry that it appends.

        Args:
            scope: the budgets.
            limits: all limits of the scope, which replace the earlier ones.
            by: recorded as the allocating agent.
        """

    def check(self, scope: BudgetScope) -> BudgetCheckResult:
        """Return whether a request of the scope would be allowed, and what remains.

        Nothing is reserved.

        Args:
            scope: the accounts of the request, with its tokens.
        """

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
        is not. A refused action is not charged.

        Args:
            scope: the budgets.
            nano: the sum, in billionths of a US dollar.
            reason: recorded with the charge.
            then: the action that is paid for.
            enforce: True to refuse an action that the budgets cannot pay.
        """


class HO1Executor:
    """The worker, which executes the work orders of an agent.

    :meth:`aexecute` runs an order, :meth:`attach` gives it to another program, :meth:`acancel` ends
    it. The object holds no state of orders and may execute several at once. Its attributes are the
    arguments; ``tools`` is the dispatcher, ``contracts`` the loader.

    Args:
        gateway: makes the model calls.
        ledger: a handle on the ledger; entries are written with tier ``ho1``.
        budgeter: checks and allocates budgets; None without budgets.
        tool_dispatcher: runs tools.
        contract_loader: finds contracts and prompt packs.
        config: limits for orders that set none.
        agent_id: the agent whose orders these are, in entries and budgets.
        agent_class: the agent's class, recorded if a contract names none.
        model: provider and model for contracts that fix none; None for the gateway's choice.
        session_usage: returns the usage of a sub-agent's session, by its id.
        on_request: called with the id of each new request for approval; must return at once.
        enforce: True to refuse tools that the budgets cannot pay.
        context_tokens: estimated size of a conversation above which the oldest tool results are
            omitted from model calls; None to keep them.

    Raises:
        InvalidInputError: a component lacks a method that the worker calls.
    """

    def __init__(
        self,
        gateway: GatewayPort,
        ledger: LedgerPort,
        budgeter: BudgetPort | None,
        tool_dispatcher: ToolDispatcher,
        contract_loader: ContractLoader,
        config: WorkerSettings,
        *,
        agent_id: str = "ho1-worker",
        agent_class: str = "RESIDENT",
        model: tuple[str, str] | None = None,
        session_usage: Callable[[str], Usage] = lambda _: Usage(),
        on_request: Callable[[str], None] = lambda _: None,
        enforce: bool = True,
        context_tokens: int | None = None,
    ) -> None:
        _require_methods("gateway", gateway, *_methods(GatewayPort))
        _require_methods("ledger", ledger, *_methods(LedgerPort))
        if budgeter is not None:
            _require_methods("budgeter", budgeter, *_methods(BudgetPort))
        _require_methods("tool_dispatcher", tool_dispatcher, "aexecute", "tools")
        _require_methods("contract_loader", contract_loader, "in_place_of", "load", "load_pack")
        self.gateway = gateway
        self.ledger = ledger
        self.budgeter = budgeter
        self.tools = tool_dispatcher
        self.contracts = contract_loader
        self.config = config
        self.agent_id = agent_id
        self.agent_class = agent_class
        self.model = model
        self.session_usage = session_usage
        self.on_request = on_request
        self.enforce = enforce
        self.context_tokens = context_tokens

    def execute(self, work_order: WorkOrder, *, on_event: EventSink | None = None) -> WorkOrder:
        """Run :meth:`aexecute` for callers without an event loop; block until the order ends.

        Args:
            work_order: as for :meth:`aexecute`.
            on_event: receives text and tool events; None for no listener.

        Raises:
            InvalidInputError: the caller is the background loop itself.
            OrderRecordError: the order was never dispatched, or is given in an ended state.
            LedgerError: the ledger cannot be read or written; the order stays open.
        """
        return run_blocking(self.aexecute(work_order, on_event=on_event))

    async def aexecute(
        self,
        work_order: WorkOrder,
        *,
        on_event: EventSink | None = None,
        guard: Callable[[], None] | None = None,
        fresh: bool = False,
        buffer: WriteBuffer | None = None,
        hold_end: bool = False,
        check: Callable[[Any], str] | None = None,
        principal: Principal = NOBODY,
        contract: PromptContract | None = None,
    ) -> WorkOrder:
        """Execute a dispatched order, or resume an interrupted one, and record its end.

        Recorded model answers and tool results are read back, not produced again. A tool call
        without a recorded end follows the tool's ``on_unknown`` policy. Every step is an entry:
        ``WO_EXECUTING``, ``LLM_CALL``, ``TOOL_INTENT``, ``TOOL_CALL``, ``APPROVAL_REQUESTED``,
        ``WO_COMPLETED`` or ``WO_FAILED``. The order's time limit (``timeout``) and any error but
        those below make the order failed and are not raised; the code is the error's own, for an
        unforeseen one, also of ``on_event``, ``internal_error``. A cancelled task records the order
        as failed (``cancelled``), then CancelledError is raised again.

        Args:
            work_order: in state ``dispatched``, or ``executing`` if it was interrupted.
            on_event: receives text and tool events; None for no listener.
            guard: called before each step that cannot be undone; raises a RemitError if the order
                is no longer this caller's. None for no check.
            fresh: True if the caller has seen that nothing but the plan is recorded.
            buffer: holds the caller's unwritten entries, which are written before the order's; None
                for none.
            hold_end: True to leave the order's end in ``buffer`` for the caller's next write.
            check: returns what is wrong with the data of an order with an output schema, or an
                empty text; the schema alone decides if None.
            principal: the user, key and team on whose behalf the session works.
            contract: the newest version of the order's contract, if the caller has just loaded it;
                None to load it.

        Returns:
            The order, completed or failed. An order that waits for a person stays ``executing``,
                with the requests in ``waiting_for``. An order with a recorded end is returned as
                recorded.

        Raises:
            OrderRecordError: the order was never dispatched, or is given in an ended state.
            LedgerError: the ledger cannot be read at the start, or cannot be written; the order
                stays open.
            RemitError: the error of ``guard``; nothing more is recorded, and the order is left to
                its present owner.
        """
        run = OrderRun(
            self, _executing(work_order), on_event, guard, fresh=fresh, buffer=buffer, check=check,
            principal=principal,
        )  # fmt: skip
        if (ended := run.history.ended) is not None:
            return moved_by(run.order, ended)
        output: Any = None
        error: WorkFailedError | None = None
        try:
            timeout_s = work_order.constraints.timeout_seconds or self.config.timeout_s
            async with asyncio.timeout(timeout_s) as limit:
                output = await run.work(contract)
        except WorkParkedError as parked:
            run.check()
            return await run.park(parked.request_ids)
        except TimeoutError as late:
            error = failure_of(late)  # The listener of events may raise it too.
            if limit.expired():
                error = WorkFailedError("timeout", f"the order did not end within {timeout_s:g} s")
        except asyncio.CancelledError:
            run.check()
            await run.end(None, _CANCELLED)
            raise
        except (LedgerClosedError, LedgerWriteError):
            raise  # Nothing can be recorded, so the order stays open.
        except Exception as failed:
            if run.is_lost:
                raise
            error = failure_of(failed)
        run.check()
        return await run.end(output, error, hold=hold_end)

    def is_repeatable(self, tool_id: str) -> bool:
        """Return True if a tool may run twice without harm.

        False if the program no longer has the tool, or an installed one cannot be used.

        Args:
            tool_id: the tool; a recorded call may name one that is gone.
        """
        try:
            return self.tools.tool(tool_id).is_repeatable
        except (UnknownToolError, ToolError):
            return False

    def contract_of(
        self, order: WorkOrder, began: LedgerEntry | None, newest: PromptContract | None
    ) -> tuple[PromptContract, PromptPack]:
        """Return an order's contract and prompt pack; for a resumed order the recorded versions.

        If a new order's version is excluded by the session, it is replaced by an older one that
        allows no more, if there is one. A resumed order ignores exclusions and ``newest``.

        Args:
            order: the order.
            began: the order's first ``WO_EXECUTING``; None for an order that has not begun.
            newest: the newest version of the contract, if the caller has loaded it.

        Raises:
            ContractError: either cannot be used, or was changed after the order began.
            ChangedFileError: the table of installed files cannot be read.
        """
        contract_id, contract = order.constraints.prompt_contract_id, newest
        pinned = began.metadata if began is not None else {}
        if contract is None or pinned:
            contract = self.contracts.load(contract_id, pinned.get("contract_version"))
        if (aside := order.constraints.set_aside) and not pinned and contract.name in aside:
            contract = self.contracts.in_place_of(contract, aside) or contract
        pack = self.contracts.load_pack(contract.prompt_pack_id)
        for name, digest, recorded in (
            (contract_id, contract.digest, pinned.get("contract_digest")),
            (contract.prompt_pack_id, pack.digest, pinned.get("prompt_pack_digest")),
        ):
            if recorded is not None and recorded != digest:
                raise ContractError(
                    "contract_schema_invalid",
                    f"{name} was changed after {order.wo_id} began with it.",
                    next_step="Put the former text back, or give the change a new version.",
                )
        return contract, pack

    def versions_before(self, name: str, aside: Collection[str]) -> Sequence[str]:
        """Return the contract version that replaces an excluded one, as a sequence of at most one
        name.

        Empty if no version does, or if the given one cannot be loaded.

        Args:
            name: the contract, ``contract@version``.
            aside: names of all contracts that are set aside.

        Raises:
            ChangedFileError: the table of installed files cannot be read.
        """
        contract_id, _, version = name.partition("@")
        try:
            contract = self.contracts.load(contract_id, version)
            before = self.contracts.in_place_of(contract, aside)
        except ContractError:  # The version was removed.
            return ()
        return () if before is None else (before.name,)

    def attach(
        self,
        work_order: WorkOrder,
        guard: Callable[[], None],
        buffer: WriteBuffer,
        gate: Callable[[WorkOrder], Awaitable[WorkOrder]],
    ) -> AttachedOrder:
        """Return a dispatched or interrupted order for another program to execute.

        Writes nothing; :meth:`AttachedOrder.begin` does, and raises InvalidInputError if the order
        has a recorded end. The order's entries are read.

        Args:
            work_order: the order.
            guard: raises a RemitError if the order is no longer the caller's.
            buffer: holds the caller's unwritten entries, which are written before the order's.
            gate: records whether the ended order's answer may be delivered.

        Raises:
            OrderRecordError: the order was never dispatched, or is given in an ended state.
            LedgerError: the order's entries cannot be read.
        """
        return AttachedOrder(self, _executing(work_order), guard, buffer, gate)

    def cost(self, work_order: WorkOrder) -> WorkOrderCost:
        """Return the recorded cost so far of an order that waits. Writes nothing.

        Its ``elapsed_ms`` does not contain the time of earlier work.

        Args:
            work_order: the order; its entries are read.

        Raises:
            LedgerError: the order's entries cannot be read.
        """
        return OrderRun(self, work_order).cost()

    async def acancel(self, work_order: WorkOrder) -> WorkOrder:
        """End a dispatched or interrupted order that will not be resumed, and its sub-agents' work.

        Appends ``WO_EXECUTING``, again if the order had begun, and ``WO_FAILED`` with the error
        code ``cancelled``. Before the end a person is asked about calls with an unknown outcome and
        the policy ``ask`` (``APPROVAL_REQUESTED``). Returns the order as failed; one with a
        recorded end as recorded. Errors of a sub-agent's cancellation are let through.

        Args:
            work_order: the order, in a state that has not ended.

        Raises:
            OrderRecordError: the order was never dispatched, or is given in an ended state.
            LedgerError: an entry could not be written.
            InvalidInputError: an entry cannot be recorded.
        """
        run = OrderRun(self, _executing(work_order))
        if (ended := run.history.ended) is not None:
            return moved_by(run.order, ended)
        return await run.cancel(_CANCELLED)


def _executing(order: WorkOrder) -> WorkOrder:
    if order.state is WorkOrderState.EXECUTING:
        return order
    return order.moved_to(WorkOrderState.EXECUTING, by="ho1")


def _methods(port: type) -> list[str]:
    return [name for name in dir(port) if not name.startswith("_")]


def _require_methods(name: str, dependency: object, *methods: str) -> None:
    """Raise InvalidInputError if a component lacks a method that the worker calls."""
    missing = [method for method in methods if not hasattr(dependency, method)]
    if missing:
        raise InvalidInputError(
            f"The worker's {name}, {type(dependency).__name__}, has no method {missing[0]}().",
            next_step=f"Pass a {name} with {', '.join(f'{method}()' for method in methods)}.",
        )
