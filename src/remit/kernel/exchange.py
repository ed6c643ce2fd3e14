"""The value objects of one model call, and the port through which agents reach the gateway.

They are separate from the gateway's class, so that a worker does not see the routing.

A message is ``{"role": "system" | "user" | "assistant", "content": str | [block, …]}``.
A block is one of::

    {"type": "text", "text": str}
    {"type": "image", "source": {"type": "base64", "media_type": str, "data": str}}
    {"type": "image", "source": {"type": "url", "url": str}}
    {"type": "tool_use", "id": str, "name": str, "input": object}
    {"type": "tool_result", "tool_use_id": str, "content": str | [block, …], "is_error": bool}

Blocks of other types are passed on unchanged, for the provider to accept or refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

Message = dict[str, Any]

MAX_ID_CHARS = 512
"""Longest id of any kind: ids are in records as they are, and a record has a limit."""

_ROLES = ("system", "user", "assistant")
_REQUIRED: dict[str, dict[str, type | tuple[type, ...]]] = {
    "text": {"text": str},
    "image": {"source": dict},
    "tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"tool_use_id": str, "content": (str, list)},
}


def conversation(turns: Iterable[tuple[str, str]]) -> list[Message]:
    """Return the messages of turns, given as pairs of user text and assistant text.

    Each turn gives a ``user`` and an ``assistant`` message, in order; no turns, an empty list.

    Args:
        turns: pairs, oldest first; of another length they raise ValueError.
    """
    return [
        {"role": role, "content": text}
        for turn in turns
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]


def check_messages(messages: Sequence[Any]) -> str:
    """Return the first fault of ``messages``, without quoting content; empty if none.

    Each message is an object whose ``role`` is ``system``, ``user`` or ``assistant`` and whose
    ``content`` is a text or a list of blocks. A block is an object with a ``type``: ``text`` needs
    ``text``; ``image``, ``source``; ``tool_use``, ``id``, ``name`` and ``input``; ``tool_result``,
    ``tool_use_id`` and ``content``. No messages are a fault; an empty text or list of blocks is
    not. Unknown types of blocks, blocks inside a tool result, further members and any order of
    roles are accepted. The text begins with the place, such as ``messages[0].content[2]``.

    Args:
        messages: the conversation, oldest first.
    """
    if not messages:
        return "messages is empty"
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, dict):
            return f"{where} is a {type(message).__name__}, not an object"
        if message.get("role") not in _ROLES:
            return f"{where}.role is not one of {', '.join(_ROLES)}"
        content = message.get("content")
        if isinstance(content, str):
            continue
        if not isinstance(content, (list, tuple)):
            return f"{where}.content is neither a text nor a list of blocks"
        for number, block in enumerate(content):
            problem = _check_block(block)
            if problem:
                return f"{where}.content[{number}] {problem}"
    return ""


def text_of(content: Any) -> str:
    """Return the plain text of a message's content: a string, or text blocks joined.

    Other blocks are left out; any other content gives an empty text. Blocks are joined without a
    separator.

    Args:
        content: a string, a list of blocks, or anything else.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, (list, tuple)):
        return ""
    return "".join(
        str(block.get("text", ""))
        for block in content
        if isinstance(block, dict) and block.get("type") == "text"
    )


def _check_block(block: Any) -> str:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return "is not an object with a type"
    for key, kind in _REQUIRED.get(block["type"], {}).items():
        if not isinstance(block.get(key), kind):
            return f"is a {block['type']} block without a usable {key!r}"
    return ""


class WritesAhead(Protocol):
    """Entries that a caller commits in the transaction that begins its call.

    The gateway calls :meth:`take`, commits the entries with the call's first entry, and passes the
    transaction's future to :meth:`follow`.
    """

    async def take(self) -> list[Any]:
        """Return and forget the pending entries, which the taker submits to the ledger at once.

        The commit of the entries taken before, noted by :meth:`follow`, is awaited. If it failed,
        its error is raised, and the pending entries stay.
        """

    def follow(self, write: asyncio.Future[Any]) -> None:
        """Note the transaction with the taken entries, whose future :meth:`take` awaits."""


