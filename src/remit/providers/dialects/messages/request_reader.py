"""Bodies of ``POST /v1/messages``, read into the neutral form."""

from __future__ import annotations

from typing import Any

from remit.kernel.exchange import Message
from remit.providers.dialects import _checks as checks
from remit.providers.dialects.client_tools import anthropic_function, is_tool_search
from remit.providers.dialects.model_call import ModelCall, Reasoning, ResponseFormat
from remit.providers.dialects.seals import read_seal
from remit.providers.dialects.tool_choice import read_stop

ENDPOINT = "anthropic.messages"
_BLOCK = frozenset(
    ("type", "text", "citations", "source", "title", "context", "id", "name", "input", "content",
     "tool_use_id", "is_error", "thinking", "signature", "data", "cache_control", "tool_name",
     "caller")
)  # fmt: skip
_KNOWN = {
    "": frozenset(
        ("model", "messages", "system", "max_tokens", "temperature", "tools", "tool_choice",
         "stop_sequences", "top_p", "top_k", "thinking", "output_config", "output_format",
         "metadata", "stream")
    ),
    "system[]": frozenset(("type", "text", "cache_control", "citations")),
    "messages[]": frozenset(("role", "content")),
    "messages[].content[]": _BLOCK,
    "messages[].content[].content[]": _BLOCK,
    "tools[]": frozenset(
        ("type", "name", "description", "input_schema", "cache_control", "strict",
         "allowed_domains", "blocked_domains", "user_location", "max_uses", "display_width_px",
         "display_height_px")
    ),
    "thinking": frozenset(("type", "budget_tokens", "display")),
    "output_config": frozenset(("effort", "format")),
}  # fmt: skip
_PAYLOADS = {
    "text": ("text",), "image": ("source",), "document": ("source",), "tool_use": ("input",),
    "tool_result": ("tool_use_id",), "thinking": ("thinking",), "redacted_thinking": ("data",),
}  # fmt: skip
_SOURCES = {"base64": ("data",), "text": ("data",), "url": ("url",), "file": ("file_id",),
            "content": ("content",)}  # fmt: skip
_ROLES = ("user", "assistant", "system")
_CHOICES = ("auto", "any", "none", "tool")
_SEARCH = "web_search_"
_SEARCHED = "web_search"
_RUN = ("server_tool_use", "web_search_tool_result", "tool_search_tool_result")
_PLACE = ("type", "city", "country", "region", "timezone")


def read_request(body: Any) -> ModelCall:
    """Return a body of the Messages API in neutral form.

    ``max_tokens`` may be missing, because a request to count tokens has none. Fields that the
    neutral form does not have are in ``other``, unread members in ``dropped``.

    Raises:
        DialectError: the body is invalid.
    """
    body = checks.checked_body(body)
    messages = _system(body.get("system"))
    _add_messages(messages, body.get("messages"))
    choice, parallel = _choice(body)
    config = checks.optional(body, "output_config", dict) or {}
    metadata = checks.optional(body, "metadata", dict) or {}
    tools = checks.optional(body, "tools", list) or []
    common = checks.read_common(body, ENDPOINT, _KNOWN)
    read = [_tool(tool, where) for tool, where in checks.objects(tools, "tools")]
    if any(tool is None for tool in read):
        common["dropped"].append("tools[].tool_search_tool")
    if more := {key: value for key, value in metadata.items() if key != "user_id"}:
        common["other"]["metadata"] = more
    return ModelCall(
        **common,
        messages=messages,
        max_tokens=checks.max_tokens(body, "max_tokens"),
        tools=tuple(tool for tool in read if tool is not None),
        tool_choice=choice,
        parallel_tools=parallel,
        response_format=_format(body, config),
        stop=read_stop(body.get("stop_sequences"), "stop_sequences"),
        top_k=checks.number(body, "top_k"),
        reasoning=_reasoning(body, config),
        user=checks.optional(metadata, "user_id", str, "metadata"),
    )


def _system(system: Any) -> list[Message]:
    if system is None or system == "" or system == []:
        return []
    return [{"role": "system", "content": checks.content(system, "system", _text, _PAYLOADS)}]


def _text(block: dict[str, Any], kind: str, where: str) -> dict[str, Any]:
    if kind != "text":
        raise checks.refuse("is not a text block", where)
    return read_block(block, kind, where)


def _add_messages(messages: list[Message], items: Any) -> None:
    if type(items) is not list or not items:
        raise checks.refuse("is not a non-empty list", "messages")
    for item, where in checks.objects(items, "messages"):
        role = checks.role_of(item, _ROLES, where)
        if role == "system" and item.get("content") is None and "output_config" in item:
            continue  # The message only sets an effort from here on.
        read = _text if role == "system" else read_block
        content = checks.content(item.get("content"), f"{where}.content", read, _PAYLOADS)
        messages.append({"role": role, "content": content})


