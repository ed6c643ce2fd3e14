"""The steps of one execution: contract, prompt, tool loop, schemas and the recorded end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from remit.agents.files import attached, with_note
from remit.agents.worker.calls import ModelCalls
from remit.agents.worker.conversation import shorten
from remit.agents.worker.execution import Execution, WorkFailedError
from remit.agents.worker.model_answer import (
    cut_short,
    sendable,
    stop_problem,
    with_distinct_ids,
)
from remit.agents.worker.output import OutputSchema
from remit.agents.worker.replies import asks_for_help, fixed_answer, help_text
from remit.agents.worker.toolbox import Toolbox
from remit.agents.worker.toolchoice import ToolChooser
from remit.agents.workorders import (
    Answer,
    AnswerRejected,
    Effect,
    TextDelta,
    WorkOrder,
    WorkOrderCost,
    WorkOrderType,
    effects_text,
    moved_by,
)
from remit.contracts import ContractError, PromptContract, PromptPack
from remit.kernel.budget import BudgetLimits, BudgetScope, nano_of
from remit.kernel.exchange import Message, PromptRequest, conversation
from remit.kernel.schemas import first_problem

_REFUSAL_CODES = ("approval_denied", "approval_invalid", "tool_not_allowed")
CALL_FIELDS = (
    "dispatch_entry_id", "outcome", "model_id", "input_tokens", "output_tokens", "latency_ms",
)  # fmt: skip


class Run:
    """The steps of one execution.

    Args:
        execution: the execution.
        started: time of its start by ``time.perf_counter``; now if None.
    """

    def __init__(self, execution: Execution, started: float | None = None) -> None:
        self._execution = execution
        self._services = execution.services
        self._order = execution.order
        self._journal = execution.journal
        self._history = execution.history
        self._calls = ModelCalls(execution)
        self._toolbox = Toolbox(execution)
        self._output: OutputSchema | None = None
        if (schema := self._order.constraints.output_schema) is not None:
            self._output = OutputSchema(schema, execution.check_output, execution.emit)
        self._started = time.perf_counter() if started is None else started

    async def work(self) -> Any:
        """Execute the order's remaining steps; return its result.

        The result is data under a contract's output schema, otherwise an object with ``text``,
        ``finish_reason`` and ``tool_results``. Calls models and tools, and notes their entries.

        Raises:
            WorkFailedError: the order cannot be completed.
            WorkParkedError: the order waits for a person.
            ContractError: the contract or its prompt pack cannot be used.
            UnknownToolError: a tool of the order does not exist.
        """
        order = self._order
        if order.wo_type is WorkOrderType.TOOL_CALL:
            self.begin()
            return await self._run_tools()
        try:
            contract, pack = self._contract()
        except ContractError:
            self.begin()
            raise
        self._journal.prompts_used = [contract.prompt_pack_id]
        self._journal.agent_class = contract.agent_class or self._services.agent_class
        self.begin(
            contract_version=contract.version,
            contract_digest=contract.digest,
            prompt_pack_digest=pack.digest,
        )
        problem = first_problem(contract.input_schema or {}, dict(order.input_context))
        if problem:
            raise WorkFailedError("input_schema_invalid", problem)
        self._allocate()
        return await self._ask(contract, pack)

    def begin(self, **pinned: str) -> None:
        """Note ``WO_EXECUTING``, and after an interruption the model calls not noted yet.

        The entries are held for the next write.

        Args:
            pinned: versions and digests of contract and prompt pack, recorded with the entry.
        """
        if self._history.began is None:
            self._journal.note("WO_EXECUTING", **pinned)
            return
        for entry in self._history.unnoted:
            data = {name: entry.metadata[name] for name in CALL_FIELDS}
            self._journal.note("LLM_CALL", exchange_entry_id=entry.id, **data)
        self._journal.note("WO_EXECUTING", **pinned, resumed=True)

    async def park(self, request_ids: tuple[str, ...]) -> WorkOrder:
        """Write the noted entries and return the order as waiting for these requests.

        Args:
            request_ids: ids of the ``APPROVAL_REQUESTED`` entries.

        Raises:
            LedgerError: an entry could not be written.
        """
        await self._journal.flush()
        return replace(self._order, waiting_for=request_ids, cost=self.cost())

    def cost(self) -> WorkOrderCost:
        """Return the order's cost so far, with its tools and sub-agents.

        ``cost_usd`` is None if nothing has a known price, or if tokens were used at an unknown
        price. ``elapsed_ms`` is the time since this process began to execute the order.
        """
        # A tool may call models too, whose usage only the ledger shows.
        used = self._calls.used if not self._toolbox.calls else None
        used = self._history.usage() if used is None else used
        used.include(self._toolbox.usage())
        return WorkOrderCost(
            used.input_tokens,
            used.output_tokens,
            used.input_tokens + used.output_tokens,
            used.calls,
            self._toolbox.calls,
            round((time.perf_counter() - self._started) * 1000, 3),
            used.cost_usd if used.priced else None,
        )

    async def end(
        self, output: Any, error: WorkFailedError | None, *, hold: bool = False
    ) -> WorkOrder:
        """Record the order's end and cost; return the ended order.

        A person is asked about calls with an unknown outcome if the order failed.

        Args:
            output: the result; ignored if there is an error.
            error: why the order failed; None if it succeeded.
            hold: True to leave the entry for the caller's next write.

        Raises:
            LedgerError: this or an earlier entry could not be written.
        """
        self._journal.check()
        if error is not None or self._toolbox.has_unknown:
            await self._toolbox.report_unknown()
        cost = self.cost()
        if error is None:
            entry = self._journal.entry("WO_COMPLETED", output_result=output, cost=cost.to_dict())
        else:
            entry = self._journal.entry(
                "WO_FAILED", error_code=error.code, error_message=error.message,
                cost=cost.to_dict(),
            )  # fmt: skip
        if hold:
            self._journal.hold(entry)
        else:
            await self._journal.write_all([entry])
        met_fault = self._calls.met_fault or self._toolbox.met_fault
        return replace(
            moved_by(self._order, entry),
            met_fault=met_fault, has_unknown=self._toolbox.has_unknown or error is not None,
        )  # fmt: skip

    async def cancel(self, error: WorkFailedError) -> WorkOrder:
        """End an order that will not be resumed, and its sub-agents' unfinished work.

        Args:
            error: the recorded reason.

        Returns:
            The order as failed.

        Raises:
            LedgerError: an entry could not be written.
        """
        self.begin()
        await self._toolbox.cancel_sub_agents()
        return await self.end(None, error)

    def _contract(self) -> tuple[PromptContract, PromptPack]:
        """Return the contract and its prompt pack; for a resumed order the recorded versions.

        Raises:
            ContractError: either was changed after the order began.
        """
        contract_id = self._order.constraints.prompt_contract_id
        began = self._history.began.metadata if self._history.began is not None else {}
        contract = self._services.contracts.load(contract_id, began.get("contract_version"))
        if (aside := self._order.constraints.set_aside) and not began and contract.name in aside:
            contract = self._services.contracts.in_place_of(contract, aside) or contract
        pack = self._services.contracts.load_pack(contract.prompt_pack_id)
        for name, digest, recorded in (
            (contract_id, contract.digest, began.get("contract_digest")),
            (contract.prompt_pack_id, pack.digest, began.get("prompt_pack_digest")),
        ):
            if recorded is not None and recorded != digest:
                raise ContractError(
                    "contract_schema_invalid",
                    f"{name} was changed after {self._order.wo_id} began with it.",
                    next_step="Put the former text back, or give the change a new version.",
                )
        return contract, pack

    async def _run_tools(self) -> dict[str, Any]:
        """Run the tools of a ``tool_call`` order, one after the other."""
        self._toolbox.available()  # Raises before the first call if a tool does not exist.
        context = self._order.input_context
        wanted = context.get("tool_calls") or [context]
        for number, call in enumerate(wanted):
            key = f"{self._order.wo_id}/call/{number}"
            result = await self._toolbox.use(
                str(call.get("tool_id", "")), call.get("arguments", {}), key
            )
            if result.status == "refused":
                code = result.error.partition(":")[0]
                raise WorkFailedError(
                    code if code in _REFUSAL_CODES else "tool_not_allowed", result.error
                )
        return {"tool_results": self._toolbox.results}

    async def _ask(self, contract: PromptContract, pack: PromptPack) -> Any:
        request, output = self._calls.request(contract), self._output
        if output is not None:
            schema = self._order.constraints.output_schema
            request = replace(request, structured_output=True, output_schema=schema)
        tools = self._toolbox.available()
        variables = dict(self._order.input_context)
        assembled = variables.get("assembled_context") or {}
        history = conversation(
            (str(turn["user_message"]), str(turn["response"]))
            for turn in assembled.get("turns") or ()
        )
        effects = effects_text([Effect.of_dict(one) for one in assembled.get("effects") or ()])
        small = self._services.config.small_model
        able = self._services.gateway.capabilities(request)
        of_system = bool(tools) or contract.agent_class == "ADMIN"
        data = contract.output_schema is not None or output is not None
        speaks = able.prose or data or not of_system
        native = able.native_tools and speaks
        if output is not None and not able.structured_output:
            request = replace(request, structured_output=None)
        variables["native_tools"] = native
        if not native:
            most = min(request.max_tokens or small.max_tokens, small.max_tokens)
            request = replace(request, max_tokens=most)
        if contract.agent_class == "ADMIN" and asks_for_help(str(variables["user_input"])):
            return self._print(_join(effects, help_text(tools)))
        if not speaks or (tools and not native):
            chooser = ToolChooser(self._execution, self._calls, self._toolbox)
            message = str(variables["user_input"])
            used = variables["tool_results"] = await chooser.choose(tools, message)
            if self._toolbox.handed_to:
                return self._handover()
            if not speaks:
                text = fixed_answer(message, used, tools, chooser.choice)
                return self._print(_join(effects, text))
            tools = []
            first = max(0, len(history) - 2 * small.context_turns)
            history = [] if variables["tool_results"] else history[first:]

        def render() -> list[Message]:
            note = _join(effects, str(assembled.get("note") or ""))
            messages = with_note(pack.render(variables, history), note)
            if files := variables.get("files"):
                messages = attached(messages, files)
            if output is not None and messages[-1]["role"] == "assistant":
                messages = messages[:-1]  # A prefilled answer would not begin as data does.
            if output is not None and not able.structured_output:
                return output.with_schema(messages)
            return messages

        definitions = [tool.definition() for tool in tools]
        answer = await self._converse(contract, request, render, definitions)
        if self._toolbox.handed_to:
            return self._handover()
        if contract.output_schema is not None and output is None:
            return await _parse_output(contract.output_schema, answer.text)
        result = {
            "text": answer.text,
            "finish_reason": answer.finish_reason,
            "tool_results": self._toolbox.results,
        }
        return result if output is None else {**result, "output": output.data(answer.text)}

    async def _converse(
        self,
        contract: PromptContract,
        request: PromptRequest,
        render: Callable[[], list[Message]],
        definitions: Sequence[Mapping[str, Any]],
    ) -> Answer:
        """Call the model and its tools in turn, from the last recorded answer to the final one."""
        on_text, output = None, self._output
        if self._execution.on_event is None:
            pass
        elif output is not None:
            on_text = output.take
        elif contract.output_schema is None:
            on_text = self._emit_text  # With an output schema, the text is data for programs.
        answer = self._history.last_answer(contract.contract_id)
        messages = list(answer.messages) if answer is not None else render()
        while True:
            if answer is None:
                if output is not None:
                    output.begin()
                answer = await self._calls.ask(
                    request, messages, tools=definitions, on_text=on_text
                )
            if (stopped := stop_problem(answer)) is not None:
                raise stopped
            blocks = with_distinct_ids(answer.blocks, messages)
            uses = [block for block in blocks if block.get("type") == "tool_use"]
            if not uses or not (definitions or self._toolbox.withheld):
                problem = "" if output is None else await output.problem(answer.text)
                if output is None or not problem:
                    return answer
                if answer.finish_reason == "length":
                    raise cut_short(answer)
                output.repair(messages, answer.text or "…", problem)
                self._execution.emit(AnswerRejected((problem,), True))
                answer = None
                continue
            messages.append({"role": "assistant", "content": sendable(blocks)})
            able = self._services.gateway.capabilities(request)
            results = await self._toolbox.answer(
                uses, answer.exchange_entry_id, takes_images=able.images
            )
            if self._toolbox.handed_to:
                return answer  # Another agent answers the rest of the session.
            messages.append({"role": "user", "content": results})
            if (most := self._services.context_tokens) is not None:
                messages = shorten(messages, most)
            answer = None

    def _handover(self) -> dict[str, Any]:
        """Return the result of an order that hands its session to another agent."""
        return {
            "text": "", "finish_reason": "", "tool_results": self._toolbox.results,
            "handed_to": self._toolbox.handed_to,
        }  # fmt: skip

    def _print(self, text: str) -> dict[str, Any]:
        """Return the result of an order whose answer code wrote."""
        self._emit_text(text)
        return {
            "text": text, "finish_reason": "stop", "tool_results": self._toolbox.results,
            "printed": True,
        }  # fmt: skip

    def _emit_text(self, text: str) -> None:
        self._execution.emit(TextDelta(text))

    def _allocate(self) -> None:
        """Allocate the order's own limits with the next write, if it sets any."""
        constraints = self._order.constraints
        if not constraints.token_budget and constraints.usd_budget is None:
            return
        if self._services.budgeter is None:
            if constraints.usd_budget is not None:
                raise WorkFailedError(
                    "budget_exhausted", "the order has a USD budget, but budgets are off"
                )
            return
        usd = constraints.usd_budget
        limits = BudgetLimits(
            constraints.token_budget or None, None if usd is None else nano_of(usd)
        )
        scope = BudgetScope(self._order.session_id, self._order.wo_id)
        by = self._services.agent_id
        self._journal.hold(self._services.budgeter.allocation(scope, limits, by))
        self._calls.initial_tokens = limits.tokens


async def _parse_output(schema: Mapping[str, Any], text: str) -> Any:
    """Return the data of an answer under a contract's output schema.

    Raises:
        WorkFailedError: ``output_schema_invalid``.
    """
    output = OutputSchema(schema, None, lambda _: None)
    if problem := await output.problem(text):
        raise WorkFailedError("output_schema_invalid", f"the answer is not usable: {problem}")
    return output.data(text)


def _join(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))
