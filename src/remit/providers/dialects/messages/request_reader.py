"""Bodies of ``POST /v1/messages``, read into the neutral form."""

from __future__ import annotations

from typing import Any

from remit.kernel.exchange import Message
from remit.providers.dialects import _checks as checks
from remit.providers.dialects.messages.client_tools import as_function, is_tool_search
from remit.providers.dialects.model_call import ModelCall, Reasoning, ResponseFormat
from remit.providers.dialects.seals import read_signature
from remit.providers.dialects.tool_choice import read_stop

__all__ = ["read_request"]

ENDPOINT = "anthropic.messages"
_FIELDS = frozenset(
    (
        "model", "messages", "system", "max_tokens", "temperature", "tools", "tool_choice",
        "stop_sequences", "top_p", "top_k", "thinking", "output_config", "output_format",
        "metadata", "stream",
    )
)  # fmt: skip
_BLOCK = frozenset(
    ("type", "text", "citations", "source", "title", "context", "id", "name", "input", "content",
     "tool_use_id", "is_error", "thinking", "signature", "data", "cache_control", "tool_name",
     "caller")
)  # fmt: skip
_KNOWN = {
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
_ROLES = ("user", "assistant", "system")
_CHOICES = ("auto", "any", "none", "tool")
_SEARCH = "web_search_"
_SEARCHED = "web_search"
_RUN = ("server_tool_use", "web_search_tool_result", "tool_search_tool_result")
_PLACE = ("type", "city", "country", "region", "timezone")


def read_request(body: Any) -> ModelCall:
    """Return a body of the Messages API in neutral form.

    ``max_tokens`` may be missing, because a request to count tokens has none.

    Raises:
        DialectError: the body is invalid.
    """
    body = checks.checked_body(body)
    messages = _system(body.get("system"))
    _add_messages(messages, body.get("messages"))
    choice, parallel = _choice(body)
    config = checks.object_or_none(body, "output_config", "output_config") or {}
    metadata = checks.object_or_none(body, "metadata", "metadata") or {}
    tools = checks.list_or_none(body, "tools", "tools") or []
    dropped = checks.unread(body, _KNOWN)
    read = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    if any(tool is None for tool in read):
        dropped.append("tools[].tool_search_tool")
    other = {key: value for key, value in body.items() if key not in _FIELDS}
    if more := {key: value for key, value in metadata.items() if key != "user_id"}:
        other["metadata"] = more
    return ModelCall(
        endpoint=ENDPOINT,
        model=checks.model_name(body),
        messages=messages,
        max_tokens=checks.max_tokens(body, "max_tokens"),
        temperature=checks.temperature(body),
        tools=tuple(tool for tool in read if tool is not None),
        tool_choice=choice,
        parallel_tools=parallel,
        response_format=_format(body, config),
        stop=read_stop(body.get("stop_sequences"), "stop_sequences"),
        top_p=checks.number(body, "top_p", 1),
        top_k=checks.number(body, "top_k"),
        reasoning=_reasoning(body, config),
        user=checks.text_or_none(metadata, "user_id", "metadata.user_id"),
        stream=checks.flag(body, "stream", "stream"),
        other=other,
        dropped=dropped,
    )


def _system(system: Any) -> list[Message]:
    if system is None or system == "" or system == []:
        return []
    if type(system) is not str:
        system = _texts(system, "system")
    return [{"role": "system", "content": system}]


def _texts(blocks: Any, where: str) -> list[Any]:
    if type(blocks) is not list:
        raise checks.refuse("is neither a text nor a list of text blocks", where)
    read = [_block(block, f"{where}[{index}]") for index, block in enumerate(blocks)]
    for index, block in enumerate(read):
        if block["type"] != "text":
            raise checks.refuse("is not a text block", f"{where}[{index}]")
    return read


def _add_messages(messages: list[Message], items: Any) -> None:
    if type(items) is not list or not items:
        raise checks.refuse("is not a non-empty list", "messages")
    for index, item in enumerate(items):
        where = f"messages[{index}]"
        if type(item) is not dict:
            raise checks.refuse("is not an object", where)
        role, content = item.get("role"), item.get("content")
        if not isinstance(role, str) or role not in _ROLES:
            raise checks.refuse("is none of the roles of the API", f"{where}.role")
        if type(content) is not str:
            if role == "system":
                content = _texts(content, f"{where}.content")
            else:
                content = _content(content, f"{where}.content")
        messages.append({"role": role, "content": content})


def _content(content: Any, where: str) -> list[Any]:
    if type(content) is not list:
        raise checks.refuse("is neither a text nor a list of blocks", where)
    return [_block(block, f"{where}[{index}]") for index, block in enumerate(content)]


def _block(block: Any, where: str) -> dict[str, Any]:
    if type(block) is not dict:
        raise checks.refuse("is not an object", where)
    kind = checks.text(block, "type", where)
    neutral: dict[str, Any]
    if kind == "text":
        neutral = {"type": kind, "text": checks.text(block, "text", where, empty=True)}
        if cited := checks.list_or_none(block, "citations", f"{where}.citations"):
            neutral["citations"] = cited
    elif kind in ("image", "document"):
        neutral = _media(block, kind, where)
    elif kind == "tool_use":
        value = checks.object_or_none(block, "input", f"{where}.input")
        neutral = {
            "type": kind,
            "id": checks.text(block, "id", where),
            "name": checks.text(block, "name", where),
            "input": {} if value is None else value,
        }
    elif kind == "tool_result":
        neutral = _result(block, where)
    elif kind == "thinking":
        thought = checks.text(block, "thinking", where, empty=True)
        sealed = checks.text_or_none(block, "signature", f"{where}.signature") or ""
        neutral = {"type": kind, "thinking": thought, **read_signature(sealed)}
    elif kind == "redacted_thinking":
        neutral = {"type": kind, "data": checks.text(block, "data", where)}
    else:
        name = str(block.get("name"))
        search = kind in _RUN[1:] or name == _SEARCHED or is_tool_search(name)
        neutral = {"type": "server_tool" if search and kind in _RUN else "other"}
        return {**neutral, "endpoint": ENDPOINT, "value": block, "at": where}
    if isinstance(block.get("cache_control"), dict):
        neutral["cache_control"] = block["cache_control"]
    return neutral


def _media(block: dict[str, Any], kind: str, where: str) -> dict[str, Any]:
    at = f"{where}.source"
    source = checks.object_or_none(block, "source", at)
    if source is None:
        raise checks.refuse("is missing", at)
    form = checks.text(source, "type", at)
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
            if text := checks.text_or_none(block, key, f"{where}.{key}"):
                neutral[key] = text
        if cited := checks.object_or_none(block, "citations", f"{where}.citations"):
            neutral["citations"] = cited
    return neutral


def _result(block: dict[str, Any], where: str) -> dict[str, Any]:
    content = block.get("content")
    if content is None:
        content = ""
    elif type(content) is not str:
        content = _content(content, f"{where}.content")
    neutral: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": checks.text(block, "tool_use_id", where),
        "content": content,
    }
    if checks.flag(block, "is_error", f"{where}.is_error"):
        neutral["is_error"] = True
    return neutral