def read_block(block: dict[str, Any], kind: str, where: str) -> dict[str, Any]:
    """Return a block of a request or an answer in neutral form.

    A search that the provider ran becomes ``server_tool``. A block of an unknown type becomes
    ``other``.

    Args:
        block: the block.
        kind: its type.
        where: its place, for errors.

    Raises:
        DialectError: the block is malformed.
    """
    neutral: dict[str, Any]
    if kind == "text":
        neutral = {"type": kind, "text": checks.text(block, "text", where, empty=True)}
        if cited := checks.optional(block, "citations", list, where):
            neutral["citations"] = cited
    elif kind in ("image", "document"):
        neutral = _media(block, kind, where)
    elif kind == "tool_use":
        head = {name: checks.text(block, name, where) for name in ("id", "name")}
        value = checks.optional(block, "input", dict, where)
        neutral = {"type": kind, **head, "input": {} if value is None else value}
    elif kind == "tool_result":
        neutral = _result(block, where)
    elif kind == "thinking":
        thought = checks.text(block, "thinking", where, empty=True)
        sealed = checks.optional(block, "signature", str, where) or ""
        neutral = {"type": kind, "thinking": thought}
        neutral |= read_seal(sealed, "signature") or {"raw": True}
    elif kind == "redacted_thinking":
        neutral = {"type": kind, "data": checks.text(block, "data", where)}
    else:
        name = str(block.get("name"))
        search = kind in _RUN[1:] or name == _SEARCHED or is_tool_search(name)
        neutral = checks.other(ENDPOINT, block, where)
        return {**neutral, "type": "server_tool"} if search and kind in _RUN else neutral
    if kind != "tool_result" and block.get("content"):
        raise checks.refuse("has more than one kind", where)
    return checks.with_hint(neutral, block)


def _media(block: dict[str, Any], kind: str, where: str) -> dict[str, Any]:
    at = f"{where}.source"
    source = checks.required(block, "source", dict, where)
    form = checks.text(source, "type", at)
    checks.check_payload(source, form, at, _SOURCES)
    if form == "base64":
        checks.text(source, "media_type", at)
        checks.text(source, "data", at)
    elif form == "url":
        checks.text(source, "url", at)
    elif form == "text":
        checks.text(source, "data", at, empty=True)
    neutral = {"type": kind, "source": source, "at": where}
    if kind == "document":
        for key in ("title", "context"):
            if text := checks.optional(block, key, str, where):
                neutral[key] = text
        if cited := checks.optional(block, "citations", dict, where):
            neutral["citations"] = cited
    return neutral


def _result(block: dict[str, Any], where: str) -> dict[str, Any]:
    content = block.get("content")
    neutral: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": checks.text(block, "tool_use_id", where),
        "content": checks.content(
            "" if content is None else content, f"{where}.content", read_block, _PAYLOADS
        ),
    }
    if checks.optional(block, "is_error", bool, where):
        neutral["is_error"] = True
    return neutral


def _tool(tool: dict[str, Any], where: str) -> dict[str, Any] | None:
    """Return a neutral tool; None for a search of the tools themselves."""
    kind = tool.get("type")
    if kind is not None and checks.text(tool, "type", where) != "custom":
        if kind.startswith(_SEARCH):
            return _search(tool, where)
        if is_tool_search(kind):
            return None
        if (function := anthropic_function(tool)) is not None:
            return checks.with_hint({**function, "at": where}, tool)
        return {"type": "other", "value": tool, "at": where}
    neutral: dict[str, Any] = {"name": checks.text(tool, "name", where), "at": where}
    if description := checks.optional(tool, "description", str, where):
        neutral["description"] = description
    neutral["input_schema"] = checks.required(tool, "input_schema", dict, where)
    if (strict := checks.optional(tool, "strict", bool, where)) is not None:
        neutral["strict"] = strict
    return checks.with_hint(neutral, tool)


def _search(tool: dict[str, Any], where: str) -> dict[str, Any]:
    neutral: dict[str, Any] = {"type": "web_search", "at": where}
    for key in ("allowed_domains", "blocked_domains"):
        domains = checks.optional(tool, key, list, where)
        if domains:
            neutral[key] = domains
    place = checks.optional(tool, "user_location", dict, where)
    if place is not None:
        neutral["user_location"] = {key: place[key] for key in _PLACE if key in place}
    if (uses := checks.optional(tool, "max_uses", int, where)) is not None:
        neutral["max_uses"] = uses
    return checks.with_hint(neutral, tool)


def _choice(body: dict[str, Any]) -> tuple[dict[str, Any] | None, bool | None]:
    choice = checks.optional(body, "tool_choice", dict)
    if choice is None:
        return None, None
    kind = choice.get("type")
    if not isinstance(kind, str) or kind not in _CHOICES:
        raise checks.refuse("is none of the API's choices", "tool_choice.type")
    neutral: dict[str, Any] = {"type": kind}
    if kind == "tool":
        neutral["name"] = checks.text(choice, "name", "tool_choice")
    alone = checks.optional(choice, "disable_parallel_tool_use", bool, "tool_choice")
    return neutral, None if alone is None else not alone


def _format(body: dict[str, Any], config: dict[str, Any]) -> ResponseFormat | None:
    wanted, where = checks.optional(config, "format", dict, "output_config"), "output_config.format"
    if wanted is None:
        wanted, where = checks.optional(body, "output_format", dict), "output_format"
    if wanted is None:
        return None
    if checks.text(wanted, "type", where) != "json_schema":
        raise checks.refuse("is not 'json_schema'", f"{where}.type")
    return ResponseFormat(schema=checks.required(wanted, "schema", dict, where))


def _reasoning(body: dict[str, Any], config: dict[str, Any]) -> Reasoning | None:
    effort = checks.optional(config, "effort", str, "output_config")
    thinking = checks.optional(body, "thinking", dict)
    if thinking is None:
        return Reasoning(effort=effort) if effort else None
    kind = checks.text(thinking, "type", "thinking")
    display = checks.optional(thinking, "display", str, "thinking")
    summary = {"summarized": "auto", "omitted": "omitted"}.get(display or "")
    if kind == "disabled":
        return Reasoning(effort="none")
    if kind == "enabled":
        budget = checks.required(thinking, "budget_tokens", int, "thinking")
        return Reasoning(effort=effort, budget_tokens=budget, summary=summary)
    return Reasoning(effort=effort, summary=summary, adaptive=True)