@dataclass(slots=True)  # not frozen: one is made for each call, and that costs three times as much
class PromptRequest:
    """A call to a model, as ordered by an agent.

    The values are not checked here, and no code changes them afterwards. ``repr`` shows only ids.

    Attributes:
        prompt: the rendered prompt; may be empty when ``messages`` is given.
        prompt_pack_id: the prompt pack of the prompt, for the record; empty for none.
        contract_id: the contract that the call is made under; the gateway refuses an empty one.
        agent_id: the agent, whose budget in the session also pays.
        agent_class: ``KERNEL.syntactic``, ``KERNEL.semantic``, ``ADMIN`` or ``RESIDENT``.
        framework_id: the framework of the agent's package; empty for none.
        package_id: the agent's package; empty for none.
        work_order_id: the work order, which also pays; empty for none.
        session_id: the session, which also pays; the gateway refuses an empty one.
        tier: ``hot``, ``ho2`` or ``ho1``.
        model_id: the model or the name of a route; ``None`` for the default.
        provider_id: the provider; ``None`` if ``model_id`` or the settings decide.
        max_tokens: most output tokens the provider may produce; ``None`` leaves the end to the
            model, whose largest output is then reserved.
        temperature: sampling temperature, 0 to 2; ``None`` sends none.
        structured_output: a JSON Schema the provider is asked to hold its output to, or ``True``
            for ``output_schema``.
        input_schema: JSON Schema that ``template_variables`` must satisfy.
        output_schema: JSON Schema that the response's JSON is checked against; a mismatch is
            reported on the response, not refused.
        template_variables: the variables that the prompt was rendered from; checked against
            ``input_schema``.
        tools: definitions offered, each ``{"name", "description", "input_schema"}``.
        domain_tags: tags for the record; ``None`` for none.
        auth_token: the caller's credential; never recorded, never shown by ``repr``.
        subject_id: the person that the content is about; stored with the content for erasure.
        messages: a conversation as for :func:`check_messages`. If given, it is sent and recorded
            in place of ``prompt``.
        body: a request body in wire form, a :class:`remit.providers.Body`. If given, it is sent,
            and the content fields above are ignored.
        headers: client headers that are forwarded to the provider.
        query: the query of the client's URL, for a provider of the body's dialect.
        keeper: a :class:`remit.gateway.values.Keeper` if the answer is stored under an id.
        idempotency_key: a call that succeeded under the same key is answered from the record.
        user_id: the user whose budget also pays if the caller's key names no user.
        charged_to: further accounts that pay: the sessions and orders that contain this call.
        for_key_id: the virtual key on whose behalf an agent's session works. The key must be valid,
            and its restrictions apply to the call.
        ahead: entries that are committed before the call's first entry, in its transaction.
        contract_version: version of the contract that the prompt was rendered from, if known.
        set_aside: models (``provider/model``) that are skipped as long as a fallback remains.
    """

    prompt: str
    prompt_pack_id: str
    contract_id: str
    agent_id: str
    agent_class: str
    framework_id: str
    package_id: str
    work_order_id: str
    session_id: str
    tier: str
    model_id: str | None = None
    provider_id: str | None = None
    max_tokens: int | None = 4096
    temperature: float | None = 0.0
    structured_output: Mapping[str, Any] | bool | None = None
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    template_variables: Mapping[str, Any] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    domain_tags: Sequence[str] | None = None
    auth_token: str | None = None
    subject_id: str | None = None
    messages: Sequence[Message] | None = None
    body: Any = None
    headers: Mapping[str, str] | None = None
    keeper: Any = None
    idempotency_key: str | None = None
    user_id: str | None = None
    charged_to: tuple[str, ...] = ()
    for_key_id: str = ""
    ahead: WritesAhead | None = None
    contract_version: str = ""
    set_aside: tuple[str, ...] = ()
    query: str = ""

    def __repr__(self) -> str:
        return (
            f"PromptRequest(contract_id={self.contract_id!r}, session_id={self.session_id!r}, "
            f"agent_id={self.agent_id!r}, work_order_id={self.work_order_id!r})"
        )


