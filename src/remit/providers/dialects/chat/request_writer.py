"""Calls in neutral form as bodies of ``POST /v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remit.providers.dialects.arguments import arguments_text, free_text
from remit.providers.dialects.dialect_error import DialectError
from remit.providers.dialects.effort import openai_effort
from remit.providers.dialects.media import file_fields, image_url
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.names import ToolNames, wire_id
from remit.providers.dialects.refusals import cannot, refuse_promises, words_of
from remit.providers.dialects.schemas import named_schema
from remit.providers.dialects.seals import google_extra
from remit.providers.dialects.tool_choice import custom_schema, write_choice

__all__ = ["write_request"]

ENDPOINT = "openai.chat"
_MEDIA = ("image", "document")
_SEE_NEXT = "(What the tool gave follows in the next message.)"


def write_request(call: ModelCall, *, model: str, max_output_tokens: int) -> dict[str, Any]:
    """Return a call as a body of Chat Completions.

    Args:
        call: the request.
        model: the provider's name of the model.
        max_output_tokens: ignored, as the API requires no limit.

    Raises:
        DialectError: Chat Completions cannot express the call.
    """
    own = call.endpoint == ENDPOINT
    if not own:
        refuse_promises(call)
    names = ToolNames(call)
    body: dict[str, Any] = {"model": model, "messages": _messages(call, names, own)}
    optional = {
        "max_tokens": call.max_tokens,
        "temperature": call.temperature,
        "top_p": call.top_p,
        "top_k": call.top_k if own else None,
        "user": call.user,
        "reasoning_effort": openai_effort(call, model),
    }
    body |= {key: value for key, value in optional.items() if value is not None}
    if call.stop:
        body["stop"] = list(call.stop)
    if tools := _tools(call, names, own, body):
        body["tools"] = tools
        if call.parallel_tools is not None:
            body["parallel_tool_calls"] = call.parallel_tools
        _add_choice(call, names, own, body)
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
    return body | call.other if own else body


def _messages(call: ModelCall, names: ToolNames, own: bool) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for index, message in enumerate(call.messages):
        role, content = message["role"], message["content"]
        turn: dict[str, Any] = {"role": role}
        if own and message.get("developer") is True:
            turn["role"] = "developer"
        if own and "name" in message:
            turn["name"] = message["name"]
        if isinstance(content, str):
            turns.append({**turn, "content": content})
        elif role == "assistant":
            turns.append({**turn, **_said(content, f"messages[{index}]", names, own)})
        else:
            turns += _user_turns(turn, content, f"messages[{index}]", own)
    return turns


def _said(content: Sequence[Any], where: str, names: ToolNames, own: bool) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    thoughts: list[str] = []
    turn: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for at, block in enumerate(content):
        kind = block["type"]
        if kind == "tool_use":
            calls.append({**_call(block, names, own), **extra})
            extra = {}
        elif kind == "thinking":
            if "thought_signature" in block:
                extra = {"extra_content": google_extra(block["thought_signature"])}
            elif block.get("raw") is True:  # other thinking is sealed for another provider
                thoughts.append(block["thinking"])
        elif kind == "refusal":
            turn["refusal"] = block["refusal"]
        elif kind not in ("redacted_thinking", "server_tool"):
            parts.append(_part(block, f"{where}.content[{at}]", own))
    turn["content"] = _joined(parts) if parts else None
    if not parts and not calls and "refusal" not in turn:
        turn["content"] = ""
    if thoughts:
        turn["reasoning_content"] = "".join(thoughts)
    if calls:
        turn["tool_calls"] = calls
    return turn


def _user_turns(
    head: dict[str, Any], content: Sequence[Any], where: str, own: bool
) -> list[dict[str, Any]]:
    """Return each tool result as a turn of its own, then the content that such turns cannot
    contain.
    """
    turns: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for at, block in enumerate(content):
        if block["type"] != "tool_result":
            parts.append(_part(block, f"{where}.content[{at}]", own))
            continue
        given = block["content"]
        if not isinstance(given, str):
            seen = [part for part in given if part["type"] in _MEDIA]
            rest = [part for part in given if part["type"] not in _MEDIA]
            parts += [_part(part, f"{where}.content[{at}]", own) for part in seen]
            given = _joined([_part(part, f"{where}.content[{at}]", own) for part in rest])
            given = given or (_SEE_NEXT if seen else "")
        turns.append(
            {"role": "tool", "tool_call_id": wire_id(block["tool_use_id"]), "content": given}
        )
    if parts or not turns:
        turns.append({**head, "content": _joined(parts)})
    return turns


def _joined(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return one text if every part is a text, because some servers accept nothing else."""
    if all(part["type"] == "text" for part in parts):
        return "".join([part["text"] for part in parts])
    return parts