def _tool(tool: Any, where: str) -> dict[str, Any] | None:
    """Return a neutral tool; None for a search of the tools themselves."""
    if type(tool) is not dict:
        raise checks.refuse("is not an object", where)
    kind = tool.get("type")
    if kind is not None and checks.text(tool, "type", where) != "custom":
        if kind.startswith(_SEARCH):
            return _search(tool, where)
        if is_tool_search(kind):
            return None
        if (function := as_function(tool)) is not None:
            return _hinted({**function, "at": where}, tool)
        return {"type": "other", "value": tool, "at": where}
    neutral: dict[str, Any] = {"name": checks.text(tool, "name", where), "at": where}
    if description := checks.text_or_none(tool, "description", f"{where}.description"):
        neutral["description"] = description
    schema = checks.object_or_none(tool, "input_schema", f"{where}.input_schema")
    if schema is None:
        raise checks.refuse("is missing", f"{where}.input_schema")
    neutral["input_schema"] = schema
    if tool.get("strict") is not None:
        neutral["strict"] = checks.flag(tool, "strict", f"{where}.strict")
    return _hinted(neutral, tool)


def _hinted(neutral: dict[str, Any], tool: dict[str, Any]) -> dict[str, Any]:
    if isinstance(tool.get("cache_control"), dict):
        neutral["cache_control"] = tool["cache_control"]
    return neutral


