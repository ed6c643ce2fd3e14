"""The request to route, and its prompt in the form that is scored and recorded."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from remit.gateway.auth import Identity
from remit.kernel.canonical import canonical_json
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import PromptRequest, TextSink, check_messages
from remit.ledger import EncodedValue, Prepared
from remit.providers import EventSink
from remit.routing.decision import encode_prompt
from remit.routing.emitters import NO_OP_DECISION_EMITTER, DecisionEmitter

Prompt = str | Sequence[Mapping[str, Any]]

_PLAIN_ROLES = frozenset({"user", "assistant", "system"})


@dataclass(slots=True)
class Asked:
    """A request to route.

    Attributes:
        request: the request for candidates, without a model.
        prompt: the scored and recorded prompt: a text, or messages.
        encoded: the prompt in canonical JSON, greater integers exact.
        is_plain: True if the prompt is the messages of the request's body, unchanged.
        needs: capabilities that not every model has: ``images``, ``tools``.
        emitter: receives the decision.
        identity: the caller, if already authenticated.
        on_text: receives the text of the answering model as it comes.
        sink: receives every event of its stream.
        balance_nano: balance of a learned route's spend, in nano-dollars.
        warm_nano: nano-dollars that the session's warm prompt cache saves, by candidate.
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
    balance_nano: int = 0
    warm_nano: Mapping[str, int] = field(default_factory=dict)


def asked_of(prompt: Prompt, request: PromptRequest | None = None) -> Asked:
    """Return a prompt as a request to route, with the other fields of ``request``.

    Args:
        prompt: a text, or the messages of a conversation.
        request: the base; None for a new request without a contract.

    Raises:
        InvalidInputError: the prompt is blank, malformed or cannot be recorded.
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
    return Asked(made, messages, encode_prompt(messages), needs=_needs_of(made))


def asked_plainly(request: PromptRequest) -> Asked | None:
    """Return the request to route if its body's messages are the same in neutral form.

    Most chats are so. None for another endpoint than Chat Completions, for a body with
    ``functions``, for a message with more than a text and the role ``user``, ``assistant`` or
    ``system``, for a call whose conversation is stored, and for messages that have no canonical
    form. ``tools`` is the only need that is noted.

    Args:
        request: a request with a body.
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


def as_it_came(asked: Asked, exchange: Prepared) -> Sequence[EncodedValue]:
    """Return the messages of a plain prompt as the answer's record encodes them.

    Empty if the record has them in another form, or if the sent text differs from the received one.
    """
    body = asked.request.body
    for item in exchange.contents if asked.is_plain else ():
        if (
            isinstance(item, list)
            and len(item) == len(asked.prompt)
            and b",".join([message.encoded for message in item]) in body.raw
        ):
            return item
    return ()


def _needs_of(request: PromptRequest) -> list[str]:
    """Return the capabilities that a call needs and not every model has."""
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
    """Return a request without a prompt, under the contract of calls passed through.

    Args:
        agent_id: the agent.
        session_id: the session; empty for a new random id.
        fields: further fields of the request.
    """
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
