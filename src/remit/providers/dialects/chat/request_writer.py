"""Calls in neutral form as bodies of ``POST /v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remit.providers.dialects.effort import openai_effort
from remit.providers.dialects.errors import cannot, leave_out_rest
from remit.providers.dialects.media import openai_part, with_failure
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.schemas import function_schema, named_schema
from remit.providers.dialects.seals import google_extra
from remit.providers.dialects.tool_calls import ToolNames, arguments_text, in_rounds, wire_id
from remit.providers.dialects.tool_choice import described, offered, write_choice

_MEDIA = ("image", "document")
_SEE_NEXT = "(What the tool gave follows in the next message.)"


def write_request(call: ModelCall, *, model: str, max_output_tokens: int) -> dict[str, Any]:
    """Return a call of another dialect as a body of Chat Completions.

    Fields that the body cannot have are noted in the call's ``dropped``; those whose absence would
    change the answer are refused. A stream asks for its usage. The arguments are those of
    :func:`~remit.providers.dialects.translators.write_request`.

    Raises:
        DialectError: Chat Completions cannot express the call.
    """
    leave_out_rest(call)
    names = ToolNames(call)
    body: dict[str, Any] = {"model": model, "messages": _messages(call, names)}
    optional = {
        "max_tokens": call.max_tokens,
        "temperature": call.temperature,
        "top_p": call.top_p,
        "user": call.user,
        "reasoning_effort": openai_effort(call, model),
    }
    body |= {key: value for key, value in optional.items() if value is not None}
    if call.top_k is not None:
        call.drop("top_k")
    if call.stop:
        body["stop"] = list(call.stop)
    tools, choice = offered(call)
    written = [_tool(call, tool, f"tools[{index}]", names) for index, tool in enumerate(tools)]
    if wire := [tool for tool in written if tool is not None]:
        body["tools"] = wire
        if call.parallel_tools is not None:
            body["parallel_tool_calls"] = call.parallel_tools
        if choice is not None:
            if choice["type"] == "other":
                raise cannot(call.own("tool_choice"), "a tool that only its own provider has")
            body["tool_choice"] = write_choice(choice, names, frozenset(), nested=True)
    if call.response_format is not None:
        held = named_schema(call)
        body["response_format"] = (
            {"type": "json_object"}
            if held is None
            else {"type": "json_schema", "json_schema": held}
        )
    if call.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return body


def _messages(call: ModelCall, names: ToolNames) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for index, message in enumerate(in_rounds(call.messages)):
        role, content = message["role"], message["content"]
        where = f"messages[{index}]"
        if isinstance(content, str):
            turns.append({"role": role, "content": content})
        elif role == "assistant":
            turns.append({"role": role, **_said(call, content, where, names)})
        else:
            turns += _user_turns(call, role, content, where)
    return turns


def _said(call: ModelCall, content: Sequence[Any], where: str, names: ToolNames) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    thoughts: list[str] = []
    details: list[Any] = []
    turn: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for at, block in enumerate(content):
        kind = block["type"]
        if kind == "tool_use":
            calls.append({**_call(block, names), **extra})
            extra = {}
        elif kind == "thinking":
            if "thought_signature" in block:
                extra = {"extra_content": google_extra(block["thought_signature"])}
            elif block.get("raw") is True:  # other thinking is sealed for another provider
                thoughts.append(block["thinking"])
                details += block.get("details", ())
            else:
                call.drop("thinking")
        elif kind == "refusal":
            turn["refusal"] = block["refusal"]
        elif kind in ("redacted_thinking", "server_tool"):
            call.drop("thinking" if kind == "redacted_thinking" else "web_search")
        else:
            parts.append(openai_part(call, block, f"{where}.content[{at}]", flat=False))
    turn["content"] = _joined(parts) if parts else None
    if not parts and not calls and "refusal" not in turn:
        turn["content"] = ""
    if thoughts:
        turn["reasoning_content"] = "".join(thoughts)
    if details:
        turn["reasoning_details"] = details
    if calls:
        turn["tool_calls"] = calls
    return turn


def _user_turns(
    call: ModelCall, role: str, content: Sequence[Any], where: str
) -> list[dict[str, Any]]:
    """Return each tool result as a turn of its own, then the content that such turns cannot
    contain.
    """
    turns: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for at, block in enumerate(content):
        place = f"{where}.content[{at}]"
        if block["type"] != "tool_result":
            parts.append(openai_part(call, block, place, flat=False))
            continue
        if "cache_control" in block:
            call.drop("cache_control")
        given = block["content"]
        if not isinstance(given, str):
            seen = [part for part in given if part["type"] in _MEDIA]
            rest = [part for part in given if part["type"] not in _MEDIA]
            parts += [openai_part(call, part, place, flat=False) for part in seen]
            given = _joined([openai_part(call, part, place, flat=False) for part in rest])
            given = given or (_SEE_NEXT if seen else "")
        given = with_failure(block, given)
        turns.append(
            {"role": "tool", "tool_call_id": wire_id(block["tool_use_id"]), "content": given}
        )
    if parts or not turns:
        turns.append({"role": role, "content": _joined(parts)})
    return turns


def _joined(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return one text if every part is a text, because some servers accept nothing else."""
    if all(part["type"] == "text" for part in parts):
        return "".join([part["text"] for part in parts])
    return parts


def _call(block: dict[str, Any], names: ToolNames) -> dict[str, Any]:
    function = {"name": names.sent(block["name"]), "arguments": arguments_text(block["input"])}
    return {"id": wire_id(block["id"]), "type": "function", "function": function}


def _tool(
    call: ModelCall, tool: dict[str, Any], where: str, names: ToolNames
) -> dict[str, Any] | None:
    kind, where = tool.get("type"), str(tool.get("at", where))
    if kind == "web_search":
        if tool.get("external_web_access") is not False:
            raise cannot(where, "a search of the web by the provider")
        call.drop("tools[].web_search")  # no search of the web is wanted, and none is made
        return None
    description, schema = described(tool, where)
    if "cache_control" in tool:
        call.drop("cache_control")
    function: dict[str, Any] = {"name": names.sent(tool["name"])}
    function |= function_schema(call, tool, schema)
    if description:
        function["description"] = description
    return {"type": "function", "function": function}
