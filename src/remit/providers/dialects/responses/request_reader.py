"""Bodies of ``POST /v1/responses``, read into the neutral form."""

from __future__ import annotations

from typing import Any

from remit.kernel.exchange import Message
from remit.providers.dialects import _checks as checks
from remit.providers.dialects.model_call import ModelCall, Reasoning, ResponseFormat
from remit.providers.dialects.names import namespaced
from remit.providers.dialects.responses.client_tools import LOADED, as_function
from remit.providers.dialects.responses.items import read_item
from remit.providers.dialects.tool_choice import read_choice, read_format

__all__ = ["read_request"]

ENDPOINT = "openai.responses"
_FIELDS = frozenset(
    (
        "model", "input", "instructions", "max_output_tokens", "temperature", "tools",
        "tool_choice", "parallel_tool_calls", "top_p", "reasoning", "user", "stream",
    )
)  # fmt: skip
_PART = frozenset(
    ("type", "text", "annotations", "logprobs", "refusal", "image_url", "file_id", "detail",
     "file_data", "file_url", "filename")
)  # fmt: skip
_KNOWN = {
    "input[]": frozenset(
        ("type", "role", "content", "id", "status", "call_id", "name", "arguments", "namespace",
         "input", "output", "summary", "encrypted_content", "action", "phase", "tools",
         "operation", "execution", "environment", "max_output_length")
    ),
    "input[].content[]": _PART,
    "input[].output[]": _PART,
    "tools[]": frozenset(
        ("type", "name", "description", "parameters", "strict", "format", "tools", "filters",
         "search_context_size", "external_web_access", "user_location", "execution", "environment")
    ),
    "reasoning": frozenset(("effort", "summary", "generate_summary")),
}  # fmt: skip
_SEARCHES = ("web_search", "web_search_preview")
_SEARCH_KEYS = ("search_context_size", "external_web_access", "user_location")


def read_request(body: Any) -> ModelCall:
    """Return a body of Responses in neutral form. Fields that an answer repeats stay in ``other``.

    Raises:
        DialectError: the body is invalid, or refers to items that are not in it.
    """
    body = checks.checked_body(body)
    parallel = body.get("parallel_tool_calls")
    if parallel is not None:
        parallel = checks.flag(body, "parallel_tool_calls", "parallel_tool_calls")
    tools = checks.list_or_none(body, "tools", "tools") or []
    text = checks.object_or_none(body, "text", "text") or {}
    dropped = checks.unread(body, _KNOWN)
    other = {key: value for key, value in body.items() if key not in _FIELDS}
    _check_echoed(other)
    return ModelCall(
        endpoint=ENDPOINT,
        model=checks.model_name(body),
        messages=_messages(body),
        max_tokens=checks.max_tokens(body, "max_output_tokens"),
        temperature=checks.temperature(body),
        tools=_all_tools(tools, body.get("input"), dropped),
        tool_choice=read_choice(body.get("tool_choice"), nested=False),
        parallel_tools=parallel,
        response_format=_format(text),
        top_p=checks.number(body, "top_p", 1),
        reasoning=_reasoning(body),
        user=checks.text_or_none(body, "user", "user"),
        stream=checks.flag(body, "stream", "stream"),
        other=other,
        dropped=dropped,
    )


def _check_echoed(other: dict[str, Any]) -> None:
    """Raise DialectError if fields that an answer repeats are malformed."""
    metadata = checks.object_or_none(other, "metadata", "metadata") or {}
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise checks.refuse("holds something that is not a text", "metadata")
        if not isinstance(key, str):
            raise checks.refuse("holds a key that is not a text", "metadata")
    for key in ("previous_response_id", "prompt_cache_key", "safety_identifier"):
        checks.text_or_none(other, key, key)
    if other.get("truncation") not in (None, "auto", "disabled"):
        raise checks.refuse("is neither 'auto' nor 'disabled'", "truncation")
    limit = other.get("max_tool_calls")
    if limit is not None and type(limit) is not int:
        raise checks.refuse("is not a whole number", "max_tool_calls")
    for key in ("store", "background"):
        checks.flag(other, key, key)
    checks.list_or_none(other, "include", "include")


def _messages(body: dict[str, Any]) -> list[Message]:
    messages: list[Message] = []
    instructions = checks.text_or_none(body, "instructions", "instructions")
    if instructions:
        messages.append({"role": "system", "content": instructions, "instructions": True})
    items = body.get("input")
    if type(items) is str:
        messages.append({"role": "user", "content": items})
        return messages
    if type(items) is not list or not items:
        raise checks.refuse("is neither a text nor a non-empty list", "input")
    # Several items form one assistant message, or one message of tool results.
    said: list[Any] | None = None
    given: list[Any] | None = None
    for index, item in enumerate(items):
        if type(item) is dict and item.get("type") == "additional_tools":
            continue  # its tools are offered
        role, content = read_item(item, f"input[{index}]")
        if role == "assistant":
            given = None
            if said is None:
                said = []
                messages.append({"role": "assistant", "content": said})
            said += content
        elif role == "tool":
            said = None
            if given is None:
                given = []
                messages.append({"role": "user", "content": given})
            given += content
        else:
            said = given = None
            message: Message = {"role": role, "content": content}
            if role == "developer":
                message |= {"role": "system", "developer": True}
            messages.append(message)
    return messages


