"""Bodies of ``POST /v1/responses`` and the items of its inputs and outputs, read into the neutral
form.
"""

from __future__ import annotations

from typing import Any

from remit.kernel.exchange import Message
from remit.providers.dialects import _checks as checks
from remit.providers.dialects.client_tools import LOADED, openai_function, read_call, read_output
from remit.providers.dialects.errors import DialectError
from remit.providers.dialects.media import document_block, source_of_url
from remit.providers.dialects.model_call import ModelCall, Reasoning
from remit.providers.dialects.seals import read_seal
from remit.providers.dialects.tool_calls import namespaced, read_arguments
from remit.providers.dialects.tool_choice import read_choice, read_response_format, read_tool

ENDPOINT = "openai.responses"
_TEXTS = ("input_text", "output_text", "text")
_PAYLOADS = {
    **dict.fromkeys(_TEXTS, ("text",)), "refusal": ("refusal",),
    "input_image": ("image_url", "file_id"), "input_file": ("file_id", "file_data", "file_url"),
}  # fmt: skip
_ITEMS = {
    "message": ("content",), "function_call": ("arguments",), "custom_tool_call": ("input",),
    "function_call_output": ("output",), "custom_tool_call_output": ("output",),
}  # fmt: skip
_ROLES = ("user", "assistant", "system", "developer")
_PART = frozenset(
    ("type", "text", "annotations", "logprobs", "refusal", "image_url", "file_id", "detail",
     "file_data", "file_url", "filename")
)  # fmt: skip
_KNOWN = {
    "": frozenset(
        ("model", "input", "instructions", "max_output_tokens", "temperature", "tools",
         "tool_choice", "parallel_tool_calls", "top_p", "reasoning", "user", "stream")
    ),
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
_ECHOED: dict[str, type] = {
    "previous_response_id": str, "prompt_cache_key": str, "safety_identifier": str,
    "max_tool_calls": int, "store": bool, "background": bool, "include": list,
}  # fmt: skip
"""Fields that an answer repeats or that Remit honours, and their types."""

_SEARCHES = ("web_search", "web_search_preview")
_SEARCH_KEYS = ("search_context_size", "external_web_access", "user_location")


def read_item(item: Any, where: str) -> tuple[str, Any]:
    """Return the role and the content of an item in neutral form.

    The role of a tool's result is ``tool``.

    Args:
        item: the item.
        where: its place, for errors.

    Raises:
        DialectError: the item is invalid, or refers to an item that the provider stored.
    """
    kind = checks.checked_object(item, where).get("type")
    if kind is None:
        kind = "message" if "role" in item else "item_reference"
    if kind == "message":
        return _message(item, where)
    if kind == "item_reference":
        raise DialectError(
            f"{where} refers to an item that only another provider has.",
            param=where,
            next_step="Send the item itself, or previous_response_id.",
        )
    if kind in ("function_call", "custom_tool_call"):
        return "assistant", [_call(item, kind, where)]
    if kind in ("function_call_output", "custom_tool_call_output"):
        return "tool", [_output(item, kind, where)]
    if kind == "reasoning":
        return "assistant", [_thinking(item, where)]
    if not isinstance(kind, str):
        raise checks.refuse("is not a text", f"{where}.type")
    if (call := read_call(item, kind)) is not None:
        return "assistant", [call]
    if (output := read_output(item, kind)) is not None:
        return "tool", [output]
    if kind == "web_search_call":
        return "assistant", [_search_call(item, where)]
    return "assistant", [checks.other(ENDPOINT, item, where)]


def _message(item: dict[str, Any], where: str) -> tuple[str, Any]:
    role = checks.role_of(item, _ROLES, where)
    read = checks.content(item.get("content"), f"{where}.content", _part, _PAYLOADS)
    if role == "assistant" and isinstance(read, str):
        return role, [{"type": "text", "text": read}]
    return role, read


def _part(part: dict[str, Any], kind: str, where: str) -> dict[str, Any]:
    if kind in _TEXTS:
        block: dict[str, Any] = {
            "type": "text",
            "text": checks.text(part, "text", where, empty=True),
        }
        if cited := checks.optional(part, "annotations", list, where):
            block["citations"] = cited
        return block
    if kind == "refusal":
        return {"type": kind, kind: checks.text(part, kind, where, empty=True)}
    if kind == "input_image":
        return _image(part, where)
    if kind == "input_file":
        return document_block(part, where, url=part.get("file_url"))
    return checks.other(ENDPOINT, part, where)


def _image(part: dict[str, Any], where: str) -> dict[str, Any]:
    block: dict[str, Any]
    url = checks.optional(part, "image_url", str, where)
    if url:
        block = {"type": "image", "source": source_of_url(url), "at": where}
    else:
        identity = checks.text(part, "file_id", where)
        source = {"type": "file", "file_id": identity}
        block = {"type": "image", "source": source, "at": f"{where}.file_id"}
    if isinstance(part.get("detail"), str):
        block["detail"] = part["detail"]
    return block


def _call(item: dict[str, Any], kind: str, where: str) -> dict[str, Any]:
    name = checks.text(item, "name", where)
    if namespace := checks.optional(item, "namespace", str, where):
        name = namespaced(namespace, name)
    block: dict[str, Any] = {
        "type": "tool_use",
        "id": checks.text(item, "call_id", where),
        "name": name,
    }
    if kind == "custom_tool_call":
        value = checks.text(item, "input", where, empty=True)
        return {**block, "input": {"input": value}, "custom": True}
    return {**block, "input": read_arguments(checks.text(item, "arguments", where, empty=True))}


def _output(item: dict[str, Any], kind: str, where: str) -> dict[str, Any]:
    identity = checks.text(item, "call_id", where)
    content = checks.content(item.get("output"), f"{where}.output", _part, _PAYLOADS)
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": identity, "content": content}
    return {**block, "custom": True} if kind == "custom_tool_call_output" else block


def _thinking(item: dict[str, Any], where: str) -> dict[str, Any]:
    sealed = checks.optional(item, "encrypted_content", str, where)
    raw = _texts(item, "content", where)
    block: dict[str, Any] = {"type": "thinking"}
    if raw:
        block |= {"thinking": "".join(raw), "raw": True}
    else:
        block["thinking"] = "\n\n".join(_texts(item, "summary", where))
    block |= read_seal(sealed or "", "encrypted")
    if sealed and block.get("encrypted") == sealed and isinstance(item.get("id"), str):
        block["item_id"] = item["id"]
    return block


def _texts(item: dict[str, Any], key: str, where: str) -> list[str]:
    parts = checks.objects(checks.optional(item, key, list, where) or (), f"{where}.{key}")
    return [checks.text(part, "text", at, empty=True) for part, at in parts]


def _search_call(item: dict[str, Any], where: str) -> dict[str, Any]:
    """Return a search that the provider made, with its queries and results."""
    action = item.get("action")
    action = action if isinstance(action, dict) else {}
    queries = action.get("queries")
    if not isinstance(queries, list):
        queries = [action["query"]] if isinstance(action.get("query"), str) else []
    sources = action.get("sources")
    urls = [
        {"url": source["url"]}
        for source in (sources if isinstance(sources, list) else [])
        if isinstance(source, dict) and isinstance(source.get("url"), str)
    ]
    identity = item.get("id")
    return {
        **checks.other(ENDPOINT, item, where),
        "type": "server_tool",
        "id": identity if isinstance(identity, str) else "",
        "queries": [query for query in queries if isinstance(query, str)],
        "sources": urls,
    }


def read_request(body: Any) -> ModelCall:
    """Return a body of Responses in neutral form.

    Fields that the neutral form does not have, or that an answer repeats, are in ``other``, unread
    members in ``dropped``. Adjacent items of the assistant, and of tools, form one message.

    Raises:
        DialectError: the body is invalid, or refers to items that are not in it.
    """
    body = checks.checked_body(body)
    tools = checks.optional(body, "tools", list) or []
    text = checks.optional(body, "text", dict) or {}
    common = checks.read_common(body, ENDPOINT, _KNOWN)
    _check_echoed(common["other"])
    return ModelCall(
        **common,
        messages=_messages(body),
        max_tokens=checks.max_tokens(body, "max_output_tokens"),
        tools=_all_tools(tools, body.get("input"), common["dropped"]),
        tool_choice=read_choice(body.get("tool_choice"), nested=False),
        parallel_tools=checks.optional(body, "parallel_tool_calls", bool),
        response_format=read_response_format(text, "format", "text", nested=False),
        reasoning=_reasoning(body),
        user=checks.optional(body, "user", str),
    )


def _check_echoed(other: dict[str, Any]) -> None:
    """Raise DialectError if fields that an answer repeats are malformed."""
    metadata = checks.optional(other, "metadata", dict) or {}
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise checks.refuse("holds something that is not a text", "metadata")
        if not isinstance(key, str):
            raise checks.refuse("holds a key that is not a text", "metadata")
    if other.get("truncation") not in (None, "auto", "disabled"):
        raise checks.refuse("is neither 'auto' nor 'disabled'", "truncation")
    for key, kind in _ECHOED.items():
        checks.optional(other, key, kind)


def _messages(body: dict[str, Any]) -> list[Message]:
    messages: list[Message] = []
    instructions = checks.optional(body, "instructions", str)
    if instructions:
        messages.append({"role": "system", "content": instructions, "instructions": True})
    items = body.get("input")
    if type(items) is str:
        messages.append({"role": "user", "content": items})
        return messages
    if type(items) is not list or not items:
        raise checks.refuse("is neither a text nor a non-empty list", "input")
    before = ""
    for index, item in enumerate(items):
        if type(item) is dict and item.get("type") == "additional_tools":
            continue  # its tools are offered
        role, content = read_item(item, f"input[{index}]")
        checks.check_payload(item, item.get("type", "message"), f"input[{index}]", _ITEMS)
        if role == before and role in ("assistant", "tool"):
            messages[-1]["content"] += content
        elif role == "developer":
            messages.append({"role": "system", "content": content, "developer": True})
        else:
            messages.append({"role": "user" if role == "tool" else role, "content": content})
        before = role
    return messages


def _all_tools(given: list[Any], items: Any, dropped: list[str]) -> tuple[dict[str, Any], ...]:
    """Return the offered tools, and the tools that items of the input brought.

    A provider's search of tools is left out and noted in ``dropped``, because all are offered. So
    is a tool that an item brought and the provider runs.
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
                if "name" not in tool:
                    if (lost := f"input[].tools[].{tool['type']}") not in dropped:
                        dropped.append(lost)
                elif tool["name"] not in known:
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
        inner = checks.optional(tool, "tools", list, where) or []
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
    kind = tool.get("type") if type(tool) is dict else None
    if isinstance(kind, str) and kind.startswith(_SEARCHES):
        return _search(tool, where)
    if type(tool) is dict and (function := openai_function(tool)) is not None:
        return {**function, "at": where}
    return read_tool(tool, where, nested=False)


def _search(tool: dict[str, Any], where: str) -> dict[str, Any]:
    neutral: dict[str, Any] = {"type": "web_search", "at": where}
    neutral |= {key: tool[key] for key in _SEARCH_KEYS if tool.get(key) is not None}
    checks.optional(tool, "user_location", dict, where)
    filters = checks.optional(tool, "filters", dict, where) or {}
    for key in ("allowed_domains", "blocked_domains"):
        if domains := checks.optional(filters, key, list, f"{where}.filters"):
            neutral[key] = domains
    return neutral


def _reasoning(body: dict[str, Any]) -> Reasoning | None:
    wanted = checks.optional(body, "reasoning", dict)
    if wanted is None:
        return None
    effort = checks.optional(wanted, "effort", str, "reasoning")
    summary = checks.optional(wanted, "summary", str, "reasoning")
    older = checks.optional(wanted, "generate_summary", str, "reasoning")
    if not effort and not summary and not older:
        return None
    return Reasoning(effort=effort or None, summary=summary or older or None)
