"""Bodies of ``POST /v1/chat/completions``, read into the neutral form."""

from __future__ import annotations

from typing import Any

from remit.kernel.exchange import Message
from remit.providers.dialects import _checks as checks
from remit.providers.dialects.arguments import read_arguments
from remit.providers.dialects.dialect_error import DialectError
from remit.providers.dialects.media import document_block, source_of_url
from remit.providers.dialects.model_call import ModelCall, Reasoning, ResponseFormat
from remit.providers.dialects.tool_choice import read_choice, read_format, read_stop

__all__ = ["read_request"]

ENDPOINT = "openai.chat"
_FIELDS = frozenset(
    (
        "model", "messages", "max_tokens", "max_completion_tokens", "temperature", "tools",
        "tool_choice", "parallel_tool_calls", "response_format", "stop", "top_p", "top_k",
        "reasoning_effort", "user", "stream", "stream_options", "web_search_options",
        "functions", "function_call",
    )
)  # fmt: skip
_ROLES = ("user", "assistant", "system", "developer")
_USE_TOOLS = "Use tools and tool_calls, which took its place."


def read_request(body: Any) -> ModelCall:
    """Return a body of Chat Completions in neutral form.

    Raises:
        DialectError: the body is invalid, or uses the functions that came before tools.
    """
    body = checks.checked_body(body)
    for key in ("functions", "function_call"):
        if body.get(key) is not None:
            raise DialectError(f"{key} is not supported.", param=key, next_step=_USE_TOOLS)
    limit = checks.max_tokens(body, "max_completion_tokens")
    older = checks.max_tokens(body, "max_tokens")
    options = checks.object_or_none(body, "stream_options", "stream_options")
    effort = checks.text_or_none(body, "reasoning_effort", "reasoning_effort")
    parallel = body.get("parallel_tool_calls")
    if parallel is not None:
        parallel = checks.flag(body, "parallel_tool_calls", "parallel_tool_calls")
    usage = "stream_options.include_usage"
    return ModelCall(
        endpoint=ENDPOINT,
        model=checks.model_name(body),
        messages=_messages(body.get("messages")),
        max_tokens=older if limit is None else limit,
        temperature=checks.temperature(body),
        tools=_tools(body),
        tool_choice=read_choice(body.get("tool_choice"), nested=True),
        parallel_tools=parallel,
        response_format=_format(body),
        stop=read_stop(body.get("stop"), "stop"),
        top_p=checks.number(body, "top_p"),
        top_k=checks.number(body, "top_k"),
        reasoning=Reasoning(effort=effort) if effort else None,
        user=checks.text_or_none(body, "user", "user"),
        stream=checks.flag(body, "stream", "stream"),
        include_usage=options is not None and checks.flag(options, "include_usage", usage),
        other={key: value for key, value in body.items() if key not in _FIELDS},
    )


def _messages(items: Any) -> list[Message]:
    if type(items) is not list or not items:
        raise checks.refuse("is not a non-empty list", "messages")
    messages: list[Message] = []
    results: list[dict[str, Any]] | None = None
    for index, item in enumerate(items):
        where = f"messages[{index}]"
        if type(item) is not dict:
            raise checks.refuse("is not an object", where)
        role = item.get("role")
        if role == "tool":
            if results is None:
                results = []
                messages.append({"role": "user", "content": results})
            content = _content(item, where)
            identity = checks.text(item, "tool_call_id", where)
            results.append({"type": "tool_result", "tool_use_id": identity, "content": content})
            continue
        results = None
        if role == "assistant":
            messages.append({"role": role, "content": _said(item, where)})
            continue
        if not isinstance(role, str) or role not in _ROLES:
            raise checks.refuse("is none of the roles of the API", f"{where}.role")
        message: Message = {"role": role, "content": _content(item, where)}
        if role == "developer":
            message |= {"role": "system", "developer": True}
        if name := checks.text_or_none(item, "name", f"{where}.name"):
            message["name"] = name
        messages.append(message)
    return messages


def _content(item: dict[str, Any], where: str) -> str | list[Any]:
    content = item.get("content")
    if type(content) is str:
        return content
    if type(content) is not list:
        raise checks.refuse("is neither a text nor a list of parts", f"{where}.content")
    return [_part(part, f"{where}.content[{index}]") for index, part in enumerate(content)]


def _said(item: dict[str, Any], where: str) -> str | list[Any]:
    """Return an assistant message's content: thinking, text, refusal, calls, in this order.

    Raises:
        DialectError: the message has the old ``function_call``, or a malformed part.
    """
    if item.get("function_call") is not None:
        at = f"{where}.function_call"
        raise DialectError(f"{at} is not supported.", param=at, next_step=_USE_TOOLS)
    content: str | list[Any] = "" if item.get("content") is None else _content(item, where)
    blocks: list[Any] = []
    for key in ("reasoning_content", "reasoning"):
        thought = item.get(key)
        if isinstance(thought, str) and thought:
            blocks.append({"type": "thinking", "thinking": thought, "raw": True})
            break
    plain = not blocks and isinstance(content, str)
    if not isinstance(content, str):
        blocks += content
    elif content:
        blocks.append({"type": "text", "text": content})
    if refusal := checks.text_or_none(item, "refusal", f"{where}.refusal"):
        blocks.append({"type": "refusal", "refusal": refusal})
        plain = False
    if item.get("audio") is not None:
        blocks.append(_other(item["audio"], f"{where}.audio"))
        plain = False
    calls = checks.list_or_none(item, "tool_calls", f"{where}.tool_calls")
    for number, call in enumerate(calls or ()):
        blocks.append(_call(call, f"{where}.tool_calls[{number}]"))
        plain = False
    return content if plain else blocks


