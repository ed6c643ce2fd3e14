"""The model calls of one order: built from its contract, counted, recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from remit.agents.worker.execution import Execution, WorkFailedError
from remit.agents.worker.shortening import left_out
from remit.agents.workorders import Answer, Usage
from remit.contracts import PromptContract
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
    "UNBOUNDED": "budget_exhausted",
    "NOT_ALLOCATED": "budget_exhausted",
    "TURN_LIMIT": "turn_limit_exceeded",
}
"""The worker's failure codes for those of the gateway."""


_BOUND_PER_BYTE, _BOUND_BESIDE = 4, 20_000
"""More tokens than the gateway's bound has for a byte of the messages, and beside them."""


class ModelCalls:
    """Asks the gateway on behalf of one order.

    Attributes:
        made: how many calls the order has used of its limit, refused ones included.
        met_fault: whether a model that was asked did not answer.
        given: tokens that the order is given with its first call; ``None``: nothing, or before.
        used: what the calls add up to; ``None`` where only the record knows it, as a call was
            made more than once, or by several models, or by another process.
    """

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._services = execution.services
        self._order = execution.order
        self.made = execution.history.llm_calls
        self.given: int | None = None
        self.met_fault = False
        self.used: Usage | None = Usage() if execution.history.began is None else None
        self._left: int | None = None
        self._typed = execution.order.constraints.output_schema is not None

    def request(self, contract: PromptContract) -> PromptRequest:
        """The request that ``contract`` makes of this order, still without messages."""
        order, boundary = self._order, contract.boundary
        principal = self._execution.principal
        provider_id, model_id = boundary.provider_id, boundary.model_id
        model = self._services.model
        if model is not None and provider_id is None and model_id is None:
            provider_id, model_id = model[0] or None, model[1]
        return PromptRequest(
            prompt="",
            prompt_pack_id=contract.prompt_pack_id,
            contract_id=contract.contract_id,
            contract_version=contract.version,
            agent_id=self._services.agent_id,
            agent_class=contract.agent_class or self._services.agent_class,
            framework_id=contract.framework_id,
            package_id=contract.package_id,
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
            subject_id=principal.subject_id or None,
            user_id=principal.user_id or None,
            charged_to=principal.charged_to,
            for_key_id=principal.key_id,
            set_aside=order.constraints.models_aside,
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
            structured_output=structured if self._typed or not tools else None,
            output_schema=schema or request.output_schema,
        )
        journal = self._execution.journal
        if self._execution.history.began is not None:
            await journal.flush()  # a new allocation of the order counts from here on
        journal.check()
        self._execution.check()
        self.made += 1
        # What came before goes on record with the call's own first entry, or it is not made.
        request = replace(self._bounded(request), ahead=journal.buffer)
        used, self.used = self.used, None  # until it is known what the call came to
        response = await self._services.gateway.aroute(request, on_text=on_text)
        self._count(response, used)
        failed = any(code != "SET_ASIDE" for _, code in response.fallback_from)
        if failed or response.outcome is not RouteOutcome.SUCCESS:
            self.met_fault = True
        without = left_out(messages) if self._services.context_tokens is not None else 0
        journal.note(  # the exchange holds its text, and is durable
            "LLM_CALL",
            exchange_entry_id=response.exchange_entry_id,
            dispatch_entry_id=response.dispatch_entry_id,
            outcome=str(response.outcome),
            model_id=response.model_id,
            input_tokens=response.input_tokens,
            output_tokens=response.output_tokens,
            latency_ms=response.latency_ms,
            **({"left_out": without} if without else {}),
        )
        if response.outcome is not RouteOutcome.SUCCESS:
            raise _failure_of(response)
        return Answer(
            response.content,
            response.content_blocks or (),
            response.finish_reason,
            response.exchange_entry_id,
        )

    def _count(self, response: PromptResponse, used: Usage | None) -> None:
        self.given, self._left = None, response.budget_remaining
        once = response.attempts == 1 and not response.decision_entry_id
        if used is not None and once and response.outcome is RouteOutcome.SUCCESS:
            usd = response.cost_incurred if response.cost_known else None
            used.count(response.input_tokens, response.output_tokens, usd)
            self.used = used

    def _bounded(self, request: PromptRequest) -> PromptRequest:
        """``max_tokens`` never above what the order has left beside the prompt."""
        budgeter = self._services.budgeter
        if budgeter is None:
            return request
        wanted = request.max_tokens
        left = self._left
        if left is None or not _is_plenty(left, request):
            limits = (budgeter.check(self._execution.scope).remaining, self.given)
            left = min((limit for limit in limits if limit is not None), default=None)
        if left is None or _is_plenty(left, request):
            return request  # the reservation decides
        try:
            left -= self._services.gateway.input_bound(request)
        except InvalidInputError:
            return request  # the gateway refuses it, with the reason on record
        most = left if wanted is None else min(wanted, left)
        return replace(request, max_tokens=max(1, most))


def _is_plenty(left: int, request: PromptRequest) -> bool:
    """Whether so many tokens are left that it need not be counted what the request may use."""
    if request.max_tokens is None:
        return False
    try:
        sent = orjson.dumps([request.messages, request.tools, request.structured_output])
    except TypeError:
        return False
    most = _BOUND_PER_BYTE * len(sent) + _BOUND_BESIDE
    return b'"image"' not in sent and left >= most + request.max_tokens


def _failure_of(response: PromptResponse) -> WorkFailedError:
    """What an unsuccessful response means for the order."""
    code = response.error_code or "gateway_error"
    code = "timeout" if response.outcome is RouteOutcome.TIMEOUT else _CODES.get(code, code)
    return WorkFailedError(code, response.error_message or "the gateway gave no answer")
