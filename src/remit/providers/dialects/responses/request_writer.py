"""Calls in neutral form as bodies of ``POST /v1/responses``, and the ``response`` objects that
repeat the settings of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remit.providers.dialects.effort import openai_effort, takes_effort
from remit.providers.dialects.errors import cannot, foreign_part, leave_out_rest
from remit.providers.dialects.media import openai_part, with_failure
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.schemas import function_schema, named_schema
from remit.providers.dialects.tool_calls import (
    ToolNames,
    arguments_text,
    free_text,
    in_rounds,
    wire_id,
)
from remit.providers.dialects.tool_choice import write_choice
from remit.providers.dialects.usage import usage_of
from remit.providers.protocol import ProviderResponse

_FROM_CHAT = (
    "metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier",
    "verbosity", "store",
)  # fmt: skip
_ENCRYPTED = "reasoning.encrypted_content"
_SEARCH_KEYS = ("search_context_size", "external_web_access", "user_location")
_MIN_OUTPUT_TOKENS = 16
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ECHOED = (
    "max_tool_calls", "previous_response_id", "prompt_cache_key", "safety_identifier",
)  # fmt: skip


def write_request(call: ModelCall, *, model: str, max_output_tokens: int) -> dict[str, Any]:
    """Return a call of another dialect as a body of Responses.

    ``store`` is false unless the client asked for storage. Fields that the body cannot have are
    noted in the call's ``dropped``; those whose absence would change the answer are refused.

    The arguments are those of :func:`~remit.providers.dialects.translators.write_request`.

    Raises:
        DialectError: Responses cannot express the call.
    """
    chat = call.endpoint == "openai.chat"
    leave_out_rest(call, _FROM_CHAT if chat else ())
    if call.stop:
        raise cannot(call.own("stop"), "an end at certain texts")
    names = ToolNames(call)
    body: dict[str, Any] = {"model": model, "input": _items(call, names)}
    limit = call.max_tokens
    if limit is not None and limit < _MIN_OUTPUT_TOKENS:
        call.drop("max_tokens")
        limit = _MIN_OUTPUT_TOKENS
    if call.top_k is not None:
        call.drop("top_k")
    optional = {
        "max_output_tokens": limit,
        "temperature": call.temperature,
        "top_p": call.top_p,
        "user": call.user,
        "reasoning": _reasoning(call, model),
        "text": _text(call),
    }
    body |= {key: value for key, value in optional.items() if value is not None}
    _add_tools(call, names, body)
    if call.stream:
        body["stream"] = True
    if chat:
        carried = ((key, call.other.get(key)) for key in _FROM_CHAT if key != "verbosity")
        body |= {key: value for key, value in carried if value is not None}
    body["store"] = chat and call.other.get("store") is True
    if "reasoning" in body:
        body["include"] = [_ENCRYPTED]
    return body


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


def _text(call: ModelCall) -> dict[str, Any] | None:
    text: dict[str, Any] = {}
    if call.response_format is not None:
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


def _items(call: ModelCall, names: ToolNames) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    custom: set[str] = set()
    for index, message in enumerate(in_rounds(call.messages)):
        role, content = message["role"], message["content"]
        where = f"messages[{index}]"
        if message.get("developer") is True:
            role = "developer"
        if isinstance(content, str):
            if content:
                items.append({"type": "message", "role": role, "content": content})
        elif role == "assistant":
            said = _said(call, content, where, names)
            custom |= {item["call_id"] for item in said if item["type"] == "custom_tool_call"}
            items += said
        else:
            items += _given(call, role, content, where, custom)
    return items


def _said(
    call: ModelCall, content: Sequence[Any], where: str, names: ToolNames
) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] | None = None
    for at, block in enumerate(content):
        kind = block["type"]
        if kind in ("text", "refusal"):
            if not block[kind]:
                continue
            if parts is None:
                parts = []
                items.append({"type": "message", "role": "assistant", "content": parts})
            parts.append({"type": "output_text" if kind == "text" else kind, kind: block[kind]})
            for name in ("cache_control", "citations"):
                if name in block:
                    call.drop(name)
            continue
        parts = None
        if kind == "tool_use":
            items.append(_call(block, names))
        elif kind == "thinking" and isinstance(block.get("encrypted"), str):
            items.append(_thinking(block))
        elif kind in ("thinking", "redacted_thinking"):
            call.drop("thinking")  # This provider refuses thoughts of another.
        elif kind == "server_tool":
            call.drop("web_search")
        else:
            raise foreign_part(block, f"{where}.content[{at}]", "the Responses API")
    return items


def _thinking(block: Mapping[str, Any]) -> dict[str, Any]:
    thought = block.get("thinking")
    item: dict[str, Any] = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": thought}] if thought else [],
    }
    if block.get("raw") is True:
        content = [{"type": "reasoning_text", "text": thought}]
        item = {"type": "reasoning", "summary": [], "content": content}
    if block.get("item_id"):
        item["id"] = block["item_id"]
    return {**item, "encrypted_content": block["encrypted"]}


def _call(block: dict[str, Any], names: ToolNames) -> dict[str, Any]:
    head = {"call_id": wire_id(block["id"]), "name": names.sent(block["name"])}
    if names.is_custom(block):
        return {"type": "custom_tool_call", **head, "input": free_text(block["input"])}
    return {"type": "function_call", **head, "arguments": arguments_text(block["input"])}


def _given(
    call: ModelCall, role: str, content: Sequence[Any], where: str, custom: set[str]
) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for at, block in enumerate(content):
        place = f"{where}.content[{at}]"
        if block["type"] != "tool_result":
            parts.append(openai_part(call, block, place, flat=True))
            continue
        if "cache_control" in block:
            call.drop("cache_control")
        given = block["content"]
        if not isinstance(given, str):
            given = [openai_part(call, part, place, flat=True) for part in given]
        given = with_failure(block, given)
        identity = wire_id(block["tool_use_id"])
        kind = "custom_tool_call_output" if identity in custom else "function_call_output"
        items.append({"type": kind, "call_id": identity, "output": given})
    if parts or not items:
        items.append({"type": "message", "role": role, "content": parts})
    return items


def _add_tools(call: ModelCall, names: ToolNames, body: dict[str, Any]) -> None:
    tools = []
    for index, tool in enumerate(call.tools):
        where = str(tool.get("at", f"tools[{index}]"))
        if tool.get("type") == "other":
            raise cannot(where, "a tool that only its own provider has")
        if tool.get("blocked_domains"):
            raise cannot(f"{where}.blocked_domains", "a search without certain domains")
        if "max_uses" in tool:
            body["max_tool_calls"] = tool["max_uses"]
        if "cache_control" in tool:
            call.drop("cache_control")
        wire = tool_of(tool, names)
        if wire["type"] == "function":
            wire |= {"strict": False, **function_schema(call, tool, wire["parameters"])}
        tools.append(wire)
    if not tools:
        return
    body["tools"] = tools
    if call.parallel_tools is not None:
        body["parallel_tool_calls"] = call.parallel_tools
    if call.tool_choice is not None:
        if call.tool_choice["type"] == "other":
            raise cannot(call.own("tool_choice"), "a tool that only its own provider has")
        custom = frozenset(tool["name"] for tool in call.tools if tool.get("custom") is True)
        body["tool_choice"] = write_choice(call.tool_choice, names, custom, nested=False)


def own_tools(tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a client's tools with its namespaces in the place of their functions."""
    return [
        {"type": "other", "value": tool["group"]} if "group" in tool else tool
        for tool in tools
        if ("namespace" not in tool or "group" in tool) and "loaded" not in tool
    ]


