"""Tool calls in a form that every provider accepts, and the way back to the client's own.

Each provider refuses a conversation in which a call has no result directly after it, a result has
no call, or two calls share an id. Clients send such conversations after an interruption, or after
another provider that repeats ids.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections import deque
from typing import Any

import orjson

from remit.kernel.exchange import Message
from remit.kernel.json_text import JsonTextError, dump, load_unique, sound_text
from remit.providers.dialects.model_call import ModelCall

_PLAIN = re.compile("[A-Za-z0-9_-]{1,64}")
_NOT_PLAIN = re.compile("[^A-Za-z0-9_-]")
_KEPT = 47
_KEPT_ID = 23
_MAX_DEPTH = 100
NAMELESS = "unnamed_tool"
"""The name that a client reads for a call whose provider gave none."""
_UNANSWERED = "(This call was not answered.)"
ASIDE = "<system>\n{}\n</system>"
"""The form of a later system prompt in a user's turn."""
OPENING = "(The conversation begins.)"
"""A user's turn for APIs that refuse a conversation without one at its start."""
_ORPHAN = "The result of a tool call that is not in this conversation:"


class ToolNames:
    """The names of a call's tools on the wire, and the way back.

    A name of up to 64 letters, digits, ``_`` and ``-`` stays. Any other name is shortened and
    marked with its hash, which depends only on the names of the call's tools. Without a call all
    names stay.

    Args:
        call: the call; None to keep all names.
    """

    def __init__(self, call: ModelCall | None) -> None:
        self._maps = call is not None
        self._back: dict[str, str] = {}
        self._sent: dict[str, str] = {}
        self._custom: set[str] = set()
        self._namespaces: dict[str, str] = {}
        self._kinds: dict[str, str] = {}
        tools = call.tools if call is not None else ()
        taken = {tool["name"] for tool in tools if "name" in tool}
        for tool in tools:
            if "name" not in tool:
                continue
            if "namespace" in tool:
                self._namespaces[tool["name"]] = tool["namespace"]
            if "kind" in tool:
                self._kinds[tool["name"]] = tool["kind"]
            if tool.get("custom") is True:
                self._custom.add(tool["name"])
            if _PLAIN.fullmatch(tool["name"]) is None:
                sent = _marked(tool["name"], _KEPT)
                while sent in taken:
                    sent = _marked(sent + "_", _KEPT)
                taken.add(sent)
                self._sent[tool["name"]] = sent
                self._back[sent] = tool["name"]

    def sent(self, name: str) -> str:
        """Return the wire name of a tool."""
        if not self._maps or _PLAIN.fullmatch(name) is not None:
            return name
        return self._sent.get(name) or _marked(name, _KEPT)

    def own(self, name: str) -> str:
        """Return the client's name of the tool with this wire name.

        Models sometimes write no name. It gets one, because APIs refuse a call without a name when
        the client sends it back.
        """
        return self._back.get(name, name) or NAMELESS

    def in_namespace(self, name: str) -> dict[str, str]:
        """Return ``name``, and ``namespace`` if it has one, of the tool with this wire name, for
        Responses.
        """
        own = self.own(name)
        namespace = self._namespaces.get(own)
        if namespace is None:
            return {"name": own}
        return {"name": own[len(namespaced(namespace, "")) :], "namespace": namespace}

    def kind(self, name: str) -> str | None:
        """Return the type of the tool of Responses with this wire name; None for a function."""
        return self._kinds.get(self.own(name))

    def is_custom(self, block: dict[str, Any]) -> bool:
        """Return True if a call is one of a tool with free text input."""
        return block.get("custom") is True or self.own(block["name"]) in self._custom


def namespaced(namespace: str, name: str) -> str:
    """Return the name under which other APIs know a tool in a namespace of Responses."""
    return f"{namespace}__{name}"


def wire_id(identity: str) -> str:
    """Return a call's id in a form that every provider accepts; equal for a call and its result."""
    return identity if _PLAIN.fullmatch(identity) else _marked(identity, _KEPT_ID)


def _marked(text: str, kept: int) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{_NOT_PLAIN.sub('_', text)[:kept]}_{digest}"


def json_text(value: Any) -> str:
    """Return a value as JSON text."""
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError):  # lone surrogates, great whole numbers
        return dump(value).decode()


