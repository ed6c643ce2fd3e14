"""Calls in neutral form as bodies of ``POST /v1/responses``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remit.providers.dialects.arguments import arguments_text, free_text
from remit.providers.dialects.dialect_error import DialectError
from remit.providers.dialects.effort import openai_effort, takes_effort
from remit.providers.dialects.media import file_fields, image_url
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.names import ToolNames, wire_id
from remit.providers.dialects.refusals import cannot, refuse_promises, words_of
from remit.providers.dialects.schemas import named_schema
from remit.providers.dialects.tool_choice import write_choice

__all__ = ["format_of", "own_tools", "tool_of", "write_request"]

ENDPOINT = "openai.responses"
_FROM_CHAT = (
    "metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier",
)  # fmt: skip
_ENCRYPTED = "reasoning.encrypted_content"
_SEARCH_KEYS = ("search_context_size", "external_web_access", "user_location")
_MIN_OUTPUT_TOKENS = 16


def write_request(call: ModelCall, *, model: str, max_output_tokens: int) -> dict[str, Any]:
    """Return a call as a body of Responses.

    ``store`` is false for a client of another dialect that did not ask for storage.

    Args:
        call: the request.
        model: the provider's name of the model.
        max_output_tokens: ignored, as the API requires no limit.

    Raises:
        DialectError: Responses cannot express the call.
    """
    own = call.endpoint == ENDPOINT
    if not own:
        refuse_promises(call)
        if call.stop:
            where = "stop_sequences" if call.endpoint == "anthropic.messages" else "stop"
            raise cannot(where, "an end at certain texts")
    names = ToolNames(call)
    body: dict[str, Any] = {"model": model, "input": _items(call, names, own)}
    limit = call.max_tokens
    optional = {
        "instructions": _instructions(call),
        "max_output_tokens": limit if own or limit is None else max(limit, _MIN_OUTPUT_TOKENS),
        "temperature": call.temperature,
        "top_p": call.top_p,
        "user": call.user,
        "reasoning": _reasoning(call, model),
        "text": _text(call, own),
    }
    body |= {key: value for key, value in optional.items() if value is not None}
    _add_tools(call, names, own, body)
    if call.stream:
        body["stream"] = True
    if own:
        return {**call.other, **body}
    if call.endpoint == "openai.chat":
        body |= {key: call.other[key] for key in _FROM_CHAT if call.other.get(key) is not None}
    body["store"] = call.endpoint == "openai.chat" and call.other.get("store") is True
    if "reasoning" in body:
        body["include"] = [_ENCRYPTED]
    return body


def _instructions(call: ModelCall) -> str | None:
    for message in call.messages[:1]:
        if message.get("instructions") is True:
            return str(message["content"])
    return None


def _reasoning(call: ModelCall, model: str) -> dict[str, Any] | None:
    wanted = call.reasoning
    if wanted is None:
        return None
    effort, summary = openai_effort(call, model), wanted.summary
    if call.endpoint == "anthropic.messages":
        if not takes_effort(model):
            return None
        if summary is None and (wanted.adaptive or wanted.budget_tokens is not None):
            summary = "auto"  # its clients see the thinking that they ask for
    said = {"effort": effort, "summary": None if summary == "omitted" else summary}
    return {key: value for key, value in said.items() if value is not None} or None


def _text(call: ModelCall, own: bool) -> dict[str, Any] | None:
    text = dict(call.other["text"]) if own and isinstance(call.other.get("text"), dict) else {}
    if call.response_format is not None and "format" not in text:
        text["format"] = format_of(call)
    if call.endpoint == "openai.chat" and isinstance(call.other.get("verbosity"), str):
        text["verbosity"] = call.other["verbosity"]
    return text or None


def format_of(call: ModelCall) -> dict[str, Any]:
    """Return the call's ``text.format``."""
    if call.response_format is None:
        return {"type": "text"}
    held = named_schema(call)
    return {"type": "json_object"} if held is None else {"type": "json_schema", **held}


def _items(call: ModelCall, names: ToolNames, own: bool) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    custom: set[str] = set()
    for index, message in enumerate(call.messages):
        if message.get("instructions") is True:
            continue
        role, content = message["role"], message["content"]
        where = f"messages[{index}]"
        if message.get("developer") is True:
            role = "developer"
        if isinstance(content, str):
            if content or own:
                items.append({"type": "message", "role": role, "content": content})
        elif role == "assistant":
            said = _said(content, where, names, own)
            custom |= {item["call_id"] for item in said if item["type"] == "custom_tool_call"}
            items += said
        else:
            items += _given(role, content, where, own, custom)
    return items


def _said(content: Sequence[Any], where: str, names: ToolNames, own: bool) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] | None = None
    for at, block in enumerate(content):
        kind = block["type"]
        if kind in ("text", "refusal"):
            if not block[kind] and not own:
                continue
            if parts is None:
                parts = []
                items.append({"type": "message", "role": "assistant", "content": parts})
            part_type = "output_text" if kind == "text" else kind
            part = {"type": part_type, kind: block[kind]}
            if own and "citations" in block:
                part["annotations"] = block["citations"]
            parts.append(part)
            continue
        parts = None
        if kind == "tool_use":
            items.append(_call(block, names))
        elif kind in ("thinking", "redacted_thinking"):
            if item := _thinking(block, own):
                items.append(item)
        elif own and kind in ("other", "server_tool") and block.get("endpoint") == ENDPOINT:
            items.append(dict(block["value"]))
        elif kind != "server_tool":
            raise _foreign(str(block.get("at", f"{where}.content[{at}]")))
    return items