def _all_tools(given: list[Any], items: Any, dropped: list[str]) -> tuple[dict[str, Any], ...]:
    """Return the offered tools, and the tools that items of the input brought.

    A provider's search of tools is left out and noted in ``dropped``, because all are offered.
    """
    offered = []
    for tool in given:
        kind = tool.get("type") if type(tool) is dict else None
        if kind == "tool_search" and tool.get("execution") != "client":
            dropped.append("tools[].tool_search")
        else:
            offered.append(tool)
    tools = _tools(offered)
    for item in items if type(items) is list else ():
        if type(item) is dict and item.get("type") in LOADED and type(item.get("tools")) is list:
            known = {tool.get("name") for tool in tools}
            for tool in _tools(item["tools"]):
                if "name" in tool and tool["name"] not in known:
                    tool.pop("group", None)
                    tools.append({**tool, "loaded": True})
    return tuple(tools)


def _tools(given: list[Any]) -> list[dict[str, Any]]:
    """Return neutral tools; a namespace becomes its functions, whose names begin with its own.

    The first of them keeps the namespace as ``group``.
    """
    tools: list[dict[str, Any]] = []
    for index, tool in enumerate(given):
        where = f"tools[{index}]"
        if type(tool) is not dict or tool.get("type") != "namespace":
            tools.append(_tool(tool, where))
            continue
        namespace = checks.text(tool, "name", where)
        inner = checks.list_or_none(tool, "tools", f"{where}.tools") or []
        for place, each in enumerate(inner):
            at = f"{where}.tools[{place}]"
            read = _tool(each, at)
            if "name" not in read:
                raise checks.refuse("is neither a function nor a custom tool", f"{at}.type")
            name = namespaced(namespace, read["name"])
            read |= {"name": name, "namespace": namespace}
            tools.append({**read, "group": tool} if place == 0 else read)
    return tools


def _tool(tool: Any, where: str) -> dict[str, Any]:
    if type(tool) is not dict:
        raise checks.refuse("is not an object", where)
    kind = checks.text(tool, "type", where)
    if kind.startswith(_SEARCHES):
        return _search(tool, where)
    if (function := as_function(tool)) is not None:
        return {**function, "at": where}
    if kind not in ("function", "custom"):
        return {"type": "other", "value": tool, "at": where}
    neutral: dict[str, Any] = {"name": checks.text(tool, "name", where), "at": where}
    if description := checks.text_or_none(tool, "description", f"{where}.description"):
        neutral["description"] = description
    if kind == "custom":
        neutral["custom"] = True
        if wanted := read_format(tool, where, nested=False):
            neutral["format"] = wanted
        return neutral
    schema = checks.object_or_none(tool, "parameters", f"{where}.parameters")
    neutral["input_schema"] = {"type": "object", "properties": {}} if schema is None else schema
    if tool.get("strict") is not None:
        neutral["strict"] = checks.flag(tool, "strict", f"{where}.strict")
    return neutral


def _search(tool: dict[str, Any], where: str) -> dict[str, Any]:
    neutral: dict[str, Any] = {"type": "web_search", "at": where}
    neutral |= {key: tool[key] for key in _SEARCH_KEYS if tool.get(key) is not None}
    checks.object_or_none(tool, "user_location", f"{where}.user_location")
    filters = checks.object_or_none(tool, "filters", f"{where}.filters") or {}
    for key in ("allowed_domains", "blocked_domains"):
        if domains := checks.list_or_none(filters, key, f"{where}.filters.{key}"):
            neutral[key] = domains
    return neutral


def _format(text: dict[str, Any]) -> ResponseFormat | None:
    at = "text.format"
    wanted = checks.object_or_none(text, "format", at)
    if wanted is None:
        return None
    kind = checks.text(wanted, "type", at)
    if kind == "text":
        return None
    if kind == "json_object":
        return ResponseFormat()
    if kind != "json_schema":
        raise checks.refuse("is none of the forms of the API", f"{at}.type")
    schema = checks.object_or_none(wanted, "schema", f"{at}.schema")
    if schema is None:
        raise checks.refuse("is missing", f"{at}.schema")
    strict = wanted.get("strict")
    return ResponseFormat(
        schema=schema,
        name=checks.text_or_none(wanted, "name", f"{at}.name") or "",
        strict=None if strict is None else checks.flag(wanted, "strict", f"{at}.strict"),
        description=checks.text_or_none(wanted, "description", f"{at}.description") or "",
    )


def _reasoning(body: dict[str, Any]) -> Reasoning | None:
    wanted = checks.object_or_none(body, "reasoning", "reasoning")
    if wanted is None:
        return None
    effort = checks.text_or_none(wanted, "effort", "reasoning.effort")
    summary = checks.text_or_none(wanted, "summary", "reasoning.summary")
    older = checks.text_or_none(wanted, "generate_summary", "reasoning.generate_summary")
    if not effort and not summary and not older:
        return None
    return Reasoning(effort=effort or None, summary=summary or older or None)
