"""Chat Completions request bodies, read into the neutral form."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from remit.kernel.canonical import MAX_SAFE_INTEGER, NotCanonicalError, is_fast
from remit.kernel.exchange import Message
from remit.providers.dialects import _checks as checks
from remit.providers.dialects.call import ClientCall, DialectError

__all__ = ["parse_chat"]

_FIELDS = frozenset(
    (
        "model",
        "messages",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "tools",
        "stream",
        "stream_options",
    )
)
_SAME_ROLES = ("user", "assistant", "system")
_ROLES = (*_SAME_ROLES, "developer")
_MARKS = ("developer", "inline")
_BLOCK_TYPES = {
    "image": "image_url",
    "tool_use": "tool_calls of an assistant message",
    "tool_result": "a message of the role 'tool'",
}
_FUNCTION_KEYS = ("name", "description", "parameters")
_TOOL_KEYS = ("type", "name", "description", "input_schema", "outer")
_LONG_NUMBER = re.compile("[0-9]{16}")
_USE_TOOLS = "Use tools and tool_calls, which took its place."


def parse_chat(body: Any) -> ClientCall:
    """A body of ``POST /v1/chat/completions`` in neutral form.

    Tool calls become ``tool_use`` blocks; arguments that are no JSON object, or one that has
    no canonical form, stay text under ``_unparsed``. Messages of the role ``tool`` become
    ``tool_result`` blocks, neighbours in one user message. Parts of unknown types and unknown
    keys stay as they are; ``detail`` of an image stays in its ``source``.

    Raises:
        DialectError: the body is no valid one, asks for more than one answer, or uses the
            functions that came before tools.
    """
    body = checks.checked_body(body)
    model = checks.model_name(body)
    messages = _messages(body.get("messages"))
    for key in ("functions", "function_call"):
        if body.get(key) is not None:
            raise DialectError(f"{key} is not supported.", param=key, next_step=_USE_TOOLS)
    count = body.get("n")
    if count is not None and (type(count) is not int or count < 1):
        raise checks.refuse("is not a whole number of at least 1", "n")
    if count is not None and count > 1:
        raise DialectError(
            "n asks for more than one answer, and a call has one.",
            param="n",
            next_step="Send one call for each answer.",
        )
    limit = checks.max_tokens(body, "max_completion_tokens")
    older = checks.max_tokens(body, "max_tokens")
    options = checks.object_or_none(body, "stream_options", "stream_options")
    usage = "stream_options.include_usage"
    tools = checks.list_or_none(body, "tools", "tools")
    return ClientCall(
        "openai",
        model,
        messages,
        older if limit is None else limit,
        checks.temperature(body),
        tuple(_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools or ())),
        _response_schema(body),
        {key: value for key, value in body.items() if key not in _FIELDS},
        checks.flag(body, "stream", "stream"),
        options is not None and checks.flag(options, "include_usage", usage),
    )


def _messages(items: Any) -> list[Message]:
    if type(items) is not list or not items:
        raise checks.refuse("is not a non-empty list", "messages")
    messages: list[Message] = []
    results: list[dict[str, Any]] | None = None
    for index, item in enumerate(items):
        if type(item) is not dict:
            raise checks.refuse("is not an object", f"messages[{index}]")
        role = item.get("role")
        if role == "tool":
            block = _tool_result(item, f"messages[{index}]")
            if results is None:
                results = []
                messages.append({"role": "user", "content": results})
            results.append(block)
            continue
        results = None
        if len(item) == 2 and role in _SAME_ROLES and type(item.get("content")) is str:
            messages.append(item)
        else:
            messages.append(_message(item, role, f"messages[{index}]"))
    return messages


def _message(item: dict[str, Any], role: Any, where: str) -> Message:
    if role == "function":
        raise DialectError(
            f"{where}.role is 'function', which is not supported.",
            param=f"{where}.role",
            next_step=_USE_TOOLS,
        )
    if role not in _ROLES:
        raise checks.refuse("is none of the roles of the API", f"{where}.role")
    for key in _MARKS:
        if key in item:
            raise checks.refuse("is not a key of a message", f"{where}.{key}")
    if item.get("function_call") is not None:
        raise DialectError(
            f"{where}.function_call is not supported.",
            param=f"{where}.function_call",
            next_step=_USE_TOOLS,
        )
    calls = checks.list_or_none(item, "tool_calls", f"{where}.tool_calls")
    if calls and role != "assistant":
        raise checks.refuse("belongs to an assistant message only", f"{where}.tool_calls")
    content = _content(item, where, needed=role != "assistant" or not _says_more(item))
    if calls:
        if isinstance(content, str):
            content = [{"type": "text", "text": content}] if content else []
        content = [
            *content,
            *(_tool_use(call, f"{where}.tool_calls[{at}]") for at, call in enumerate(calls)),
        ]
    message = {key: value for key, value in item.items() if key != "tool_calls"}
    message["content"] = content
    if role == "developer":
        message |= {"role": "system", "developer": True}
    return message


def _says_more(item: dict[str, Any]) -> bool:
    """Whether an assistant message holds anything beside its content."""
    return any(
        value is not None and value != []
        for key, value in item.items()
        if key not in ("role", "content", "name")
    )


def _content(item: dict[str, Any], where: str, *, needed: bool) -> str | list[Any]:
    content = item.get("content")
    if type(content) is str:
        return content
    if content is None and not needed:
        return []
    if type(content) is not list:
        raise checks.refuse("is neither a text nor a list of parts", f"{where}.content")
    return [_part(part, f"{where}.content[{index}]") for index, part in enumerate(content)]


def _part(part: Any, where: str) -> dict[str, Any]:
    if type(part) is not dict:
        raise checks.refuse("is not an object", where)
    kind = checks.text(part, "type", where)
    if kind in ("text", "refusal"):
        checks.text(part, kind, where, empty=True)
    elif kind == "image_url":
        return _image(part, where)
    elif kind in _BLOCK_TYPES:
        raise DialectError(
            f"{where}.type is none of Chat Completions.",
            param=f"{where}.type",
            next_step=f"Use {_BLOCK_TYPES[kind]}.",
        )
    return part


def _image(part: dict[str, Any], where: str) -> dict[str, Any]:
    at = f"{where}.image_url"
    image = checks.object_or_none(part, "image_url", at)
    if image is None:
        raise checks.refuse("is missing", at)
    url = checks.text(image, "url", at)
    source = _source(url)
    for key, value in image.items():
        if key == "url":
            continue
        if key in ("type", "media_type", "data"):
            raise checks.refuse("is not a key of an image", f"{at}.{key}")
        source[key] = value
    if "source" in part:
        raise checks.refuse("is not a key of an image part", f"{where}.source")
    block = {key: value for key, value in part.items() if key != "image_url"}
    return block | {"type": "image", "source": source}


def _source(url: str) -> dict[str, Any]:
    if url.startswith("data:"):
        head, comma, data = url.partition(",")
        if comma and head.endswith(";base64"):
            return {"type": "base64", "media_type": head[5:-7], "data": data}
    return {"type": "url", "url": url}


def _tool_use(call: Any, where: str) -> dict[str, Any]:
    if type(call) is not dict:
        raise checks.refuse("is not an object", where)
    kind = call.get("type", "function")
    if kind not in ("function", "custom"):
        raise checks.refuse("is neither 'function' nor 'custom'", f"{where}.type")
    block: dict[str, Any] = {"type": "tool_use", "id": checks.text(call, "id", where)}
    called = call.get(kind)
    at = f"{where}.{kind}"
    if type(called) is not dict:
        raise checks.refuse("is not an object", at)
    block["name"] = checks.text(called, "name", at)
    if kind == "custom":
        block["input"] = {"input": checks.text(called, "input", at, empty=True)}
        block["custom"] = True
    else:
        block["input"] = _arguments(checks.text(called, "arguments", at, empty=True))
    content = "input" if kind == "custom" else "arguments"
    if more := {key: value for key, value in called.items() if key not in ("name", content)}:
        block["function"] = more
    for key, value in call.items():
        if key in ("id", "type", kind):
            continue
        if key in ("name", "input", "function", "custom"):
            raise checks.refuse("is not a key of such a tool call", f"{where}.{key}")
        block[key] = value
    return block


def _arguments(text: str) -> dict[str, Any]:
    """A tool call's arguments; what an object cannot keep exactly stays text."""
    try:
        value = orjson.loads(text or "{}")
        # A text that has the form of a kept text would be taken for one: keep it entire too.
        if type(value) is dict and "_unparsed" not in value and checks.is_sound(value):
            is_fast(value)
            if _LONG_NUMBER.search(text):  # orjson reads a large integer as a float
                json.loads(text, parse_int=_exact)
            return value
    except (ValueError, NotCanonicalError):
        pass
    return {"_unparsed": text}