class RouteOutcome(StrEnum):
    """The outcome of a call.

    Attributes:
        SUCCESS: the provider answered.
        REJECTED: the gateway refused the request; nothing was sent.
        TIMEOUT: no answer came in time.
        ERROR: the call failed for another reason.
    """

    SUCCESS = "success"
    REJECTED = "rejected"
    TIMEOUT = "timeout"
    ERROR = "error"


class Reply(Struct, frozen=True):
    """A provider's answer, unchanged.

    Attributes:
        endpoint: the endpoint whose format the body has, for example ``openai.chat``.
        status: the HTTP status code.
        headers: headers that are forwarded to the client, names in lower case.
        body: the body; for a stream, the assembled answer.
        is_json: True if the body is JSON; ``None`` if this was not checked.
    """

    endpoint: str
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    is_json: bool | None = None

    def __repr__(self) -> str:
        return f"Reply({self.endpoint!r}, {self.status}, {len(self.body)} bytes)"


@dataclass(slots=True)  # not frozen: one is made for each call, and that costs three times as much
class PromptResponse:
    """The outcome of a :class:`PromptRequest`; receivers change nothing in the object.

    Attributes:
        content: text of the answer; empty without one.
        outcome: success, or the kind of failure.
        input_tokens: tokens charged for the request.
        output_tokens: tokens charged for the answer.
        model_id: the model that answered.
        provider_id: the provider of that model.
        latency_ms: milliseconds from dispatch to answer of the last attempt.
        timestamp: time of the response, ISO 8601.
        exchange_entry_id: ledger id of the ``EXCHANGE``, or of the ``PROMPT_REJECTED``.
        dispatch_entry_id: ledger id of the ``DISPATCH``; empty if nothing was sent.
        output_valid: True if the output satisfied ``output_schema``; ``None`` without one.
        output_validation_errors: faults of the output against ``output_schema``, as sentences.
        context_hash: SHA-256 (64 hex digits) of the sent request.
        error_code: stable code of the failure; ``None`` after success.
        error_message: text of the failure for people; ``None`` after success.
        cost_incurred: US dollars; 0.0 if no price is known (see ``cost_certainty``).
        budget_remaining: remaining tokens of the narrowest limit; ``None`` without one.
        finish_reason: the provider's reason in neutral words: ``stop``, ``length``, ``tool_use``.
        content_blocks: the provider's blocks (text, tool_use); ``None`` if it sent none.
        cost_certainty: ``measured``, ``estimated``, ``upper_bound``, ``unpriced``; empty without
            budgets.
        cost_known: True if ``cost_incurred`` follows from a price.
        retry_after_s: seconds after which a refused call may be tried again; ``None`` if unknown.
        cached_input_tokens: the part of ``input_tokens`` that the provider read from its cache.
        reasoning_tokens: the part of ``output_tokens`` that was hidden reasoning.
        reply: the provider's unchanged answer, for a call with a body; ``None`` without one.
        fallback_from: models that were skipped or failed, each with its error code.
        error_param: the field of the request that is at fault; ``None`` for none.
        attempts: number of times that the request was sent.
        replayed: True if the answer was read from the record; nothing was sent or charged.
        decision_entry_id: the entry of the decision that chose the model; empty without one.
        dropped: the client's names of fields that did not reach the provider as sent.
        cause: the :attr:`remit.providers.ProviderError.cause` of the failure; empty without one.
    """

    content: str
    outcome: RouteOutcome
    input_tokens: int
    output_tokens: int
    model_id: str
    provider_id: str
    latency_ms: float
    timestamp: str
    exchange_entry_id: str
    dispatch_entry_id: str = ""
    output_valid: bool | None = None
    output_validation_errors: list[str] = field(default_factory=list)
    context_hash: str = ""
    error_code: str | None = None
    error_message: str | None = None
    cost_incurred: float = 0.0
    budget_remaining: int | None = None
    finish_reason: str = "stop"
    content_blocks: tuple[dict[str, Any], ...] | None = None
    cost_certainty: str = ""
    cost_known: bool = False
    retry_after_s: float | None = None
    cached_input_tokens: int = 0
    reasoning_tokens: int = 0
    reply: Reply | None = field(default=None, repr=False)
    fallback_from: tuple[tuple[str, str], ...] = ()
    error_param: str | None = None
    attempts: int = 0
    replayed: bool = False
    decision_entry_id: str = ""
    dropped: Sequence[str] = ()
    cause: str = ""

    @property
    def created(self) -> int:
        """The ``timestamp`` in whole seconds since 1970, rounded down."""
        return int(datetime.fromisoformat(self.timestamp).timestamp())


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the answer's text.

    Attributes:
        text: the piece, to be appended to the earlier ones.
    """

    text: str


@dataclass(frozen=True, slots=True)
class ToolUseStart:
    """The model begins to call a tool.

    Attributes:
        index: distinguishes the calls of one answer; unique within it.
        id: the call's id, which its result will name.
        name: the tool's name.
    """

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolInputDelta:
    """The next piece of a tool call's input.

    Attributes:
        index: the ``index`` of the call's :class:`ToolUseStart`.
        partial_json: text that gives the input's JSON when all pieces are joined.
    """

    index: int
    partial_json: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """The next chunk of the model's thinking.

    Attributes:
        text: empty if the chunk holds only the signature.
        signature: the provider's signature of the thinking so far; ends this thinking block.
        raw: True if the text is the thinking itself, not a summary.
    """

    text: str
    signature: str = ""
    raw: bool = False


@dataclass(frozen=True, slots=True)
class RefusalDelta:
    """The next chunk of the text with which the model refuses to answer.

    Attributes:
        text: the chunk, to be appended to the earlier ones.
    """

    text: str


@dataclass(frozen=True, slots=True)
class BlockEnd:
    """The end of a block of the answer, or a block that arrived complete.

    Attributes:
        block: the complete block, with citations, signatures and a call's input.
        index: the ``index`` of a call's :class:`ToolUseStart`; ``None`` for other blocks.
    """

    block: dict[str, Any]
    index: int | None = None


StreamEvent = TextDelta | ToolUseStart | ToolInputDelta | ThinkingDelta | RefusalDelta | BlockEnd
"""One piece of a streamed answer."""


TextSink = Callable[[str], None]
"""Receives the answer's text piece by piece, as it comes."""


