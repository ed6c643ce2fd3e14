"""Rules of single providers that others of their dialect do not have, applied to outgoing bodies.

A client that changes models within a conversation sends one provider's data to another: ids of
calls, signatures of thoughts, incomplete arguments. Sources: Anthropic's "extended thinking",
OpenAI's reference of Chat Completions and Responses, Google's "thought signatures", Mistral's and
OpenRouter's API reference.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import orjson

from remit.kernel.json_text import dump
from remit.providers.dialects.arguments import json_text, read_arguments
from remit.providers.dialects.messages.request_writer import in_plain_round
from remit.providers.dialects.names import wire_id
from remit.providers.dialects.seals import is_marked
from remit.providers.wire.body import Body

__all__ = ["MADE_BY_A_MODEL", "Target", "fitted_body", "fitted_messages", "target_of"]

_NINE = re.compile("[A-Za-z0-9]{9}")
_MISTRAL = re.compile("(^|/)(mistral|devstral|codestral|magistral|ministral|pixtral)")
_REASON = "this provider refuses what another provider made"
_PLAIN_ROUND = "a round of tools that began without this provider's thoughts ends without them"
_THOUGHTS = ("reasoning_content", "reasoning")
_CALLS = ("function_call", "custom_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_OWN_ITEM = re.compile("rs_[0-9a-f-]{32,64}_[0-9]+")
MADE_BY_A_MODEL = re.compile(rb'"tool_|"function_call|"custom_tool_call|"thinking"|"reasoning')
"""Matches each body that may hold a call or a thought: no other one changes for its provider."""


@dataclass(frozen=True, slots=True)
class Target:
    """A provider's rules for the conversation in a body.

    Attributes:
        takes_any_arguments: the arguments of a call need not be JSON.
        takes_thoughts: assistant messages of Chat Completions may have ``reasoning_content``.
        takes_details: they may have ``reasoning_details`` (OpenRouter).
        takes_google: tool calls may have ``extra_content`` with Google's signatures.
        needs_signature: a thinking block of the Messages API needs the provider's signature.
        nine_letters: ids of tool calls are exactly nine letters and digits (Mistral).
    """

    takes_any_arguments: bool = False
    takes_thoughts: bool = True
    takes_details: bool = False
    takes_google: bool = False
    needs_signature: bool = False
    nine_letters: bool = False

    def call_id(self, identity: str) -> str:
        """Return a tool call's id in the provider's form, the same for a call and its result."""
        if not self.nine_letters:
            return wire_id(identity)
        if _NINE.fullmatch(identity):
            return identity
        return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:9]


def target_of(name: str, base_url: str, model: str) -> Target:
    """Return the rules of a provider.

    Args:
        name: the provider's id in the settings.
        base_url: the provider's base URL.
        model: the provider's name of the model.
    """
    host = urlsplit(base_url).hostname or ""
    mistral = name == "mistral" or host.endswith("mistral.ai") or bool(_MISTRAL.search(model))
    groq = name == "groq" or host.endswith("groq.com")
    return Target(
        takes_any_arguments=name == "openai" or host.endswith((".openai.com", ".azure.com")),
        takes_thoughts=not (groq or mistral),
        takes_details=name == "openrouter" or host.endswith("openrouter.ai"),
        takes_google=name in ("gemini", "google") or host.endswith("googleapis.com"),
        needs_signature="claude" in model,
        nine_letters=mistral,
    )


def fitted_body(body: Body, target: Target) -> Body:
    """Return a client's body adapted to the provider; the changes are noted in it."""
    name = body.endpoint.prompt
    given = body.value.get(name)
    if type(given) is not list:
        return body
    changed: dict[int, bytes | None] = {}
    for place, fitted in enumerate(_fitted(body.endpoint.name, given, target)):
        if fitted is not given[place]:
            changed[place] = None if fitted is None else dump(fitted)
    if not changed:
        return body
    body = body.with_elements(name, changed, _REASON)
    thinking = body.value.get("thinking")
    enabled = type(thinking) is dict and thinking.get("type") == "enabled"
    if enabled and in_plain_round(body.value[name]):
        return body.without_member(("thinking",), _PLAIN_ROUND)
    return body