def read_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a call as an object.

    A blank text gives ``{}``. A text that is not a JSON object, nests over 100 levels, or has a
    member ``_unparsed`` gives ``{"_unparsed": text}``. Unpaired surrogates are replaced, in names
    and values too.
    """
    text = sound_text(text)
    if not text.strip():
        return {}
    try:
        value = load_unique(text, repair=True)
    except JsonTextError:
        return {"_unparsed": text}
    # A text that has the form of a kept text would be taken for one: keep it entire too.
    if type(value) is dict and "_unparsed" not in value and _is_shallow(value, _MAX_DEPTH):
        return value
    return {"_unparsed": text}


def _is_shallow(value: Any, depth: int) -> bool:
    """Return False if objects and lists are nested in more levels than ``depth``."""
    kind = type(value)
    if kind is dict or kind is list:
        items = value.values() if kind is dict else value
        return depth > 0 and all(_is_shallow(item, depth - 1) for item in items)
    return True


def input_of(given: Any) -> dict[str, Any]:
    """Return the input of a call from its arguments, an object or a text.

    Absent arguments give ``{}``. Some servers write an object where the API has its text; any
    other value becomes ``_unparsed``.
    """
    if given is None:
        return {}
    if type(given) is dict and "_unparsed" not in given and _is_shallow(given, _MAX_DEPTH):
        return given
    return read_arguments(given if type(given) is str else json_text(given))


def arguments_text(value: Any) -> str:
    """Return a call's input as JSON text; an unparsed input as its original text."""
    if isinstance(value, dict) and len(value) == 1 and isinstance(value.get("_unparsed"), str):
        return str(value["_unparsed"])
    return json_text(value)


def free_text(value: Any) -> str:
    """Return the input text of a call of a tool with free text input.

    A model that was offered a function with the argument ``input`` may name the argument otherwise,
    write the text alone, or leave it out.
    """
    if value == {}:
        return ""
    if isinstance(value, dict) and len(value) == 1:
        ((name, text),) = value.items()
        if isinstance(text, str):
            try:
                said = orjson.loads(text) if name == "_unparsed" else text
            except orjson.JSONDecodeError:
                return text
            return said if isinstance(said, str) else text
    return arguments_text(value)


def in_rounds(messages: list[Message]) -> list[Message]:
    """Return messages in which the results of each assistant message directly follow it, in the
    client's order.

    A call without a result gets one that says so, as an error. A result without a call becomes
    text. A repeated id gets a number. A message of moved results alone is left out. The list itself
    is returned if it has neither calls nor results.

    Args:
        messages: messages in neutral form, which are not changed.
    """
    results: dict[str, deque[tuple[int, dict[str, Any]]]] = {}
    called = False
    count = 0
    for message in messages:
        for block in _blocks(message):
            if block["type"] == "tool_result":
                count += 1
                results.setdefault(block["tool_use_id"], deque()).append((count, block))
            elif block["type"] == "tool_use":
                called = True
    if not called and not results:
        return messages
    placed: set[int] = set()
    times: dict[str, int] = {}
    ordered: list[Message] = []
    for message in messages:
        if message["role"] != "assistant":
            if rest := _without_results(message, placed):
                ordered.append(rest)
            continue
        said, given = _round(message, results, placed, times)
        ordered.append(said)
        if given:
            ordered.append({"role": "user", "content": given})
    return ordered


def _blocks(message: Message) -> list[dict[str, Any]]:
    content = message["content"]
    return [] if isinstance(content, str) else content


def _round(
    message: Message,
    results: dict[str, deque[tuple[int, dict[str, Any]]]],
    placed: set[int],
    times: dict[str, int],
) -> tuple[Message, list[dict[str, Any]]]:
    """Return an assistant message with unique call ids, and the results of its calls."""
    given: list[tuple[int, dict[str, Any]]] = []
    said: list[dict[str, Any]] = []
    for block in _blocks(message):
        if block["type"] == "tool_use":
            identity = block["id"]
            times[identity] = number = times.get(identity, 0) + 1
            unique = identity if number == 1 else f"{identity}_{number}"
            if known := results.get(identity):
                place, result = known.popleft()
                placed.add(id(result))
            else:
                place = sys.maxsize
                result = {"type": "tool_result", "content": _UNANSWERED, "is_error": True}
            given.append((place, {**result, "tool_use_id": unique}))
            if unique != identity:
                block = {**block, "id": unique}
        said.append(block)
    given.sort(key=lambda one: one[0])
    return ({**message, "content": said} if given else message), [result for _, result in given]


def _without_results(message: Message, placed: set[int]) -> Message | None:
    """Return a message without the placed results, or None if nothing else is in it."""
    blocks = _blocks(message)
    if not any(block["type"] == "tool_result" for block in blocks):
        return message
    rest: list[dict[str, Any]] = []
    for block in blocks:
        if block["type"] != "tool_result":
            rest.append(block)
        elif id(block) not in placed:
            content = block["content"]
            rest.append({"type": "text", "text": _ORPHAN})
            rest += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**message, "content": rest} if rest else None