@dataclass(frozen=True, slots=True)
class ModelCapabilities:
    """Capabilities of the model that a request would reach.

    Attributes:
        native_tools: takes tool definitions and answers with tool_use blocks.
        structured_output: can be held to a JSON Schema.
        prose: can be trusted to write answers. Without it, the model only chooses tools by
            schema, and code prints their results.
        images: takes images, in a tool's result too.
    """

    native_tools: bool = True
    structured_output: bool = True
    prose: bool = True
    images: bool = True


class GatewayPort(Protocol):
    """The gateway of a worker: sends a call, and describes the model that a call would reach.

    Only :meth:`aroute` sends and records anything.
    """

    async def aroute(
        self, request: PromptRequest, *, on_text: TextSink | None = None
    ) -> PromptResponse:
        """Send a request and return its response; a failed call is an outcome, not an error.

        The call, its answer and its cost are recorded in the ledger.

        Args:
            request: the call.
            on_text: receives the answer's text piece by piece; ``None`` for the response alone.

        Raises:
            LedgerError: the call cannot be recorded.
        """

    def capabilities(self, request: PromptRequest) -> ModelCapabilities:
        """Return the capabilities of the model that ``request`` would reach.

        Args:
            request: the call; nothing is sent.

        Raises:
            NotFoundError: the route that the request names does not exist.
        """

    def input_bound(self, request: PromptRequest) -> int:
        """Return the maximum input tokens that ``request`` can be billed for.

        Args:
            request: the call; nothing is sent.

        Raises:
            InvalidInputError: the request has no canonical form.
        """
