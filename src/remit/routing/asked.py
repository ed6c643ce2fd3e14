"""What is to be routed: a request, and its prompt as it is scored and recorded."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from remit.gateway import FinishCall
from remit.gateway.auth import Identity
from remit.kernel.canonical import canonical_json
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import PromptRequest, TextSink, check_messages
from remit.ledger import EncodedValue
from remit.providers import EventSink
from remit.routing.emitters import NO_OP_DECISION_EMITTER, DecisionEmitter

Prompt = str | Sequence[Mapping[str, Any]]

_PLAIN_ROLES = frozenset({"user", "assistant", "system"})


@dataclass(slots=True)
class Asked:
    """What is to be routed.

    Attributes:
        request: what candidates get, without a model.
        prompt: by which it is scored, and what a decision keeps: a text, or messages.
        encoded: that in canonical JSON.
        is_plain: whether the prompt is the messages of the request's body as they came.
        needs: what it needs that not every model has.
        emitter: gets the decision.
        identity: who calls, where already authenticated.
        on_text: receives the answer's text as it comes: of the model that answers, alone.
        sink: receives all that its stream brings.
    """

    request: PromptRequest
    prompt: Prompt
    encoded: bytes
    is_plain: bool = False
    needs: Sequence[str] = ()
    emitter: DecisionEmitter = NO_OP_DECISION_EMITTER
    identity: Identity | None = None
    on_text: TextSink | None = None
    sink: EventSink | None = None


def asked_of(prompt: Prompt, request: PromptRequest | None = None) -> Asked:
    """A prompt to be routed, under the terms of ``request``.

    Raises:
        InvalidInputError: it cannot be sent, or not be recorded.
    """
    base = request or new_request()
    if isinstance(prompt, str):
        if not prompt.strip():
            raise InvalidInputError("The prompt is empty.")
        made, sent = replace(base, prompt=prompt, messages=None), prompt
        return Asked(made, sent, canonical_json(sent), needs=_needs_of(made))
    if problem := check_messages(prompt):
        raise InvalidInputError(f"The messages cannot be sent: {problem}.")
    messages = [dict(message) for message in prompt]
    made = replace(base, prompt="", messages=messages)
    return Asked(made, messages, canonical_json(messages), needs=_needs_of(made))


def asked_plainly(request: PromptRequest) -> Asked | None:
    """A body's messages, where they say the same in neutral form, as those of most chats do.

    ``None`` where they have to be translated, or cannot be recorded in canonical form.
    """
    body = request.body
    value = body.value
    if body.endpoint.name != "openai.chat" or request.keeper is not None or "functions" in value:
        return None
    messages = value["messages"]
    for message in messages:
        if (
            type(message) is not dict
            or len(message) != 2
            or type(message.get("content")) is not str
            or message.get("role") not in _PLAIN_ROLES
        ):
            return None
    try:
        # Of texts under such names this is the canonical form.
        encoded = orjson.dumps(messages, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return None
    return Asked(request, messages, encoded, True, ("tools",) if value.get("tools") else ())


def as_it_came(asked: Asked, step: FinishCall) -> Sequence[EncodedValue]:
    """The messages of a plain prompt as the answer's record has them: the text that came.

    Empty where it has them in another form, or what was sent was not what came.
    """
    body = asked.request.body
    for item in step.prepared[0].contents if asked.is_plain else ():
        if (
            isinstance(item, list)
            and len(item) == len(asked.prompt)
            and b",".join([message.encoded for message in item]) in body.raw
        ):
            return item
    return ()


def _needs_of(request: PromptRequest) -> list[str]:
    """What a call needs that not every model has: ``images``, ``tools``."""
    needs = ["tools"] if request.tools else []
    for message in request.messages or ():
        if _has_image(message.get("content")):
            needs.append("images")
            break
    return needs


def _has_image(content: Any) -> bool:
    """Return True if an image is among content blocks, or in the result of a tool among them."""
    return isinstance(content, (list, tuple)) and any(
        isinstance(block, Mapping)
        and (
            block.get("type") == "image"
            or (block.get("type") == "tool_result" and _has_image(block.get("content")))
        )
        for block in content
    )


def new_request(agent_id: str = "", session_id: str = "", **fields: Any) -> PromptRequest:
    """A request under no contract but that of calls passed through."""
    return PromptRequest(
        prompt="",
        prompt_pack_id="",
        contract_id="PRC-PASSTHROUGH-001",
        agent_id=agent_id,
        agent_class="RESIDENT",
        framework_id="",
        package_id="",
        work_order_id="",
        session_id=session_id or f"SES-{secrets.token_hex(8).upper()}",
        tier="ho1",
        **fields,
    )