def _part(block: Mapping[str, Any], where: str, own: bool) -> dict[str, Any]:
    kind = block["type"]
    if kind == "text":
        return {"type": "text", "text": block["text"]}
    if kind == "refusal":
        return {"type": "text", "text": block["refusal"]}
    if kind == "image":
        image = {"url": image_url(block)}
        if own and "detail" in block:
            image["detail"] = block["detail"]
        return {"type": "image_url", "image_url": image}
    at = str(block.get("at", where))
    if kind == "document":
        source = block["source"]
        if (block.get("citations") or {}).get("enabled"):
            raise cannot(f"{at}.citations", "citations")
        if source.get("type") == "text" and isinstance(source.get("data"), str):
            titled = [block.get("title"), source["data"]]
            return {"type": "text", "text": "\n".join(text for text in titled if text)}
        if own and source.get("type") == "file":
            return {"type": "file", "file": {"file_id": source.get("file_id")}}
        fields = file_fields(block)
        if "file_url" in fields:
            raise cannot(at, "a document by its URL")
        return {"type": "file", "file": fields}
    if own and kind == "other" and block.get("endpoint") == ENDPOINT:
        return dict(block["value"])
    if (words := words_of(block)) is not None:
        return {"type": "text", "text": words}
    raise DialectError(
        f"{at} is a part that Chat Completions does not have.",
        param=at,
        next_step="Use a model whose provider speaks the client's dialect, or leave it out.",
    )


def _call(block: dict[str, Any], names: ToolNames, own: bool) -> dict[str, Any]:
    head = {"id": wire_id(block["id"])}
    name = names.sent(block["name"])
    if own and block.get("custom") is True:
        called = {"name": name, "input": free_text(block["input"])}
        return {**head, "type": "custom", "custom": called}
    function = {"name": name, "arguments": arguments_text(block["input"])}
    return {**head, "type": "function", "function": function}


def _tools(
    call: ModelCall, names: ToolNames, own: bool, body: dict[str, Any]
) -> list[dict[str, Any]]:
    return [
        wire
        for index, tool in enumerate(call.tools)
        if (wire := _tool(tool, f"tools[{index}]", names, own, body)) is not None
    ]


def _tool(
    tool: dict[str, Any], where: str, names: ToolNames, own: bool, body: dict[str, Any]
) -> dict[str, Any] | None:
    kind, where = tool.get("type"), str(tool.get("at", where))
    if own and kind == "other":
        return dict(tool["value"])
    if kind == "web_search":
        if tool.get("external_web_access") is False:
            return None  # no search of the web is wanted, and none is made
        if not own:
            raise cannot(where, "a search of the web by the provider")
        options = {key: tool[key] for key in ("search_context_size",) if key in tool}
        if "user_location" in tool:
            near = {key: value for key, value in tool["user_location"].items() if key != "type"}
            options["user_location"] = {"type": "approximate", "approximate": near}
        body["web_search_options"] = options
        return None
    if tool.get("custom") is True and own:
        custom: dict[str, Any] = {key: tool[key] for key in ("name", "description") if key in tool}
        if wanted := tool.get("format"):
            grammar = {key: wanted[key] for key in ("syntax", "definition")}
            custom["format"] = {"type": "grammar", "grammar": grammar}
        return {"type": "custom", "custom": custom}
    if tool.get("custom") is True:
        description, schema = custom_schema(tool)
    elif "input_schema" in tool:
        description, schema = tool.get("description", ""), tool["input_schema"]
    else:
        raise cannot(where, "a tool that only its own provider has")
    function: dict[str, Any] = {"name": names.sent(tool["name"]), "parameters": schema}
    if description:
        function["description"] = description
    if "strict" in tool:
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}


def _add_choice(call: ModelCall, names: ToolNames, own: bool, body: dict[str, Any]) -> None:
    choice = call.tool_choice
    if choice is None:
        return
    if not own:
        if choice["type"] == "other":
            raise cannot("tool_choice", "a tool that only its own provider has")
        if choice["type"] == "allowed":  # few servers know it: offer the allowed ones alone
            allowed = {names.sent(name) for name in choice["names"]}
            body["tools"] = [tool for tool in body["tools"] if tool["function"]["name"] in allowed]
            if not body["tools"]:
                del body["tools"]
                return
            choice = {"type": choice["mode"]}
    custom = (tool["name"] for tool in call.tools if own and tool.get("custom") is True)
    body["tool_choice"] = write_choice(choice, names, frozenset(custom), nested=True)
