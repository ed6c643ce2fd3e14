"""The model calls of one order: built from its contract, counted, noted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from remit.agents.worker.errors import WorkFailedError, failure_of
from remit.agents.worker.journal import Journal
from remit.agents.worker.ports import BudgetPort
from remit.agents.worker.recorded import Answer, RecordedRun
from remit.agents.workorders import WorkOrder
from remit.contracts import PromptContract
from remit.kernel.budget import BudgetScope
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import (
    GatewayPort,
    Message,
    PromptRequest,
    RouteOutcome,
    TextSink,
)

__all__ = ["ModelCalls"]


class ModelCalls:
    """Asks the gateway on behalf of one order.

    Args:
        gateway: the port.
        budgeter: tells what the order has left; ``None`` without budgets.
        order: whose calls these are.
        journal: where each is noted.
        recorded: what the order did before.
        guard: called before a call; raises when the order is no longer this worker's.
        agent_id: who asks.
        turn_limit: most calls.
        model: provider and model where the contract fixes none, or no provider and the name of a
            route; ``None`` leaves it to the gateway.

    Attributes:
        made: how many calls so far.
    """

    def __init__(
        self,
        gateway: GatewayPort,
        budgeter: BudgetPort | None,
        order: WorkOrder,
        journal: Journal,
        recorded: RecordedRun,
        guard: Callable[[], None],
        agent_id: str,
        turn_limit: int,
        model: tuple[str, str] | None = None,
    ) -> None:
        self._gateway = gateway
        self._budgeter = budgeter
        self._order = order
        self._journal = journal
        self._agent_id = agent_id
        self._turn_limit = turn_limit
        self._recorded = recorded
        self._guard = guard
        self._model = model
        self.made = recorded.llm_calls

    def request(self, contract: PromptContract) -> PromptRequest:
        """The request that ``contract`` makes of this order, still without messages."""
        order, boundary = self._order, contract.boundary
        provider_id, model_id = boundary.provider_id, boundary.model_id
        if self._model is not None and provider_id is None and model_id is None:
            provider_id, model_id = self._model[0] or None, self._model[1]
        return PromptRequest(
            prompt="",
            prompt_pack_id=contract.prompt_pack_id,
            contract_id=contract.contract_id,
            agent_id=self._agent_id,
            agent_class=contract.agent_class,
            framework_id=str(contract.metadata.get("framework_id", "")),
            package_id=str(contract.metadata.get("package_id", "")),
            work_order_id=order.wo_id,
            session_id=order.session_id,
            tier=order.tier_target,
            provider_id=provider_id,
            model_id=model_id,
            max_tokens=boundary.max_tokens,
            temperature=boundary.temperature,
            structured_output=boundary.structured_output,
            input_schema=contract.input_schema,
            output_schema=contract.output_schema,
            template_variables=order.input_context,
            domain_tags=order.constraints.domain_tags or None,
        )

    async def ask(
        self,
        request: PromptRequest,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        schema: Mapping[str, Any] | None = None,
        on_text: TextSink | None = None,
    ) -> Answer:
        """One call.

        Args:
            request: from :meth:`request`.
            messages: the conversation.
            tools: definitions offered; structured output is left out while there are any.
            schema: holds the output instead of what the contract says.
            on_text: receives the answer's text.

        Raises:
            WorkFailedError: the call failed, or the order has used its calls.
        """
        if self.made >= self._turn_limit:
            raise WorkFailedError(
                "turn_limit_exceeded", f"the order has used its {self._turn_limit} model calls"
            )
        structured = request.structured_output if schema is None else schema
        request = replace(
            request,
            messages=list(messages),
            tools=list(tools) or None,
            structured_output=None if tools else structured,
            output_schema=schema or request.output_schema,
        )
        await self._journal.settle()  # what came before is on record, or the work ends here
        self._guard()
        self.made += 1
        response = await self._gateway.aroute(self._bounded(request), on_text=on_text)
        self._journal.note_llm_call(response)
        if response.outcome is not RouteOutcome.SUCCESS:
            raise failure_of(response)
        return Answer(
            response.content,
            response.content_blocks or (),
            response.finish_reason,
            response.exchange_entry_id,
        )

    def recorded(self, contract_id: str) -> Answer | None:
        """The answer that the order got under a contract before it was interrupted."""
        return self._recorded.last_answer(contract_id)

    def _bounded(self, request: PromptRequest) -> PromptRequest:
        """``max_tokens`` never above what the order has left beside the prompt."""
        if self._budgeter is None:
            return request
        order = self._order
        scope = BudgetScope(order.session_id, order.wo_id, self._agent_id)
        left = self._budgeter.check(scope).remaining
        if left is None:
            return request
        try:
            left -= self._gateway.input_bound(request)
        except InvalidInputError:
            return request  # the gateway refuses it, with the reason on record
        most = left if request.max_tokens is None else min(request.max_tokens, left)
        return replace(request, max_tokens=max(1, most))
