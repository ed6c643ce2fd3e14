"""The model calls of one order: built from its contract, counted, recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from remit.agents.worker.execution import Execution, WorkFailedError
from remit.agents.workorders import Answer
from remit.contracts import PromptContract
from remit.kernel.budget import BudgetScope
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import (
    Message,
    PromptRequest,
    PromptResponse,
    RouteOutcome,
    TextSink,
)

_CODES = {
    "BUDGET_EXHAUSTED": "budget_exhausted",
    "UNPRICED": "budget_exhausted",
    "UNBOUNDED": "budget_exhausted",
    "NOT_ALLOCATED": "budget_exhausted",
    "TURN_LIMIT": "turn_limit_exceeded",
}
"""The worker's failure codes for those of the gateway."""


class ModelCalls:
    """Asks the gateway on behalf of one order; ``made`` counts the calls."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._services = execution.services
        self._order = execution.order
        self.made = execution.history.llm_calls

    def request(self, contract: PromptContract) -> PromptRequest:
        """The request that ``contract`` makes of this order, still without messages."""
        order, boundary = self._order, contract.boundary
        provider_id, model_id = boundary.provider_id, boundary.model_id
        model = self._services.model
        if model is not None and provider_id is None and model_id is None:
            provider_id, model_id = model[0] or None, model[1]
        return PromptRequest(
            prompt="",
            prompt_pack_id=contract.prompt_pack_id,
            contract_id=contract.contract_id,
            agent_id=self._services.agent_id,
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
        """One call; ``schema`` holds the output instead of what the contract says.

        Raises:
            WorkFailedError: the call failed, or the order has used its calls.
        """
        limit = self._order.constraints.turn_limit or self._services.config.turn_limit
        if self.made >= limit:
            raise WorkFailedError(
                "turn_limit_exceeded", f"the order has used its {limit} model calls"
            )
        structured = request.structured_output if schema is None else schema
        request = replace(
            request,
            messages=list(messages),
            tools=list(tools) or None,
            structured_output=None if tools else structured,
            output_schema=schema or request.output_schema,
        )
        await self._execution.journal.flush()  # what came before is on record, or the work ends
        self._execution.check()
        self.made += 1
        response = await self._services.gateway.aroute(self._bounded(request), on_text=on_text)
        self._execution.journal.note(  # the exchange holds its text, and is durable
            "LLM_CALL",
            exchange_entry_id=response.exchange_entry_id,
            dispatch_entry_id=response.dispatch_entry_id,
            outcome=str(response.outcome),
            model_id=response.model_id,
            input_tokens=response.input_tokens,
            output_tokens=response.output_tokens,
            latency_ms=response.latency_ms,
        )
        if response.outcome is not RouteOutcome.SUCCESS:
            raise _failure_of(response)
        return Answer(
            response.content,
            response.content_blocks or (),
            response.finish_reason,
            response.exchange_entry_id,
        )

    def _bounded(self, request: PromptRequest) -> PromptRequest:
        """``max_tokens`` never above what the order has left beside the prompt."""
        budgeter, order = self._services.budgeter, self._order
        if budgeter is None:
            return request
        scope = BudgetScope(order.session_id, order.wo_id, self._services.agent_id)
        left = budgeter.check(scope).remaining
        if left is None:
            return request
        try:
            left -= self._services.gateway.input_bound(request)
        except InvalidInputError:
            return request  # the gateway refuses it, with the reason on record
        most = left if request.max_tokens is None else min(request.max_tokens, left)
        return replace(request, max_tokens=max(1, most))


def _failure_of(response: PromptResponse) -> WorkFailedError:
    """What an unsuccessful response means for the order."""
    code = response.error_code or "gateway_error"
    code = "timeout" if response.outcome is RouteOutcome.TIMEOUT else _CODES.get(code, code)
    return WorkFailedError(code, response.error_message or "the gateway gave no answer")