def _exact(digits: str) -> int:
    value = int(digits)
    if abs(value) > MAX_SAFE_INTEGER:
        raise ValueError
    return value


def _tool_result(item: dict[str, Any], where: str) -> dict[str, Any]:
    block: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": checks.text(item, "tool_call_id", where),
        "content": _content(item, where, needed=True),
    }
    for key, value in item.items():
        if key in ("role", "tool_call_id", "content"):
            continue
        if key in ("type", "tool_use_id", "is_error"):
            raise checks.refuse("is not a key of a tool message", f"{where}.{key}")
        block[key] = value
    return block


def _tool(tool: Any, where: str) -> dict[str, Any]:
    if type(tool) is not dict:
        raise checks.refuse("is not an object", where)
    if checks.text(tool, "type", where) != "function":
        if "input_schema" in tool:
            raise checks.refuse("is not a key of such a tool", f"{where}.input_schema")
        return tool
    at = f"{where}.function"
    function = tool.get("function")
    if type(function) is not dict:
        raise checks.refuse("is not an object", at)
    neutral: dict[str, Any] = {"name": checks.text(function, "name", at)}
    if function.get("description") is not None:
        neutral["description"] = checks.text(function, "description", at, empty=True)
    schema = checks.object_or_none(function, "parameters", f"{at}.parameters")
    neutral["input_schema"] = {"type": "object", "properties": {}} if schema is None else schema
    outer = {key: tool[key] for key in tool if key not in ("type", "function")}
    inner = {key: function[key] for key in function if key not in _FUNCTION_KEYS}
    for more in (inner, outer):
        for key, value in more.items():
            if key in _TOOL_KEYS or key in neutral:
                raise checks.refuse("has a key twice or one that is none of a tool's", where)
            neutral[key] = value
    # Which keys stood beside "function", unless it is the one that is expected there.
    if list(outer) != ["cache_control"] and (outer or "cache_control" in inner):
        neutral["outer"] = list(outer)
    return neutral


def _response_schema(body: dict[str, Any]) -> dict[str, Any] | None:
    wanted = checks.object_or_none(body, "response_format", "response_format")
    if wanted is None:
        return None
    if checks.text(wanted, "type", "response_format") != "json_schema":
        return None
    at = "response_format.json_schema"
    schema = checks.object_or_none(wanted, "json_schema", at)
    if schema is None:
        raise checks.refuse("is missing", at)
    return checks.object_or_none(schema, "schema", f"{at}.schema")