def fitted_messages(endpoint: str, given: list[Any], target: Target) -> list[Any]:
    """Return translated messages or input items adapted to the provider.

    Arguments are written as JSON in all of them, because no client wrote these texts.
    """
    target = replace(target, takes_any_arguments=False)
    return [fitted for fitted in _fitted(endpoint, given, target) if fitted is not None]


def _fitted(endpoint: str, given: list[Any], target: Target) -> Iterable[Any]:
    """Yield each message as the provider takes it: the same object if nothing changes, None if
    nothing of it is left."""
    fit = {
        "openai.chat": _chat_message,
        "openai.responses": _item,
        "anthropic.messages": _message,
    }.get(endpoint)
    for message in given:
        yield message if fit is None or type(message) is not dict else fit(message, target)


def _chat_message(message: dict[str, Any], target: Target) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    if message.get("role") == "tool" and type(identity := message.get("tool_call_id")) is str:
        changed["tool_call_id"] = target.call_id(identity)
    calls = message.get("tool_calls")
    if type(calls) is list:
        fitted = [_chat_call(call, target) for call in calls]
        if any(one is not call for one, call in zip(fitted, calls, strict=True)):
            changed["tool_calls"] = fitted
    dropped: set[str] = set()
    if not target.takes_thoughts:
        dropped.update(_THOUGHTS)
    if not target.takes_details:
        dropped.add("reasoning_details")
    return _with(message, changed, dropped)


def _chat_call(call: Any, target: Target) -> Any:
    if type(call) is not dict:
        return call
    changed: dict[str, Any] = {}
    if type(identity := call.get("id")) is str:
        changed["id"] = target.call_id(identity)
    function = call.get("function")
    if type(function) is dict:
        text = function.get("arguments")
        if type(text) is str and (whole := _arguments(text, target)) is not text:
            changed["function"] = {**function, "arguments": whole}
    return _with(call, changed, () if target.takes_google else ("extra_content",))


def _arguments(text: str, target: Target) -> str:
    """Return a call's arguments as the provider takes them: the same text if they are JSON."""
    if target.takes_any_arguments:
        return text
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return json_text(read_arguments(text))
    return text


def _message(message: dict[str, Any], target: Target) -> dict[str, Any] | None:
    content = message.get("content")
    if type(content) is not list:
        return message
    kept = [_block(block, target) for block in content]
    if all(one is block for one, block in zip(kept, content, strict=True)):
        return message
    kept = [block for block in kept if block is not None]
    return {**message, "content": kept} if kept else None


def _block(block: Any, target: Target) -> Any:
    kind = block.get("type") if type(block) is dict else None
    if kind == "thinking":
        seal = block.get("signature")
        foreign = is_marked(seal) or (target.needs_signature and not seal)
        return None if foreign else block
    if kind == "redacted_thinking":
        return None if is_marked(block.get("data")) else block
    name = {"tool_use": "id", "tool_result": "tool_use_id"}.get(str(kind))
    if name is None or type(identity := block.get(name)) is not str:
        return block
    return _with(block, {name: target.call_id(identity)}, ())


def _item(item: dict[str, Any], target: Target) -> dict[str, Any] | None:
    kind = item.get("type")
    if kind == "reasoning":
        seal = item.get("encrypted_content")
        own = not seal and _OWN_ITEM.fullmatch(str(item.get("id") or ""))
        return None if is_marked(seal) or own else item
    if kind in _CALLS or kind in _OUTPUTS:
        identity = item.get("call_id")
        if type(identity) is str:
            changed: dict[str, Any] = {"call_id": target.call_id(identity)}
            if kind == "function_call" and type(text := item.get("arguments")) is str:
                changed["arguments"] = _arguments(text, target)
            return _with(item, changed, ())
    return item


def _with(
    value: dict[str, Any], changed: Mapping[str, Any], dropped: Iterable[str]
) -> dict[str, Any]:
    """Return ``value`` with other members and without some; itself if that changes nothing."""
    new = {name: each for name, each in changed.items() if value[name] != each}
    gone = {name for name in dropped if name in value}
    if not new and not gone:
        return value
    return {name: new.get(name, each) for name, each in value.items() if name not in gone}
