"""Neutral messages and tools in the form of Chat Completions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from remit.kernel.exchange import Message, text_of
from remit.providers.dialects.call import Dialect, DialectError

__all__ = ["arguments_text", "openai_messages", "openai_tools"]

_ONLY_ANTHROPIC = frozenset(
    (
        "document",
        "search_result",
        "server_tool_use",
        "mcp_tool_use",
        "container_upload",
        "tool_reference",
        "browser_state",
    )
)
_THINKING = ("thinking", "redacted_thinking")
_RUN_BY_ANTHROPIC = re.compile(r".*_[0-9]{8}", re.DOTALL)


def openai_messages(
    messages: Sequence[Message], *, source: Dialect = "openai"
) -> list[dict[str, Any]]:
    """Neutral messages as the ``messages`` of Chat Completions.

    A list of plain texts becomes one text. ``is_error`` of a tool's result has no place there
    and is left out.

    Args:
        messages: as in :mod:`remit.kernel.exchange`.
        source: the dialect that their unknown keys come from. Those of the other dialect
            (``cache_control``, ``citations``) and its thinking are left out: servers refuse
            keys that they do not know.

    Raises:
        DialectError: a block has no form in Chat Completions.
    """
    own = source == "openai"
    turns: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        content = message["content"]
        if isinstance(content, str):
            turns.append({**_head(message, own), "content": content})
        else:
            turns += _turns(message, content, f"messages[{index}]", own)
    return turns


def openai_tools(
    tools: Sequence[Mapping[str, Any]], *, source: Dialect = "openai"
) -> list[dict[str, Any]]:
    """Neutral tools as the ``tools`` of Chat Completions.

    Args:
        tools: ``{"name", "description"?, "input_schema", …}``.
        source: the dialect that their unknown keys come from; of the other one only
            ``strict`` is kept.

    Raises:
        DialectError: a tool is one that only Anthropic can run.
    """
    return [_tool(tool, f"tools[{at}]", source == "openai") for at, tool in enumerate(tools)]


def arguments_text(block: Mapping[str, Any]) -> str:
    """The JSON text of a ``tool_use`` block's input; what was kept as text, as it was."""
    value = block["input"]
    if len(value) == 1 and isinstance(value.get("_unparsed"), str):
        return str(value["_unparsed"])
    return orjson.dumps(value).decode()


def _head(message: Message, own: bool) -> dict[str, Any]:
    """What a message has beside its content."""
    role = "developer" if message.get("developer") is True else message["role"]
    head: dict[str, Any] = {"role": role}
    if own and len(message) > 2:
        for key, value in message.items():
            if key not in ("role", "content", "developer", "inline"):
                head[key] = value
    return head


def _turns(message: Message, content: Sequence[Any], where: str, own: bool) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for at, block in enumerate(content):
        kind = block["type"]
        if kind == "tool_result":
            turns.append(_tool_turn(block, f"{where}.content[{at}]", own))
        elif kind == "tool_use":
            calls.append(_call(block, own))
        elif own or kind not in _THINKING:
            parts.append(_part(block, f"{where}.content[{at}]", own))
    if parts or calls or not turns:
        turn = _head(message, own)
        if not content and message["role"] == "assistant":
            turn["content"] = None
        else:
            turn["content"] = _joined(parts)
        if calls:
            turn["tool_calls"] = calls
        turns.append(turn)
    return turns


def _joined(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """One text where every part is a plain one: some servers take nothing else."""
    if all(part["type"] == "text" and len(part) == 2 for part in parts):
        return "".join([part["text"] for part in parts])
    return parts


def _part(block: Mapping[str, Any], where: str, own: bool) -> dict[str, Any]:
    kind = block["type"]
    if kind == "text":
        return dict(block) if own else {"type": "text", "text": block["text"]}
    if kind == "image":
        image = _image(block["source"], f"{where}.source", own)
        more = {key: value for key, value in block.items() if key not in ("type", "source")}
        return {"type": "image_url", "image_url": image, **(more if own else {})}
    if not own or kind in _ONLY_ANTHROPIC or kind.endswith("_tool_result"):
        raise DialectError(
            f"{where} is a block that Chat Completions does not have.",
            param=where,
            next_step="Use a model of a provider that speaks the Messages API, or leave it out.",
        )
    return dict(block)


def _image(source: Mapping[str, Any], where: str, own: bool) -> dict[str, Any]:
    kind = source.get("type")
    if kind == "url":
        image: dict[str, Any] = {"url": str(source.get("url", ""))}
    elif kind == "base64":
        media_type = source.get("media_type", "image/png")
        image = {"url": f"data:{media_type};base64,{source.get('data', '')}"}
    else:
        raise DialectError(
            f"{where} is neither a URL nor base64 data, which is what Chat Completions takes.",
            param=where,
        )
    if own:
        for key, value in source.items():
            if key not in ("type", "url", "media_type", "data"):
                image[key] = value
    return image


def _tool_turn(block: Mapping[str, Any], where: str, own: bool) -> dict[str, Any]:
    content = block["content"]
    turn: dict[str, Any] = {"role": "tool", "tool_call_id": block["tool_use_id"]}
    if isinstance(content, str):
        turn["content"] = content
    else:
        parts = []
        for at, part in enumerate(content):
            if not own and part["type"] != "text":
                raise DialectError(
                    f"{where}.content[{at}] is not text, "
                    "which is all that a tool's result may hold in Chat Completions.",
                    param=f"{where}.content[{at}]",
                )
            parts.append(_part(part, f"{where}.content[{at}]", own))
        turn["content"] = _joined(parts) if parts else text_of(content)
    if own:
        for key, value in block.items():
            if key not in ("type", "tool_use_id", "content", "is_error"):
                turn[key] = value
    return turn


def _call(block: Mapping[str, Any], own: bool) -> dict[str, Any]:
    called: dict[str, Any] = {"name": block["name"]}
    custom = own and block.get("custom") is True
    if custom:
        called["input"] = block["input"]["input"]
    else:
        called["arguments"] = arguments_text(block)
    if own:
        called |= block.get("function", {})
    kind = "custom" if custom else "function"
    call = {"id": block["id"], "type": kind, kind: called}
    if own and len(block) > 4:
        for key, value in block.items():
            if key not in ("type", "id", "name", "input", "custom", "function"):
                call[key] = value
    return call


def _tool(tool: Mapping[str, Any], where: str, own: bool) -> dict[str, Any]:
    if "input_schema" not in tool:
        if own and not _RUN_BY_ANTHROPIC.fullmatch(str(tool.get("type", ""))):
            return dict(tool)
        raise DialectError(
            f"{where} is a tool that only a provider of the Messages API can run.",
            param=where,
            next_step="Leave it out, or use a model of such a provider.",
        )
    function: dict[str, Any] = {"name": tool["name"]}
    if "description" in tool:
        function["description"] = tool["description"]
    function["parameters"] = tool["input_schema"]
    wire: dict[str, Any] = {"type": "function", "function": function}
    if not own:
        if isinstance(tool.get("strict"), bool):
            function["strict"] = tool["strict"]
        return wire
    outer = tool.get("outer", ("cache_control",))
    for key, value in tool.items():
        if key not in ("type", "name", "description", "input_schema", "outer"):
            (wire if key in outer else function)[key] = value
    return wire
