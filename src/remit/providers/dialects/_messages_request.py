"""Messages API request bodies, read into the neutral form."""

from __future__ import annotations

from typing import Any

from remit.kernel.exchange import Message
from remit.providers.dialects import _checks as checks
from remit.providers.dialects.call import ClientCall

__all__ = ["parse_messages"]

_FIELDS = frozenset(("model", "messages", "system", "max_tokens", "temperature", "tools", "stream"))
_ROLES = ("user", "assistant", "system")
_MARKS = ("developer", "inline")


def parse_messages(body: Any, *, require_max_tokens: bool = True) -> ClientCall:
    """A body of ``POST /v1/messages`` in neutral form.

    ``system`` becomes a first ``system`` message; one among the messages is marked
    ``"inline": True``. A tool's result without content gets an empty one. Blocks and tools of
    unknown types and unknown keys stay as they are.

    Args:
        body: the parsed JSON.
        require_max_tokens: ``False`` for ``/v1/messages/count_tokens``, which has none.

    Raises:
        DialectError: the body is no valid one.
    """
    body = checks.checked_body(body)
    model = checks.model_name(body)
    messages = _system(body.get("system"))
    _add_messages(messages, body.get("messages"))
    limit = checks.max_tokens(body, "max_tokens")
    if limit is None and require_max_tokens:
        raise checks.refuse("is missing", "max_tokens")
    tools = checks.list_or_none(body, "tools", "tools")
    return ClientCall(
        "anthropic",
        model,
        messages,
        limit,
        checks.temperature(body),
        tuple(_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools or ())),
        _response_schema(body),
        {key: value for key, value in body.items() if key not in _FIELDS},
        checks.flag(body, "stream", "stream"),
        False,
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
    for index, block in enumerate(blocks):
        if type(block) is not dict or block.get("type") != "text":
            raise checks.refuse("is not a text block", f"{where}[{index}]")
        checks.text(block, "text", f"{where}[{index}]", empty=True)
    return blocks


def _add_messages(messages: list[Message], items: Any) -> None:
    if type(items) is not list or not items:
        raise checks.refuse("is not a non-empty list", "messages")
    for index, item in enumerate(items):
        if type(item) is not dict:
            raise checks.refuse("is not an object", f"messages[{index}]")
        role = item.get("role")
        plain = len(item) == 2 and type(item.get("content")) is str
        if plain and (role == "user" or role == "assistant"):
            messages.append(item)
        else:
            messages.append(_message(item, role, f"messages[{index}]"))


def _message(item: dict[str, Any], role: Any, where: str) -> Message:
    if role not in _ROLES:
        raise checks.refuse("is none of the roles of the API", f"{where}.role")
    for key in _MARKS:
        if key in item:
            raise checks.refuse("is not a key of a message", f"{where}.{key}")
    content = item.get("content")
    if role == "system":
        if type(content) is not str:
            content = _texts(content, f"{where}.content")
        return {**item, "content": content, "inline": True}
    return {**item, "content": _content(content, f"{where}.content")}


def _content(content: Any, where: str) -> str | list[Any]:
    if type(content) is str:
        return content
    if type(content) is not list:
        raise checks.refuse("is neither a text nor a list of blocks", where)
    return [_block(block, f"{where}[{index}]") for index, block in enumerate(content)]


def _block(block: Any, where: str) -> dict[str, Any]:
    if type(block) is not dict:
        raise checks.refuse("is not an object", where)
    kind = checks.text(block, "type", where)
    if kind == "text":
        checks.text(block, "text", where, empty=True)
    elif kind == "image":
        _check_source(block, f"{where}.source")
    elif kind == "tool_use":
        checks.text(block, "id", where)
        checks.text(block, "name", where)
        if type(block.get("input")) is not dict:
            raise checks.refuse("is not an object", f"{where}.input")
    elif kind == "tool_result":
        checks.text(block, "tool_use_id", where)
        checks.flag(block, "is_error", f"{where}.is_error")
        return {**block, "content": _content(block.get("content", ""), f"{where}.content")}
    return block


def _check_source(block: dict[str, Any], where: str) -> None:
    source = checks.object_or_none(block, "source", where)
    if source is None:
        raise checks.refuse("is missing", where)
    kind = checks.text(source, "type", where)
    if kind == "base64":
        checks.text(source, "media_type", where)
        checks.text(source, "data", where)
    elif kind == "url":
        checks.text(source, "url", where)


def _tool(tool: Any, where: str) -> dict[str, Any]:
    if type(tool) is not dict:
        raise checks.refuse("is not an object", where)
    if tool.get("type") is not None and checks.text(tool, "type", where) != "custom":
        # One that the provider runs, or knows the schema of.
        if "name" in tool:
            checks.text(tool, "name", where)
        checks.object_or_none(tool, "input_schema", f"{where}.input_schema")
        return tool
    checks.text(tool, "name", where)
    if tool.get("description") is not None:
        checks.text(tool, "description", where, empty=True)
    if type(tool.get("input_schema")) is not dict:
        raise checks.refuse("is not an object", f"{where}.input_schema")
    return tool


def _response_schema(body: dict[str, Any]) -> dict[str, Any] | None:
    config = checks.object_or_none(body, "output_config", "output_config")
    for holder, key, where in (
        (config, "format", "output_config.format"),
        (body, "output_format", "output_format"),
    ):
        wanted = checks.object_or_none(holder, key, where) if holder is not None else None
        if wanted is None or checks.text(wanted, "type", where) != "json_schema":
            continue
        schema = checks.object_or_none(wanted, "schema", f"{where}.schema")
        if schema is None:
            raise checks.refuse("is missing", f"{where}.schema")
        return schema
    return None
