"""The model calls of one order, and the messages between the model and the worker.

A request is built from the order's contract, limited and recorded. Of an answer, arguments are
parsed or refused, refusals and cut answers become errors that quote the model, and tool calls get
distinct ids. Tool results become text, and a long conversation is shortened.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from remit.agents.tools import is_tool_id, tool_id_of
from remit.agents.worker.failures import WorkFailedError
from remit.agents.worker.tool_results import count_omitted
from remit.agents.workorders import Answer, Usage
from remit.contracts import PromptContract
from remit.kernel.canonical import exact_json
from remit.kernel.errors import InvalidInputError, excerpt
from remit.kernel.exchange import Message, PromptRequest, PromptResponse, RouteOutcome
from remit.kernel.json_text import JsonTextError, load_unique, sound_text
from remit.kernel.secrets import redact_secrets
from remit.ledger import LedgerEntry

if TYPE_CHECKING:
    from remit.agents.worker.order_run import OrderRun

IGNORABLE = re.compile(
    "[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
"""Invisible characters: Unicode's Default_Ignorable_Code_Point, and the blank U+2800."""

UNKNOWN_TOOL = "unknown"
"""The recorded id of a tool whose requested name cannot be an id, or looks like a secret."""


def recorded_tool_id(tool_id: str, allowed: Collection[str]) -> str:
    """Return the id under which a call is recorded: the tool's, or :data:`UNKNOWN_TOOL`.

    Args:
        tool_id: the requested name, which is text of a model unless it is allowed.
        allowed: ids of the tools that the order may use.
    """
    is_open = is_tool_id(tool_id) and redact_secrets(tool_id) == tool_id
    return tool_id if is_open or tool_id in allowed else UNKNOWN_TOOL


_MAX_QUOTE = 2_000  # Characters of a model's own words in an error.
_MAX_ID_CHARS = 4_096  # Some providers put a signature into a call's id.
_KINDS = {type(None): "null", bool: "true or false", str: "a text", list: "a list"}


