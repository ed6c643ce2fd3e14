"""What is to be routed: a request, and its prompt as it is scored and recorded."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from remit.kernel.canonical import canonical_json
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import PromptRequest, check_messages

Prompt = str | Sequence[Mapping[str, Any]]

_PLAIN_ROLES = frozenset({"user", "assistant", "system"})


@dataclass(slots=True)
class Asked:
    """What is to be routed.

    Attributes:
        request: what candidates get, without a model.
        prompt: by which it is scored, and what a decision keeps: a text, or messages.
        encoded: that in canonical JSON.
        exact: the messages as the JSON text that came, where that says the same.
        needs: what it needs that not every model has.
    """

    request: PromptRequest
    prompt: Prompt
    encoded: bytes
    exact: Sequence[bytes] = ()
    needs: Sequence[str] = ()


def asked_of(prompt: Prompt, request: PromptRequest | None = None) -> Asked:
    """A prompt to be routed, under the terms of ``request``.

    Raises:
        InvalidInputError: it cannot be sent, or not be recorded.
    """
    base = request or new_request()
    if isinstance(prompt, str):
        if not prompt.strip():
            raise InvalidInputError("The prompt is blank.")
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
    exact = body.cut().pieces["prompt"]
    if type(exact) is not list:
        return None
    try:
        # Of texts under such names this is the canonical form.
        encoded = orjson.dumps(messages, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return None
    return Asked(request, messages, encoded, exact, ("tools",) if value.get("tools") else ())


def _needs_of(request: PromptRequest) -> list[str]:
    """What a call needs that not every model has: ``images``, ``tools``."""
    needs = ["tools"] if request.tools else []
    for message in request.messages or ():
        content = message.get("content")
        if not isinstance(content, str) and any(
            isinstance(block, Mapping) and block.get("type") == "image" for block in content or ()
        ):
            needs.append("images")
            break
    return needs


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
