"""Bodies of Bedrock's Converse, read into the neutral form by way of the Messages API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from remit.kernel.json_text import JsonTextError, load
from remit.providers.dialects import _checks as checks
from remit.providers.dialects.errors import DialectError
from remit.providers.dialects.messages import request_reader as messages_reader
from remit.providers.dialects.model_call import ModelCall
from remit.providers.wire.converse import message_blocks

__all__ = ["read_request"]

ENDPOINT = "bedrock.converse"
_CONFIG = {"maxTokens": "max_tokens", "temperature": "temperature", "topP": "top_p",
           "stopSequences": "stop_sequences"}  # fmt: skip
_READ = frozenset(("model", "stream", "messages", "system", "inferenceConfig", "toolConfig",
                   "outputConfig", "additionalModelRequestFields"))  # fmt: skip
_OF_MODELS = ("thinking", "top_k", "output_config")
"""Fields of Anthropic's models in ``additionalModelRequestFields``."""
_PLACES = {
    **{name: f"inferenceConfig.{own}" for own, name in _CONFIG.items()},
    **{name: f"additionalModelRequestFields.{name}" for name in _OF_MODELS},
    "tools": "toolConfig.tools", "tool_choice": "toolConfig.toolChoice",
}  # fmt: skip
_KNOWN = {
    "inferenceConfig": frozenset(_CONFIG),
    "toolConfig": frozenset(("tools", "toolChoice")),
    "toolConfig.tools[].toolSpec": frozenset(("name", "description", "inputSchema", "strict")),
    "outputConfig": frozenset(("textFormat", "effort")),
    "messages[]": frozenset(("role", "content")),
}


def read_request(body: Any) -> ModelCall:
    """Return a body of Converse, with ``model`` and ``stream`` set, in neutral form.

    Raises:
        DialectError: the body is invalid.
    """
    body = checks.checked_body(body)
    more = checks.optional(body, "additionalModelRequestFields", dict) or {}
    config = checks.optional(body, "inferenceConfig", dict) or {}
    given = {name: more[name] for name in _OF_MODELS if name in more}
    given |= {name: config[own] for own, name in _CONFIG.items() if own in config}
    given |= {name: body[name] for name in ("model", "stream") if name in body}
    given["system"] = message_blocks(body.get("system"))
    given["messages"] = messages = body.get("messages")
    if type(messages) is list:
        given["messages"] = [_turn(turn) for turn in messages]
    given |= _tools(body)
    if output := _output(body):
        given["output_config"] = {**(given.get("output_config") or {}), **output}
    try:
        call = messages_reader.read_request(given)
    except DialectError as error:
        if (first := (error.param or "").partition(".")[0].partition("[")[0]) not in _PLACES:
            raise
        param = _PLACES[first] + str(error.param)[len(first) :]
        message = error.message.replace(str(error.param), param)
        raise DialectError(message, param=param) from None
    other = {name: value for name, value in body.items() if name not in _READ}
    other |= {f"additionalModelRequestFields.{name}": value for name, value in more.items()
              if name not in _OF_MODELS}  # fmt: skip
    dropped = [name for name in call.dropped if name in ("tools[].tool_search_tool",)]
    dropped += checks.unread(body, _KNOWN)
    tools = tuple({**tool, "at": f"toolConfig.{tool['at']}"} for tool in call.tools)
    return replace(call, endpoint=ENDPOINT, tools=tools, other=other, dropped=dropped)


def _turn(turn: Any) -> Any:
    if type(turn) is not dict:
        return turn
    content = message_blocks(turn.get("content"))
    return {"role": turn.get("role"), "content": content if type(content) is list else None}


def _tools(body: dict[str, Any]) -> dict[str, Any]:
    config = checks.optional(body, "toolConfig", dict)
    if config is None:
        return {}
    tools: list[dict[str, Any]] = []
    for index, tool in enumerate(checks.optional(config, "tools", list, "toolConfig") or ()):
        where = f"toolConfig.tools[{index}]"
        if type(tool) is not dict:
            raise checks.refuse("is not an object", where)
        if "cachePoint" in tool:
            if tools:
                tools[-1]["cache_control"] = {"type": "ephemeral"}
            continue
        spec = checks.optional(tool, "toolSpec", dict, where)
        if spec is None:
            tools.append({"type": next(iter(tool), "unknown"), **tool})
            continue
        schema = checks.required(spec, "inputSchema", dict, f"{where}.toolSpec")
        own = {name: spec[name] for name in ("name", "description", "strict") if name in spec}
        tools.append({**own, "input_schema": schema.get("json")})
    found: dict[str, Any] = {"tools": tools}
    choice = checks.optional(config, "toolChoice", dict, "toolConfig")
    if choice:
        kind = next(iter(choice))
        inner = checks.optional(choice, kind, dict, "toolConfig.toolChoice") or {}
        found["tool_choice"] = {**inner, "type": kind}
    return found


def _output(body: dict[str, Any]) -> dict[str, Any]:
    """Return the wanted form of the answer and the effort as ``output_config``."""
    config = checks.optional(body, "outputConfig", dict) or {}
    found: dict[str, Any] = {}
    if effort := checks.optional(config, "effort", str, "outputConfig"):
        found["effort"] = effort
    form = checks.optional(config, "textFormat", dict, "outputConfig")
    if form is not None:
        where = "outputConfig.textFormat.structure"
        held = checks.required(form, "structure", dict, "outputConfig.textFormat")
        held = checks.required(held, "jsonSchema", dict, where)
        try:
            schema = load(checks.text(held, "schema", f"{where}.jsonSchema").encode())
        except (JsonTextError, UnicodeError):
            schema = None
        if type(schema) is not dict:
            raise checks.refuse("is not the text of a schema", f"{where}.jsonSchema.schema")
        found["format"] = {"type": "json_schema", "schema": schema}
    return found