def _other(value: Any, where: str) -> dict[str, Any]:
    return {"type": "other", "endpoint": ENDPOINT, "value": value, "at": where}


def _part(part: Any, where: str) -> dict[str, Any]:
    if type(part) is not dict:
        raise checks.refuse("is not an object", where)
    kind = checks.text(part, "type", where)
    block: dict[str, Any]
    if kind in ("text", "refusal"):
        block = {"type": kind, kind: checks.text(part, kind, where, empty=True)}
    elif kind == "image_url":
        image = part.get("image_url")
        if type(image) is str:  # Some servers and clients send a plain URL.
            image = {"url": image}
        if type(image) is not dict:
            raise checks.refuse("is not an object", f"{where}.image_url")
        source = source_of_url(checks.text(image, "url", f"{where}.image_url"))
        block = {"type": "image", "source": source, "at": where}
        if isinstance(image.get("detail"), str):
            block["detail"] = image["detail"]
    elif kind == "file":
        file = part.get("file")
        if type(file) is not dict:
            raise checks.refuse("is not an object", f"{where}.file")
        block = document_block(file, f"{where}.file")
    else:
        return _other(part, where)
    if isinstance(part.get("cache_control"), dict):
        block["cache_control"] = part["cache_control"]
    return block


def _call(call: Any, where: str) -> dict[str, Any]:
    if type(call) is not dict:
        raise checks.refuse("is not an object", where)
    kind = call.get("type", "function")
    if kind not in ("function", "custom"):
        raise checks.refuse("is neither 'function' nor 'custom'", f"{where}.type")
    called, at = call.get(kind), f"{where}.{kind}"
    if type(called) is not dict:
        raise checks.refuse("is not an object", at)
    block: dict[str, Any] = {
        "type": "tool_use",
        "id": checks.text(call, "id", where),
        "name": checks.text(called, "name", at),
    }
    if kind == "custom":
        block |= {"input": {"input": checks.text(called, "input", at, empty=True)}, "custom": True}
    else:
        block["input"] = read_arguments(checks.text(called, "arguments", at, empty=True))
    return block


def _tools(body: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    items = checks.list_or_none(body, "tools", "tools") or []
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(items)]
    search = checks.object_or_none(body, "web_search_options", "web_search_options")
    if search is not None:
        tool: dict[str, Any] = {"type": "web_search", "at": "web_search_options"}
        place = checks.object_or_none(search, "user_location", "web_search_options.user_location")
        if place is not None:
            near = place.get("approximate")
            if type(near) is not dict:
                at = "web_search_options.user_location.approximate"
                raise checks.refuse("is not an object", at)
            tool["user_location"] = {"type": "approximate", **near}
        if "search_context_size" in search:
            tool["search_context_size"] = search["search_context_size"]
        tools.append(tool)
    return tuple(tools)


def _tool(tool: Any, where: str) -> dict[str, Any]:
    if type(tool) is not dict:
        raise checks.refuse("is not an object", where)
    kind = checks.text(tool, "type", where)
    if kind not in ("function", "custom"):
        return {"type": "other", "value": tool, "at": where}
    at, inner = f"{where}.{kind}", tool.get(kind)
    if type(inner) is not dict:
        raise checks.refuse("is not an object", at)
    neutral: dict[str, Any] = {"name": checks.text(inner, "name", at), "at": where}
    if description := checks.text_or_none(inner, "description", f"{at}.description"):
        neutral["description"] = description
    if kind == "custom":
        neutral["custom"] = True
        if wanted := read_format(inner, at, nested=True):
            neutral["format"] = wanted
        return neutral
    schema = checks.object_or_none(inner, "parameters", f"{at}.parameters")
    neutral["input_schema"] = {"type": "object", "properties": {}} if schema is None else schema
    if inner.get("strict") is not None:
        neutral["strict"] = checks.flag(inner, "strict", f"{at}.strict")
    for holder in (tool, inner):
        if isinstance(holder.get("cache_control"), dict):
            neutral["cache_control"] = holder["cache_control"]
    return neutral


def _format(body: dict[str, Any]) -> ResponseFormat | None:
    wanted = checks.object_or_none(body, "response_format", "response_format")
    if wanted is None:
        return None
    kind = checks.text(wanted, "type", "response_format")
    if kind == "text":
        return None
    if kind == "json_object":
        return ResponseFormat()
    if kind != "json_schema":
        raise checks.refuse("is none of the forms of the API", "response_format.type")
    at = "response_format.json_schema"
    held = checks.object_or_none(wanted, "json_schema", at)
    if held is None:
        raise checks.refuse("is missing", at)
    return ResponseFormat(
        schema=checks.object_or_none(held, "schema", f"{at}.schema"),
        name=checks.text_or_none(held, "name", f"{at}.name") or "",
        strict=None if held.get("strict") is None else checks.flag(held, "strict", f"{at}.strict"),
        description=checks.text_or_none(held, "description", f"{at}.description") or "",
    )