def tool_of(tool: Mapping[str, Any], names: ToolNames) -> dict[str, Any]:
    """Return a neutral tool in the form of Responses, as a new dict.

    A tool of type ``other`` is the client's own value. Of a web search, the allowed domains, the
    place and the size of the context are written.

    Args:
        tool: the tool.
        names: the names of tools on the wire.
    """
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


def ended(
    head: dict[str, Any], output: list[dict[str, Any]], answer: ProviderResponse
) -> dict[str, Any]:
    """Return a ``response`` object in its last state: completed, or incomplete if the answer ended
    at its limit or by a filter.

    Args:
        head: the object at its start (:func:`response_object`).
        output: the output items.
        answer: the answer, with finish reason and usage.
    """
    reason = _INCOMPLETE.get(answer.finish_reason)
    return {
        **head,
        "status": "completed" if reason is None else "incomplete",
        "completed_at": head["created_at"],
        "incomplete_details": None if reason is None else {"reason": reason},
        "output": output,
        "usage": usage_of("openai.responses", answer),
    }


def response_object(call: ModelCall, *, answer_id: str, created: int, model: str) -> dict[str, Any]:
    """Return a ``response`` object at its start: ``in_progress``, without output and usage.

    Settings that the client did not make have the API's defaults.

    Args:
        call: the client's request.
        answer_id: the id of the object.
        created: seconds since 1970.
        model: the name of the model.
    """
    names = ToolNames(None)  # the client's own names
    custom = frozenset(tool["name"] for tool in call.tools if tool.get("custom") is True)
    choice = call.tool_choice or {"type": "auto"}
    text = call.other.get("text")
    verbosity = text.get("verbosity") if isinstance(text, dict) else None
    wanted = call.reasoning
    return {
        "id": answer_id,
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "background": call.other.get("background") is True,
        "completed_at": None,
        "error": None,
        "frequency_penalty": 0.0,
        "incomplete_details": None,
        "instructions": _instructions(call),
        "max_output_tokens": call.max_tokens,
        "metadata": call.other.get("metadata") or {},
        "model": model,
        "output": [],
        "parallel_tool_calls": call.parallel_tools is not False,
        "presence_penalty": 0.0,
        "reasoning": {
            "effort": wanted.effort if wanted is not None else None,
            "summary": wanted.summary if wanted is not None else None,
        },
        "service_tier": "default",
        "store": call.other.get("store") is not False,
        "temperature": 1.0 if call.temperature is None else call.temperature,
        "text": {"format": format_of(call), "verbosity": verbosity or "medium"},
        "tool_choice": write_choice(choice, names, custom, nested=False),
        "tools": [tool_of(tool, names) for tool in own_tools(call.tools)],
        "top_logprobs": 0,
        "top_p": 1.0 if call.top_p is None else call.top_p,
        "truncation": call.other.get("truncation") or "disabled",
        "usage": None,
        "user": call.user,
        **{key: call.other.get(key) for key in _ECHOED},
        **_conversation(call),
    }


def _conversation(call: ModelCall) -> dict[str, Any]:
    named = call.other.get("conversation")
    return {"conversation": {"id": named} if isinstance(named, str) else named} if named else {}


def _instructions(call: ModelCall) -> str | None:
    for message in call.messages[:1]:
        if message.get("instructions") is True:
            return str(message["content"])
    return None
