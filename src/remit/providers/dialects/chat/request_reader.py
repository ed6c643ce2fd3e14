"""Bodies of ``POST /v1/chat/completions``, read into the neutral form."""

from __future__ import annotations

from typing import Any

from remit.kernel.exchange import Message
from remit.providers.dialects import _checks as checks
from remit.providers.dialects.arguments import read_arguments
from remit.providers.dialects.chat.answer import citations_in, thoughts_in
from remit.providers.dialects.dialect_error import DialectError
from remit.providers.dialects.media import document_block, source_of_url
from remit.providers.dialects.model_call import ModelCall, Reasoning, ResponseFormat
from remit.providers.dialects.seals import thought_seal
from remit.providers.dialects.tool_choice import read_choice, read_format, read_stop

__all__ = ["read_request"]

ENDPOINT = "openai.chat"
_FIELDS = frozenset(
    (
        "model", "messages", "max_tokens", "max_completion_tokens", "temperature", "tools",
        "tool_choice", "parallel_tool_calls", "response_format", "stop", "top_p", "top_k",
        "reasoning_effort", "reasoning", "thinking", "user", "stream", "web_search_options",
        "functions", "function_call", "stream_options",
    )
)  # fmt: skip
_KNOWN = {
    "messages[]": frozenset(
        ("role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio", "annotations",
         "reasoning_content", "reasoning", "reasoning_details", "cache_control", "function_call")
    ),
    "messages[].content[]": frozenset(
        ("type", "text", "refusal", "image_url", "file", "cache_control", "input_audio",
         "video_url")
    ),
    "messages[].content[].image_url": frozenset(("url", "detail")),
    "messages[].content[].file": frozenset(("file_data", "file_id", "filename")),
    "messages[].tool_calls[]": frozenset(
        ("id", "type", "function", "custom", "index", "extra_content")
    ),
    "messages[].tool_calls[].function": frozenset(("name", "arguments")),
    "tools[]": frozenset(("type", "function", "custom", "cache_control")),
    "tools[].function": frozenset(("name", "description", "parameters", "strict", "cache_control")),
    "tools[].custom": frozenset(("name", "description", "format")),
    "thinking": frozenset(("type", "budget_tokens", "display", "effort")),
    "reasoning": frozenset(("effort", "max_tokens", "enabled", "exclude", "summary")),
}  # fmt: skip
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
        top_p=checks.number(body, "top_p", 1),
        top_k=checks.number(body, "top_k"),
        reasoning=_reasoning(body),
        user=checks.text_or_none(body, "user", "user"),
        stream=checks.flag(body, "stream", "stream"),
        include_usage=options is not None and checks.flag(options, "include_usage", usage),
        other={key: value for key, value in body.items() if key not in _FIELDS},
        dropped=checks.unread(body, _KNOWN),
    )


def _reasoning(body: dict[str, Any]) -> Reasoning | None:
    """Return the requested thinking; ``None`` if the body requests none.

    The fields are ``reasoning_effort``, and Anthropic's ``thinking`` or OpenRouter's
    ``reasoning``, which clients add to the body.
    """
    effort = checks.text_or_none(body, "reasoning_effort", "reasoning_effort") or None
    thinking = checks.object_or_none(body, "thinking", "thinking")
    if thinking is not None:
        kind = checks.text(thinking, "type", "thinking")
        if kind == "disabled":
            return Reasoning(effort=effort or "none")
        if "budget_tokens" in thinking:
            budget = thinking["budget_tokens"]
            if type(budget) is not int:
                raise checks.refuse("is not a whole number", "thinking.budget_tokens")
            return Reasoning(effort=effort, budget_tokens=budget)
        own = checks.text_or_none(thinking, "effort", "thinking.effort") or None
        return Reasoning(effort=effort or own, adaptive=True)
    wanted = checks.object_or_none(body, "reasoning", "reasoning")
    if wanted is None:
        return Reasoning(effort=effort) if effort else None
    effort = effort or checks.text_or_none(wanted, "effort", "reasoning.effort") or None
    if wanted.get("enabled") is False:
        return Reasoning(effort="none")
    budget = wanted.get("max_tokens")
    if budget is not None and type(budget) is not int:
        raise checks.refuse("is not a whole number", "reasoning.max_tokens")
    summary = "omitted" if wanted.get("exclude") is True else None
    if effort is None and budget is None and wanted.get("enabled") is not True:
        return None
    return Reasoning(effort, budget, summary, adaptive=effort is None and budget is None)


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
            result = {"type": "tool_result", "tool_use_id": identity, "content": content}
            if isinstance(item.get("cache_control"), dict):
                result["cache_control"] = item["cache_control"]
            results.append(result)
            continue
        results = None
        if role == "assistant":
            messages.append({"role": role, "content": _said(item, where)})
            continue
        if not isinstance(role, str) or role not in _ROLES:
            raise checks.refuse("is none of the roles of the API", f"{where}.role")
        message: Message = {"role": role, "content": _hinted(item, _content(item, where))}
        if role == "developer":
            message |= {"role": "system", "developer": True}
        if name := checks.text_or_none(item, "name", f"{where}.name"):
            message["name"] = name
        messages.append(message)
    return messages


def _hinted(item: dict[str, Any], content: str | list[Any]) -> str | list[Any]:
    """Return a message's content; a ``cache_control`` of the message goes to its last part."""
    hint = item.get("cache_control")
    if not isinstance(hint, dict) or not content:
        return content
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [*parts[:-1], {"cache_control": hint, **parts[-1]}]


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
    content = _hinted(item, content)
    blocks = thoughts_in(item)
    plain = not blocks and isinstance(content, str)
    if not isinstance(content, str):
        blocks += content
    elif content:
        blocks.append({"type": "text", "text": content})
    if refusal := checks.text_or_none(item, "refusal", f"{where}.refusal"):
        blocks.append({"type": "refusal", "refusal": refusal})
        plain = False
    if cited := citations_in(item.get("annotations")):
        for block in blocks:
            if block["type"] == "text":
                block["citations"] = cited
                plain = False
                break
    if item.get("audio") is not None:
        blocks.append(_other(item["audio"], f"{where}.audio"))
        plain = False
    calls = checks.list_or_none(item, "tool_calls", f"{where}.tool_calls")
    for number, call in enumerate(calls or ()):
        block = _call(call, f"{where}.tool_calls[{number}]")
        if seal := thought_seal(call):
            blocks.append(seal)
        blocks.append(block)
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