def _search(tool: dict[str, Any], where: str) -> dict[str, Any]:
    neutral: dict[str, Any] = {"type": "web_search", "at": where}
    for key in ("allowed_domains", "blocked_domains"):
        domains = checks.list_or_none(tool, key, f"{where}.{key}")
        if domains:
            neutral[key] = domains
    place = checks.object_or_none(tool, "user_location", f"{where}.user_location")
    if place is not None:
        neutral["user_location"] = {key: place[key] for key in _PLACE if key in place}
    if isinstance(tool.get("cache_control"), dict):
        neutral["cache_control"] = tool["cache_control"]
    uses = tool.get("max_uses")
    if uses is not None:
        if type(uses) is not int:
            raise checks.refuse("is not a whole number", f"{where}.max_uses")
        neutral["max_uses"] = uses
    return neutral


def _choice(body: dict[str, Any]) -> tuple[dict[str, Any] | None, bool | None]:
    choice = checks.object_or_none(body, "tool_choice", "tool_choice")
    if choice is None:
        return None, None
    kind = choice.get("type")
    if not isinstance(kind, str) or kind not in _CHOICES:
        raise checks.refuse("is none of the API's choices", "tool_choice.type")
    neutral: dict[str, Any] = {"type": kind}
    if kind == "tool":
        neutral["name"] = checks.text(choice, "name", "tool_choice")
    alone = choice.get("disable_parallel_tool_use")
    at = "tool_choice.disable_parallel_tool_use"
    parallel = None if alone is None else not checks.flag(choice, "disable_parallel_tool_use", at)
    return neutral, parallel


def _format(body: dict[str, Any], config: dict[str, Any]) -> ResponseFormat | None:
    for holder, key, where in (
        (config, "format", "output_config.format"),
        (body, "output_format", "output_format"),
    ):
        wanted = checks.object_or_none(holder, key, where)
        if wanted is None:
            continue
        if checks.text(wanted, "type", where) != "json_schema":
            raise checks.refuse("is not 'json_schema'", f"{where}.type")
        schema = checks.object_or_none(wanted, "schema", f"{where}.schema")
        if schema is None:
            raise checks.refuse("is missing", f"{where}.schema")
        return ResponseFormat(schema=schema)
    return None


def _reasoning(body: dict[str, Any], config: dict[str, Any]) -> Reasoning | None:
    effort = checks.text_or_none(config, "effort", "output_config.effort")
    thinking = checks.object_or_none(body, "thinking", "thinking")
    if thinking is None:
        return Reasoning(effort=effort) if effort else None
    kind = checks.text(thinking, "type", "thinking")
    display = checks.text_or_none(thinking, "display", "thinking.display")
    summary = {"summarized": "auto", "omitted": "omitted"}.get(display or "")
    if kind == "disabled":
        return Reasoning(effort="none")
    if kind == "enabled":
        budget = thinking.get("budget_tokens")
        if type(budget) is not int:
            raise checks.refuse("is not a whole number", "thinking.budget_tokens")
        return Reasoning(effort=effort, budget_tokens=budget, summary=summary)
    return Reasoning(effort=effort, summary=summary, adaptive=True)