def _thinking(block: Mapping[str, Any], own: bool) -> dict[str, Any] | None:
    """Return a reasoning item if this dialect's provider made the thought, since others would be
    refused; else None.
    """
    sealed = block.get("encrypted")
    if not isinstance(sealed, str) and not own:
        return None
    thought = block.get("thinking")
    if thought is None:
        return None
    summary = [{"type": "summary_text", "text": thought}] if thought else []
    item: dict[str, Any] = {"type": "reasoning", "summary": summary}
    if block.get("raw") is True:
        content = [{"type": "reasoning_text", "text": thought}]
        item = {"type": "reasoning", "summary": [], "content": content}
    if block.get("item_id"):
        item["id"] = block["item_id"]
    if isinstance(sealed, str):
        item["encrypted_content"] = sealed
    return item


def _call(block: dict[str, Any], names: ToolNames) -> dict[str, Any]:
    own = names.in_namespace(block["name"])  # a namespace's, if the client has any
    named = own if "namespace" in own else {"name": names.sent(block["name"])}
    head = {"call_id": wire_id(block["id"]), **named}
    if names.is_custom(block):
        return {"type": "custom_tool_call", **head, "input": free_text(block["input"])}
    return {"type": "function_call", **head, "arguments": arguments_text(block["input"])}


def _given(
    role: str, content: Sequence[Any], where: str, own: bool, custom: set[str]
) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for at, block in enumerate(content):
        place = f"{where}.content[{at}]"
        if block["type"] != "tool_result":
            parts.append(_part(block, place, own))
            continue
        given = block["content"]
        if not isinstance(given, str):
            given = [_part(part, place, own) for part in given]
        identity = wire_id(block["tool_use_id"])
        is_custom = identity in custom or block.get("custom") is True
        kind = "custom_tool_call_output" if is_custom else "function_call_output"
        items.append({"type": kind, "call_id": identity, "output": given})
    if parts or not items:
        items.append({"type": "message", "role": role, "content": parts})
    return items


def _part(block: Mapping[str, Any], where: str, own: bool) -> dict[str, Any]:
    kind = block["type"]
    if kind == "text":
        return {"type": "input_text", "text": block["text"]}
    if kind == "refusal":
        return {"type": "input_text", "text": block["refusal"]}
    source = block.get("source", {})
    if kind == "image":
        detail = str(block.get("detail", "auto"))
        if own and source.get("type") == "file":
            return {"type": "input_image", "file_id": source["file_id"], "detail": detail}
        return {"type": "input_image", "image_url": image_url(block), "detail": detail}
    where = str(block.get("at", where))
    if kind == "document":
        if (block.get("citations") or {}).get("enabled"):
            raise cannot(f"{where}.citations", "citations")
        if own and source.get("type") == "file":
            return {"type": "input_file", "file_id": source["file_id"]}
        return {"type": "input_file", **file_fields(block)}
    if own and kind == "other" and block.get("endpoint") == ENDPOINT:
        return dict(block["value"])
    if (words := words_of(block)) is not None:
        return {"type": "input_text", "text": words}
    raise _foreign(where)


def _foreign(where: str) -> DialectError:
    return DialectError(
        f"{where} is a part that the Responses API does not have.",
        param=where,
        next_step="Use a model whose provider speaks the client's dialect, or leave it out.",
    )


def _add_tools(call: ModelCall, names: ToolNames, own: bool, body: dict[str, Any]) -> None:
    tools = []
    for index, tool in enumerate(own_tools(call.tools) if own else call.tools):
        where = str(tool.get("at", f"tools[{index}]"))
        if not own and tool.get("type") == "other":
            raise cannot(where, "a tool that only its own provider has")
        if not own and tool.get("blocked_domains"):
            raise cannot(f"{where}.blocked_domains", "a search without certain domains")
        if "max_uses" in tool:
            body["max_tool_calls"] = tool["max_uses"]
        tools.append(tool_of(tool, names))
    if not tools:
        return
    body["tools"] = tools
    if call.parallel_tools is not None:
        body["parallel_tool_calls"] = call.parallel_tools
    if call.tool_choice is not None:
        if not own and call.tool_choice["type"] == "other":
            raise cannot("tool_choice", "a tool that only its own provider has")
        custom = frozenset(tool["name"] for tool in call.tools if tool.get("custom") is True)
        body["tool_choice"] = write_choice(call.tool_choice, names, custom, nested=False)


def own_tools(tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a client's tools with its namespaces in the place of their functions."""
    return [
        {"type": "other", "value": tool["group"]} if "group" in tool else tool
        for tool in tools
        if "namespace" not in tool or "group" in tool
    ]


def tool_of(tool: Mapping[str, Any], names: ToolNames) -> dict[str, Any]:
    """Return a neutral tool in the form of Responses."""
    kind = tool.get("type")
    if kind == "other":
        return dict(tool["value"])
    if kind == "web_search":
        search = {"type": kind, **{key: tool[key] for key in _SEARCH_KEYS if key in tool}}
        filters = {key: tool[key] for key in ("allowed_domains",) if key in tool}
        return {**search, "filters": filters} if filters else search
    wire: dict[str, Any] = {
        "type": "custom" if tool.get("custom") is True else "function",
        "name": names.sent(tool["name"]),
    }
    if tool.get("description"):
        wire["description"] = tool["description"]
    if wire["type"] == "custom":
        return {**wire, "format": tool["format"]} if "format" in tool else wire
    return {**wire, "parameters": tool.get("input_schema"), "strict": tool.get("strict", False)}
