"""The run of one work order, step by step.

    1. Load the contract and its prompt pack, begin (``WO_EXECUTING``), check the input, allocate
       the order's limits (:meth:`OrderRun.work`).
    2. Build the request; for a model without tool calls, choose and run a tool first.
    3. Call the model and the tools that it asks for in turn, until it answers
       (:meth:`OrderRun._converse`).
    4. Check the answer against its schema; ask once more for a usable one.
    5. Record the end and the cost (:meth:`OrderRun.end`), or wait for a person
       (:meth:`OrderRun.park`).

``model_calls.py`` makes the model calls, ``tool_calls.py`` runs the tools. The executor limits the
time and turns errors into recorded failures.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from remit.agents.attachments import attached, with_note
from remit.agents.worker.failures import WorkFailedError
from remit.agents.worker.model_calls import (
    ModelCalls,
    cut_short,
    sendable,
    stop_problem,
    with_distinct_ids,
)
from remit.agents.worker.output_schema import OutputSchema
from remit.agents.worker.printed_replies import asks_for_help, fixed_answer, help_text
from remit.agents.worker.tool_calls import Toolbox
from remit.agents.worker.tool_choice import ToolChooser
from remit.agents.worker.tool_results import shorten
from remit.agents.workorders import (
    NOBODY,
    AnswerRejected,
    Effect,
    EventSink,
    Journal,
    OrderHistory,
    Principal,
    TextDelta,
    TurnEvent,
    WorkOrder,
    WorkOrderCost,
    WorkOrderType,
    WriteBuffer,
    effects_text,
    moved_by,
)
from remit.contracts import ContractError, PromptContract, PromptPack
from remit.kernel.budget_values import BudgetLimits, BudgetScope, nano_of
from remit.kernel.errors import RemitError
from remit.kernel.exchange import conversation
from remit.kernel.json_text import load_answer
from remit.kernel.schemas import first_problem
from remit.ledger import ScopedLedger

if TYPE_CHECKING:
    from remit.agents.worker.executor import HO1Executor

# The prompt of a model without native tools, which is small: such models may loop.
_SMALL_MODEL_TURNS = 4
_SMALL_MODEL_TOKENS = 120
_REFUSAL_CODES = ("approval_denied", "approval_invalid", "tool_not_allowed")


class OrderRun:
    """The run of one order in state ``executing``: its state and its steps.

    Making the object reads the order's recorded steps. :meth:`work` takes the steps; :meth:`end`,
    :meth:`park` or :meth:`cancel` concludes them. An object is used for one run only.

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
        interrupted: keys of calls that another program made before it was restarted.
        started: time of its start by ``time.perf_counter``; now if None.

    Attributes:
        is_lost: True once ``guard`` has raised: the order is another worker's.

    Raises:
        LedgerError: the recorded steps cannot be read.
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
        interrupted: Collection[str] = (),
        started: float | None = None,
    ) -> None:
        self.services = services
        self.principal = principal
        self.order = order
        self._on_event = on_event
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
        self.calls = ModelCalls(self)
        self._interrupted = frozenset(interrupted)
        self._output: OutputSchema | None = None
        if (schema := order.constraints.output_schema) is not None:
            self._output = OutputSchema(schema, check, self.emit)
        self._started = time.perf_counter() if started is None else started

    @cached_property
    def toolbox(self) -> Toolbox:
        """The tools that the order may use; made at first use, which an ended order never needs."""
        return Toolbox(self, self._interrupted)

    @property
    def scope(self) -> BudgetScope:
        """The budgets that pay: those of session, order and agent, of the session's user, team and
        organisation, and of its key and callers."""
        return BudgetScope(
            self.order.session_id, self.order.wo_id, self.services.agent_id,
            user_id=self.principal.user_id or None, team_id=self.principal.team_id or None,
            organisation_id=self.principal.organisation_id or None,
            charged_to=self.principal.charged_to,
        )  # fmt: skip

    def check(self) -> None:
        """Raise the error of a failed write, or the guard's if the order is no longer this
        worker's.

        Sets ``is_lost`` in the second case. Waits for nothing.

        Raises:
            LedgerError: an earlier write of the order failed.
            RemitError: the guard's error.
        """
        self.journal.buffer.check()
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
        if self._on_event is not None:
            self._on_event(event)

    def work(self, contract: PromptContract | None = None) -> Awaitable[Any]:
        """Begin the order; return an awaitable of its result, which takes the remaining steps.

        The result is data under a contract's output schema, otherwise an object with ``text``,
        ``finish_reason`` and ``tool_results``; a ``tool_call`` has the last alone. An order's own
        schema takes precedence and adds ``output``, a handover ``handed_to``, a text that code
        wrote ``printed``. A refused tool fails a ``tool_call``, a failed one does not. The call
        raises errors of the beginning, the awaitable all others, also of gateway and ``on_event``.

        Args:
            contract: the newest version of the contract, if the caller has loaded it.

        Raises:
            WorkFailedError: the order cannot be completed; its code says why.
            WorkParkedError: the order waits for a person.
            ContractError: the contract or its prompt pack cannot be used, or was changed after the
                order began.
            OrderRecordError: a recorded answer or result that is needed was erased.
            UnknownToolError: a tool of the order does not exist.
            ToolError: an installed tool cannot be used.
            InvalidInputError: an entry cannot be recorded.
            RemitError: the guard's error, if the order is no longer this worker's.
            LedgerError: the ledger cannot be read or written.
        """
        order = self.order
        if order.wo_type is WorkOrderType.TOOL_CALL:
            self.begin()
            return self._run_tools()
        try:
            contract, pack = self.services.contract_of(order, self.history.began, contract)
        except ContractError:
            self.begin()
            raise
        self.journal.prompts_used = [contract.prompt_pack_id]
        self.journal.agent_class = contract.agent_class or self.services.agent_class
        self.begin(
            contract_version=contract.version,
            contract_digest=contract.digest,
            prompt_pack_digest=pack.digest,
        )
        problem = first_problem(contract.input_schema or {}, dict(order.input_context))
        if problem:
            raise WorkFailedError("input_schema_invalid", problem)
        self._allocate()
        return self._converse(contract, pack)

    def begin(self, **pinned: str) -> None:
        """Note ``WO_EXECUTING``, and after an interruption the model calls not noted yet.

        The entries are held for the next write.

        Args:
            pinned: versions and digests of contract and prompt pack, recorded with the entry.

        Raises:
            LedgerError: the ledger cannot be read.
            InvalidInputError: an entry cannot be recorded.
        """
        if self.history.began is None:
            self.journal.note("WO_EXECUTING", **pinned)
            return
        for entry in self.history.unnoted:
            self.calls.note_recorded(entry)
        self.journal.note("WO_EXECUTING", **pinned, resumed=True)

    async def park(self, request_ids: tuple[str, ...]) -> WorkOrder:
        """Write the noted entries; return the order with its cost, waiting for these requests.

        Args:
            request_ids: ids of the ``APPROVAL_REQUESTED`` entries.

        Raises:
            LedgerError: an entry could not be written.
        """
        await self.journal.flush()
        return replace(self.order, waiting_for=request_ids, cost=self.cost())

    def cost(self) -> WorkOrderCost:
        """Return the order's cost so far, with its tools and sub-agents.

        ``cost_usd`` is None if nothing has a known price, or if tokens were used at an unknown
        price. ``elapsed_ms`` is the time since this process began to execute the order.

        Raises:
            LedgerError: the usage cannot be read.
        """
        # A tool may call models too, whose usage only the ledger shows.
        used = self.calls.used if not self.toolbox.calls else None
        used = self.history.usage() if used is None else used
        used.include(self.toolbox.usage())
        return WorkOrderCost(
            used.input_tokens,
            used.output_tokens,
            used.input_tokens + used.output_tokens,
            used.calls,
            self.toolbox.calls,
            round((time.perf_counter() - self._started) * 1000, 3),
            used.cost_usd if used.priced else None,
        )

    async def end(
        self, output: Any, error: WorkFailedError | None, *, hold: bool = False
    ) -> WorkOrder:
        """Record the order's end and cost; return the order, ``met_fault`` and ``has_unknown`` set.

        Appends ``WO_COMPLETED`` or ``WO_FAILED``. Before, a person is asked, durably, about calls
        with an unknown outcome whose tool has the policy ``ask``, whether the order failed or not.
        A model call that the end interrupted gets its ``LLM_CALL``.

        Args:
            output: the result; ignored if there is an error.
            error: why the order failed; None if it succeeded.
            hold: True to leave the entry for the caller's next write.

        Raises:
            RemitError: the guard's error, if another worker holds the order; nothing was written.
            InvalidInputError: the result cannot be recorded.
            LedgerError: this or an earlier entry could not be written.
        """
        self.check()
        if error is not None:
            self.calls.note_interrupted()
        if error is not None or self.toolbox.has_unknown:
            await self.toolbox.report_unknown()
        cost = self.cost()
        if error is None:
            entry = self.journal.entry("WO_COMPLETED", output_result=output, cost=cost.to_dict())
        else:
            entry = self.journal.entry(
                "WO_FAILED", error_code=error.code, error_message=error.message,
                cost=cost.to_dict(),
            )  # fmt: skip
        if hold:
            self.journal.hold(entry)
        else:
            await self.journal.write_all([entry])
        met_fault = self.calls.met_fault or self.toolbox.met_fault
        return replace(
            moved_by(self.order, entry),
            met_fault=met_fault, has_unknown=self.toolbox.has_unknown or error is not None,
        )  # fmt: skip

    async def cancel(self, error: WorkFailedError) -> WorkOrder:
        """End an order that will not be resumed, and its sub-agents' unfinished work.

        Begins the order again, then ends it (:meth:`end`). Errors of a sub-agent are let through.

        Args:
            error: the recorded reason.

        Returns:
            The order as failed.

        Raises:
            RemitError: the guard's error, if another worker holds the order.
            LedgerError: an entry could not be written.
        """
        self.begin()
        await self.toolbox.cancel_sub_agents()
        return await self.end(None, error)

    async def _run_tools(self) -> dict[str, Any]:
        """Run the tools of a ``tool_call`` order in turn."""
        self.toolbox.available()  # Raises before the first call if a tool does not exist.
        context = self.order.input_context
        wanted = context.get("tool_calls") or [context]
        for number, call in enumerate(wanted):
            key = f"{self.order.wo_id}/call/{number}"
            result = await self.toolbox.use(
                str(call.get("tool_id", "")), call.get("arguments", {}), key
            )
            if result.status == "refused":
                code = result.error.partition(":")[0]
                raise WorkFailedError(
                    code if code in _REFUSAL_CODES else "tool_not_allowed", result.error
                )
        return {"tool_results": self.toolbox.results}

    async def _converse(self, contract: PromptContract, pack: PromptPack) -> Any:
        """Call the model and its tools in turn, from the last recorded answer to the final one."""
        if self.history.began is not None:
            await self.journal.flush()  # A new allocation of the order takes effect.
        request, output = self.calls.request(contract), self._output
        if output is not None:
            schema = self.order.constraints.output_schema
            request = replace(request, structured_output=True, output_schema=schema)
        tools = self.toolbox.available()
        variables = dict(self.order.input_context)
        assembled = variables.get("assembled_context") or {}
        turns = assembled.get("turns") or ()
        past = conversation([(str(t["user_message"]), str(t["response"])) for t in turns])
        effects = effects_text([*map(Effect.of_dict, assembled.get("effects") or ())])
        able = self.services.gateway.capabilities(request)
        is_data = contract.output_schema is not None or output is not None
        speaks = able.prose or is_data or not (tools or contract.agent_class == "ADMIN")
        native = variables["native_tools"] = able.native_tools and speaks
        if output is not None and not able.structured_output:
            request = replace(request, structured_output=None)
        if not native:
            most = min(request.max_tokens or _SMALL_MODEL_TOKENS, _SMALL_MODEL_TOKENS)
            request = replace(request, max_tokens=most)
        if contract.agent_class == "ADMIN" and asks_for_help(str(variables["user_input"])):
            return self._print(_join(effects, help_text(tools)))
        if not speaks or (tools and not native):
            chooser = ToolChooser(self)
            message = str(variables["user_input"])
            used = variables["tool_results"] = await chooser.choose(tools, message)
            if self.toolbox.handed_to:
                return self._handover()
            if not speaks:
                text = fixed_answer(message, used, tools, chooser.choice)
                return self._print(_join(effects, text))
            tools = []
            first = max(0, len(past) - 2 * _SMALL_MODEL_TURNS)
            past = [] if used else past[first:]
        definitions = [tool.definition() for tool in tools]
        on_text = None
        if self._on_event is not None and output is not None:
            on_text = output.take
        elif self._on_event is not None and not is_data:  # Data for programs is not streamed.
            on_text = self._emit_text
        answer = self.history.last_answer(contract.contract_id)
        if answer is not None:
            messages = list(answer.messages)
        else:
            note = _join(effects, str(assembled.get("note") or ""))
            messages = with_note(pack.render(variables, past), note)
            if files := variables.get("files"):
                messages = attached(messages, files)
            if output is not None and messages[-1]["role"] == "assistant":
                messages = messages[:-1]  # A prefilled answer would not begin as data does.
            if output is not None and not able.structured_output:
                messages = output.with_schema(messages)
        while True:
            if answer is None:
                if output is not None:
                    output.begin()
                call = self.calls.prepare(request, messages, tools=definitions)
                response = await self.services.gateway.aroute(call, on_text=on_text)
                answer = self.calls.answer(response, messages)
            if (stopped := stop_problem(answer)) is not None:
                raise stopped
            blocks = with_distinct_ids(answer.blocks, messages)
            uses = [block for block in blocks if block.get("type") == "tool_use"]
            if not uses or not (definitions or self.toolbox.withheld):
                problem = "" if output is None else await output.problem(answer.text)
                if output is None or not problem:
                    break
                if answer.finish_reason == "length":
                    raise cut_short(answer)
                output.repair(messages, answer.text or "…", problem)
                self.emit(AnswerRejected((problem,), True))
                answer = None
                continue
            messages.append({"role": "assistant", "content": sendable(blocks)})
            able = self.services.gateway.capabilities(request)
            results = await self.toolbox.answer(
                uses, answer.exchange_entry_id, takes_images=able.images
            )
            if self.toolbox.handed_to:
                return self._handover()  # Another agent answers the rest of the session.
            messages.append({"role": "user", "content": results})
            if (most_tokens := self.services.context_tokens) is not None:
                messages = shorten(messages, most_tokens)
            answer = None
        if contract.output_schema is not None and output is None:
            form = OutputSchema(contract.output_schema, None, self.emit)
            if problem := await form.problem(answer.text):
                reason = f"the answer is not usable: {problem}"
                raise WorkFailedError("output_schema_invalid", reason)
            return load_answer(answer.text)
        result = {
            "text": answer.text,
            "finish_reason": answer.finish_reason,
            "tool_results": self.toolbox.results,
        }
        return result if output is None else {**result, "output": load_answer(answer.text)}

    def _handover(self) -> dict[str, Any]:
        """Return the result of an order that hands its session to another agent."""
        return {
            "text": "", "finish_reason": "", "tool_results": self.toolbox.results,
            "handed_to": self.toolbox.handed_to,
        }  # fmt: skip

    def _print(self, text: str) -> dict[str, Any]:
        """Return the result of an order whose answer code wrote."""
        self._emit_text(text)
        return {
            "text": text, "finish_reason": "stop", "tool_results": self.toolbox.results,
            "printed": True,
        }  # fmt: skip

    def _emit_text(self, text: str) -> None:
        self.emit(TextDelta(text))

    def _allocate(self) -> None:
        """Allocate the order's own limits with the next write, if it sets any."""
        constraints = self.order.constraints
        if not constraints.token_budget and constraints.usd_budget is None:
            return
        if self.services.budgeter is None:
            if constraints.usd_budget is not None:
                raise WorkFailedError(
                    "budget_exhausted", "the order has a USD budget, but budgets are off"
                )
            return
        usd = constraints.usd_budget
        limits = BudgetLimits(
            constraints.token_budget or None, None if usd is None else nano_of(usd)
        )
        scope = BudgetScope(self.order.session_id, self.order.wo_id)
        by = self.services.agent_id
        self.journal.hold(self.services.budgeter.allocation(scope, limits, by))
        self.calls.initial_tokens = limits.tokens


def _join(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))
