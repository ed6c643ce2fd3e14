"""The model calls of one order: built from its contract, limited and recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from remit.agents.worker.failures import WorkFailedError
from remit.agents.worker.messages import count_omitted
from remit.agents.workorders import Answer, Usage
from remit.contracts import PromptContract
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import (
    Message,
    PromptRequest,
    PromptResponse,
    RouteOutcome,
)

if TYPE_CHECKING:
    from remit.agents.worker.run import OrderRun

# The worker's error codes, keyed by the gateway's.
_CODES = {
    "BUDGET_EXHAUSTED": "budget_exhausted",
    "UNBOUNDED": "budget_exhausted",
    "NOT_ALLOCATED": "budget_exhausted",
    "TURN_LIMIT": "turn_limit_exceeded",
}

# Upper limits of the gateway's bound: tokens for each byte of the messages, and in addition.
_MAX_TOKENS_PER_BYTE, _MAX_FIXED_TOKENS = 4, 20_000


class ModelCalls:
    """The model calls of one order, made through the gateway.

    Args:
        run: the run of the order.

    Attributes:
        count: number of calls used of the order's limit, including refused ones.
        met_fault: True if a model failed to answer.
        initial_tokens: tokens that are allocated to the order with its first call; None if there is
            no such allocation, or the call was made.
        used: the sum of the calls; None if only the ledger knows it, because a call had several
            attempts or models, or was made by another process.
    """

    def __init__(self, run: OrderRun) -> None:
        self._run = run
        self._services = run.services
        self._order = run.order
        self.count = run.history.llm_calls
        self.initial_tokens: int | None = None
        self.met_fault = False
        self.used: Usage | None = Usage() if run.history.began is None else None
        self._remaining: int | None = None
        self._used_before: Usage | None = None
        self._typed = run.order.constraints.output_schema is not None

    def request(self, contract: PromptContract) -> PromptRequest:
        """Return the request that a contract makes for the order, without messages.

        Provider and model are the contract's; otherwise the agent's. The limits, the schemas and
        the agent class are the contract's; the order gives payer, variables and excluded models.

        Args:
            contract: the contract of the call.
        """
        order, boundary = self._order, contract.boundary
        principal = self._run.principal
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

    def prepare(
        self,
        request: PromptRequest,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        schema: Mapping[str, Any] | None = None,
    ) -> PromptRequest:
        """Return the request of the order's next call, and count the call.

        ``max_tokens`` is cut to the order's remaining tokens. Held entries are written with the
        call's first entry. Pass the response to :meth:`answer`.

        Args:
            request: the request from :meth:`request`.
            messages: the conversation.
            tools: definitions of the tools that the model may call.
            schema: output schema in place of the contract's; None for the contract's.

        Raises:
            WorkFailedError: the order has used all of its calls.
            LedgerError: an earlier write of the order failed.
            RemitError: the guard refuses, because the order is no longer this worker's.
        """
        limit = self._order.constraints.turn_limit or self._services.config.turn_limit
        if self.count >= limit:
            raise WorkFailedError(
                "turn_limit_exceeded", f"the order has used all of its {limit} model calls"
            )
        structured = request.structured_output if schema is None else schema
        request = replace(
            request,
            messages=list(messages),
            tools=list(tools) or None,
            structured_output=structured if self._typed or not tools else None,
            output_schema=schema or request.output_schema,
            ahead=self._run.journal.buffer,
        )
        self._run.check()
        self.count += 1
        self._used_before, self.used = self.used, None  # Unknown until the call has ended.
        return self._with_token_limit(request)

    def answer(self, response: PromptResponse, messages: Sequence[Message]) -> Answer:
        """Note the ``LLM_CALL`` of a call that has ended; return the model's answer.

        Args:
            response: the gateway's response to a request of :meth:`prepare`.
            messages: the conversation of that request.

        Raises:
            WorkFailedError: the call failed.
        """
        succeeded = response.outcome is RouteOutcome.SUCCESS
        self.initial_tokens, self._remaining = None, response.budget_remaining
        once = response.attempts == 1 and not response.decision_entry_id
        if self._used_before is not None and once and succeeded:
            self.used = self._used_before
            usd = response.cost_incurred if response.cost_known else None
            self.used.count(response.input_tokens, response.output_tokens, usd)
        if not succeeded or [code for _, code in response.fallback_from if code != "SET_ASIDE"]:
            self.met_fault = True
        omitted = count_omitted(messages) if self._services.context_tokens is not None else 0
        self._run.journal.note(  # The durable exchange contains the text.
            "LLM_CALL",
            exchange_entry_id=response.exchange_entry_id,
            dispatch_entry_id=response.dispatch_entry_id,
            outcome=str(response.outcome),
            model_id=response.model_id,
            input_tokens=response.input_tokens,
            output_tokens=response.output_tokens,
            latency_ms=response.latency_ms,
            **({"left_out": omitted} if omitted else {}),
        )
        if not succeeded:
            raise _failure(response)
        return Answer(
            response.content,
            response.content_blocks or (),
            response.finish_reason,
            response.exchange_entry_id,
        )

    def _with_token_limit(self, request: PromptRequest) -> PromptRequest:
        """Return the request with ``max_tokens`` at most the order's remaining tokens."""
        budgeter = self._services.budgeter
        if budgeter is None:
            return request
        wanted = request.max_tokens
        remaining = self._remaining
        if remaining is None or not _is_surely_enough(remaining, request):
            remaining, own = budgeter.check(self._run.scope).remaining, self.initial_tokens
            if own is not None:
                remaining = own if remaining is None else min(remaining, own)
        if remaining is None or _is_surely_enough(remaining, request):
            return request  # The reservation checks the limit.
        try:
            remaining -= self._services.gateway.input_bound(request)
        except InvalidInputError:
            return request  # The gateway refuses the request and records the reason.
        most = remaining if wanted is None else min(wanted, remaining)
        return replace(request, max_tokens=max(1, most))


def _is_surely_enough(remaining: int, request: PromptRequest) -> bool:
    """Return True if the remaining tokens suffice by a rough estimate."""
    if request.max_tokens is None:
        return False
    try:
        sent = orjson.dumps([request.messages, request.tools, request.structured_output])
    except TypeError:
        return False
    most = _MAX_TOKENS_PER_BYTE * len(sent) + _MAX_FIXED_TOKENS
    return b'"image"' not in sent and remaining >= most + request.max_tokens


def _failure(response: PromptResponse) -> WorkFailedError:
    """Return the error of an unsuccessful response."""
    code = response.error_code or "gateway_error"
    code = "timeout" if response.outcome is RouteOutcome.TIMEOUT else _CODES.get(code, code)
    return WorkFailedError(code, response.error_message or "the gateway gave no answer")