def tool_arguments(given: Any, schema: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the arguments of a tool call, and why the tool cannot run with them; empty if it can.

    A blank text becomes ``{}``; so do absent and ``null`` arguments, but only for a tool without
    parameters. A text is read as JSON, with halves of surrogate pairs replaced. Unusable arguments
    are returned as ``{"_unparsed": text}``, and so is an ``_unparsed`` text that is an object or
    blank after all. Whether arguments fit the schema is not checked. Nothing is raised.

    Args:
        given: the ``input`` of a model's ``tool_use`` block: an object, or ``{"_unparsed": text}``
            for a text that could not be parsed. Providers in Python may pass the text itself.
        schema: JSON Schema of the tool's arguments.
    """
    text = given if isinstance(given, str) else _unparsed_text(given)
    if isinstance(given, dict) and text is None:
        return given, ""
    value = given
    if text is not None:
        text = sound_text(text)
        try:
            value = load_unique(text, repair=True) if text.strip() else {}
        except JsonTextError as error:
            why = error.message.removeprefix("The text is not JSON: ").rstrip(".")
            return {"_unparsed": text}, f"The arguments are not JSON ({why}): {excerpt(text)!r}."
    if value is None and not (schema.get("properties") or schema.get("required")):
        return {}, ""
    if isinstance(value, dict) and isinstance(given, str):
        return value, ""
    text = str(value) if text is None else text
    if isinstance(value, dict):
        why = "they are nested too deep, or hold a member '_unparsed'"
        return {"_unparsed": text}, f"The arguments cannot be used: {why}."
    kind = _KINDS.get(type(value), "a number")
    problem = f"The arguments are not a JSON object but {kind}: {excerpt(text)!r}."
    return {"_unparsed": text}, problem


def _unparsed_text(given: Any) -> str | None:
    """Return the text of arguments that are not a JSON object; None for other arguments."""
    if isinstance(given, dict) and len(given) == 1:
        text = given.get("_unparsed")
        return text if isinstance(text, str) else None
    return None


def visible(text: str) -> str:
    """Return a text without invisible characters and surrounding space."""
    return (text if text.isascii() else IGNORABLE.sub("", text)).strip().strip("\0")


def stop_problem(answer: Answer) -> WorkFailedError | None:
    """Return why a model stopped without a usable answer; None if the answer is usable.

    The error's code is ``refusal``, ``content_filter`` or ``length``; the caller raises it. A text
    that was cut at the token limit is usable unless it is empty; see :func:`cut_short` for data. A
    cut answer with tool calls is not usable. The message quotes the beginning of the text.

    Args:
        answer: the answer.
    """
    refusals = [str(block.get("refusal", "")) for block in answer.blocks
                if block.get("type") == "refusal"]  # fmt: skip
    words = excerpt(" ".join(filter(None, [answer.text, *refusals])), _MAX_QUOTE)
    if refusals:
        return WorkFailedError("refusal", f"the model refused to answer: {words}".rstrip(": "))
    if answer.finish_reason == "content_filter":
        quote = f"; the text so far: {words}" if visible(words) else ""
        reason = "the model refused, or a content filter stopped its answer"
        return WorkFailedError("content_filter", f"{reason}{quote}")
    if answer.finish_reason != "length":
        return None
    uses_tools = any(block.get("type") == "tool_use" for block in answer.blocks)
    return cut_short(answer) if uses_tools or not visible(answer.text) else None


def cut_short(answer: Answer) -> WorkFailedError:
    """Return (not raise) the error ``length`` of an answer that was cut at the token limit, with
    the beginning of its text.

    Args:
        answer: the answer.
    """
    quote = f"; the text so far: {excerpt(answer.text, _MAX_QUOTE)}" if visible(answer.text) else ""
    return WorkFailedError("length", f"the answer was cut at its token limit (max_tokens){quote}")


def with_distinct_ids(
    blocks: Sequence[Mapping[str, Any]], messages: Sequence[Message]
) -> list[dict[str, Any]]:
    """Return an answer's blocks with a distinct id for each tool call.

    Providers refuse a conversation in which two calls have the same id. The result depends only on
    the arguments, so a resumed order sends the same ids.

    A missing or empty id, and one of over 4,096 characters, becomes ``call``. An id that occurs
    already gets a number: ``call_2``. Other blocks are copied unchanged.

    Args:
        blocks: the blocks of the answer.
        messages: the conversation before the answer.
    """
    if not [block for block in blocks if block.get("type") == "tool_use"]:
        return [*map(dict, blocks)]
    known = {
        str(block.get("id"))
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
        if block.get("type") == "tool_use"
    }
    found = []
    for block in map(dict, blocks):
        if block.get("type") == "tool_use":
            given = str(block.get("id") or "call")
            given = given if len(given) <= _MAX_ID_CHARS else "call"
            block["id"], number = given, 2
            while block["id"] in known:
                block["id"], number = f"{given}_{number}", number + 1
            known.add(block["id"])
        found.append(block)
    return found


def sendable(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a model's blocks in a form that can be sent back to the model.

    Arguments that are no object, are ``_unparsed`` or have no JSON form become ``{}``. Names that
    cannot be tool ids become one (:func:`tool_id_of`, or ``unknown`` without a character), because
    some servers refuse such a conversation. The tool's result names the reason of a refusal. The
    blocks have the order of the answer; others are copied.

    Args:
        blocks: the blocks of the answer, which are not changed.
    """
    found = []
    for block in blocks:
        arguments = block.get("input")
        if block.get("type") == "tool_use" and (
            not isinstance(arguments, dict) or _unparsed_text(arguments) is not None
        ):
            block = {**block, "input": {}}
        if block.get("type") == "tool_use" and not is_tool_id(str(block.get("name"))):
            block = {**block, "name": tool_id_of(str(block.get("name"))) or UNKNOWN_TOOL}
        try:
            exact_json(block)
            found.append(dict(block))
        except InvalidInputError:
            found.append({**block, "input": {}})
    return found


# The worker's error codes, keyed by the gateway's.
_CODES = {
    "BUDGET_EXHAUSTED": "budget_exhausted",
    "UNBOUNDED": "budget_exhausted",
    "NOT_ALLOCATED": "budget_exhausted",
    "TURN_LIMIT": "turn_limit_exceeded",
}

_CALL_FIELDS = (
    "dispatch_entry_id", "outcome", "model_id", "input_tokens", "output_tokens", "latency_ms",
)  # fmt: skip

# Upper limits of the gateway's bound: tokens for each byte of the messages, and in addition.
_MAX_TOKENS_PER_BYTE, _MAX_FIXED_TOKENS = 4, 20_000


class ModelCalls:
    """The model calls of one order, made through the gateway.

    :meth:`request` gives the contract's request, :meth:`prepare` counts a call and completes its
    request, and :meth:`answer` notes its end. The caller sends the request itself.

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
        self._is_open = False
        self._noted_id = ""
        self._typed = run.order.constraints.output_schema is not None

    def request(self, contract: PromptContract) -> PromptRequest:
        """Return the request that a contract makes for the order, without messages.

        Provider and model are the contract's if it names either; else the agent's. Limits and
        schemas are the contract's, also if the order has an output schema; so is the agent class,
        if it names one. The order gives variables and excluded models, its principal the payer.

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

        With a budgeter, ``max_tokens`` is cut to the order's remaining tokens, but not below 1; the
        call's reservation checks the limit. Structured output is not requested together with tools,
        unless the order has an output schema of its own. The order's held entries are passed on as
        ``ahead`` and written with the call's first entry. Pass the response to :meth:`answer`.

        Args:
            request: the request from :meth:`request`.
            messages: the conversation.
            tools: definitions of the tools that the model may call.
            schema: output schema in place of the contract's; None for the contract's.

        Raises:
            WorkFailedError: the order has used all of its calls.
            LedgerError: an earlier write of the order failed, or the budget cannot be read.
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
        self._is_open = True
        self._used_before, self.used = self.used, None  # Unknown until the call has ended.
        return self._with_token_limit(request)

    def answer(self, response: PromptResponse, messages: Sequence[Message]) -> Answer:
        """Note the ``LLM_CALL`` of a call that has ended; return the model's answer.

        A call that failed sets :attr:`met_fault`; so does a fallback after a failure, but not one
        from an excluded model. The entry is held for the next write, before the failure is raised.
        Whether the answer is usable, :func:`stop_problem` says.

        Args:
            response: the gateway's response to a request of :meth:`prepare`.
            messages: the conversation of that request.

        Raises:
            WorkFailedError: the call failed; with the code ``timeout``, ``budget_exhausted`` or
                ``turn_limit_exceeded``, else the gateway's own.
            InvalidInputError: the entry cannot be recorded.
        """
        succeeded = response.outcome is RouteOutcome.SUCCESS
        self.initial_tokens, self._remaining = None, response.budget_remaining
        self._is_open, self._noted_id = False, response.exchange_entry_id
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

    def note_recorded(self, exchange: LedgerEntry) -> None:
        """Note the ``LLM_CALL`` of a recorded call whose response this run does not have.

        Args:
            exchange: the call's last ``EXCHANGE``.

        Raises:
            InvalidInputError: the entry cannot be recorded.
        """
        data = {name: exchange.metadata[name] for name in _CALL_FIELDS}
        self._run.journal.note("LLM_CALL", exchange_entry_id=exchange.id, **data)

    def note_interrupted(self) -> None:
        """Note the ``LLM_CALL`` of a call that was sent and interrupted, if there is one.

        Raises:
            InvalidInputError: the entry cannot be recorded.
            LedgerError: the ledger cannot be read.
        """
        if not self._is_open:
            return
        self._is_open = False
        exchange = self._newest("EXCHANGE")
        if exchange is None or exchange.id == self._noted_id:
            return
        noted = self._newest("LLM_CALL")
        if noted is None or noted.metadata["exchange_entry_id"] != exchange.id:
            self.note_recorded(exchange)

    def _newest(self, event_type: str) -> LedgerEntry | None:
        found = self._run.journal.ledger.query(
            work_order_id=self._order.wo_id, session_id=self._order.session_id,
            event_type=event_type, order="desc", limit=1, with_content=False,
        )  # fmt: skip
        return next(iter(found), None)

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
