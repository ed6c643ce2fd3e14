"""Bedrock's Converse for clients, by way of the Messages API: requests, answers and streams.

No provider of Remit speaks Converse, so no request is written and no answer is read.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from typing_extensions import override

from remit.kernel.json_text import JsonTextError, dump, load
from remit.providers.dialects import _checks as checks
from remit.providers.dialects.errors import DialectError
from remit.providers.dialects.messages import request_reader as messages_reader
from remit.providers.dialects.messages.streams import MessagesWriter
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.tool_calls import json_text
from remit.providers.dialects.usage import usage_of
from remit.providers.protocol import ProviderResponse
from remit.providers.wire.answer import texts

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


_DOCUMENTS = {
    "pdf": "application/pdf", "csv": "text/csv", "html": "text/html", "txt": "text/plain",
    "md": "text/markdown", "doc": "application/msword", "xls": "application/vnd.ms-excel",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}  # fmt: skip
"""Formats of documents and their media types."""

_FOREIGN = "converse"
"""The type, in place of one of the Messages API, of a block that only Converse has."""

_WORDS = {"refusal": "content_filtered"}
_NOTHING: dict[str, Any] = {}


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
    given["system"] = _message_blocks(body.get("system"), "system")
    given["messages"] = messages = body.get("messages")
    if type(messages) is list:
        given["messages"] = [
            _turn(turn, f"messages[{index}].content") for index, turn in enumerate(messages)
        ]
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


def _turn(turn: Any, where: str) -> Any:
    if type(turn) is not dict:
        return turn
    content = _message_blocks(turn.get("content"), where)
    return {"role": turn.get("role"), "content": content if type(content) is list else None}


def _tools(body: dict[str, Any]) -> dict[str, Any]:
    config = checks.optional(body, "toolConfig", dict)
    if config is None:
        return {}
    tools: list[Any] = []
    for index, tool in enumerate(checks.optional(config, "tools", list, "toolConfig") or ()):
        where = f"toolConfig.tools[{index}]"
        if type(tool) is not dict:
            raise checks.refuse("is not an object", where)
        checks.check_kind(tool, where)
        if "cachePoint" in tool:
            if tools:
                tools[-1]["cache_control"] = {"type": "ephemeral"}
            continue
        tools += [checks.SKIPPED] * (index - len(tools))
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
        checks.check_kind(choice, "toolConfig.toolChoice")
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


def _message_blocks(blocks: Any, where: str) -> Any:
    """Return blocks of Converse as blocks of the Messages API, at the same places.

    A cache point marks the block before it. Values of the wrong type stay, for the reader to
    refuse. Raise DialectError if a block has more than one kind.

    Args:
        blocks: the client's value.
        where: its place in the body.
    """
    if type(blocks) is not list:
        return blocks
    found: list[Any] = []
    for index, block in enumerate(blocks):
        at = f"{where}[{index}]"
        if type(block) is dict:
            checks.check_kind(block, at)
        point = block.get("cachePoint") if type(block) is dict else None
        if type(point) is not dict:
            found += [checks.SKIPPED] * (index - len(found))
            found.append(_message_block(block, at))
        elif found and type(found[-1]) is dict:
            ttl = {"ttl": point["ttl"]} if point.get("ttl") else {}
            found[-1]["cache_control"] = {"type": "ephemeral", **ttl}
    return found


def _raw_blocks(blocks: Any, where: str) -> Any:
    """Do as :func:`_message_blocks` for blocks that are sent without being read."""
    found = _message_blocks(blocks, where)
    return [each for each in found if each is not checks.SKIPPED] if type(found) is list else found


def _message_block(block: Any, where: str) -> Any:
    if type(block) is not dict:
        return block
    if "text" in block:
        return {"type": "text", "text": block["text"]}
    kind = next((name for name, value in block.items() if type(value) is dict), "")
    value: dict[str, Any] = block.get(kind, _NOTHING)
    if kind == "toolUse" and "type" not in value:
        names = {"id": "toolUseId", "name": "name", "input": "input"}
        return {"type": "tool_use"} | {to: value[own] for to, own in names.items() if own in value}
    if kind == "toolResult" and "type" not in value:
        found = {"type": "tool_result", "tool_use_id": value.get("toolUseId")}
        place = f"{where}.toolResult.content"
        found["content"] = _message_blocks(value.get("content"), place)
        return found | ({"is_error": True} if value.get("status") == "error" else {})
    if kind == "json" or "json" in block:
        return {"type": "text", "text": dump(block["json"]).decode()}
    if kind == "reasoningContent":
        return _thought(value) or {"type": _FOREIGN, "value": block}
    source = value.get("source")
    source = source if type(source) is dict else _NOTHING
    if kind == "image" and "bytes" in source:
        media = f"image/{value.get('format')}"
        return {"type": kind, "source": _base64(media, source["bytes"])}
    if kind == "document" and not source.keys().isdisjoint(("bytes", "text", "content")):
        if "bytes" in source:
            given = _base64(_DOCUMENTS.get(str(value.get("format")), "?"), source["bytes"])
        elif "text" in source:
            given = {"type": "text", "media_type": "text/plain", "data": source["text"]}
        else:
            given = {
                "type": "content",
                "content": _raw_blocks(source["content"], f"{where}.document.source.content"),
            }
        more = {name: value[name] for name in ("context", "citations") if name in value}
        return {"type": kind, "source": given, "title": value.get("name"), **more}
    if kind == "citationsContent":
        text = texts(value.get("content"))
        return {"type": "text", "text": text, "citations": value.get("citations")}
    if kind == "searchResult":
        content = _raw_blocks(value.get("content"), f"{where}.searchResult.content")
        return {**value, "type": "search_result", "content": content}
    return {"type": _FOREIGN, "value": block}


def _base64(media_type: str, data: Any) -> dict[str, Any]:
    return {"type": "base64", "media_type": media_type, "data": data}


def _thought(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return a thought as a block; None for one without the form of the API."""
    text, data = value.get("reasoningText"), value.get("redactedContent")
    if type(text) is dict:
        seal = {"signature": text["signature"]} if text.get("signature") else {}
        return {"type": "thinking", "thinking": text.get("text"), **seal}
    if type(data) is not str:
        return None
    try:
        plain = base64.b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    return {"type": "redacted_thinking", "data": plain}


class ConverseWriter(MessagesWriter):
    """A writer of a stream (:class:`~remit.providers.dialects.StreamWriter`).

    The server sends each event as a frame; the name of the event is not part of its data.
    """

    _shown = True  # False within a block that Converse does not have.

    @override
    def end(self, answer: ProviderResponse) -> bytes:
        metadata = {"usage": usage_of("bedrock.converse", answer), "metrics": {"latencyMs": 0}}
        return super().end(answer) + _event("metadata", metadata)

    @override
    def _sse(self, name: str, data: Mapping[str, Any]) -> bytes:
        if name == "error":  # The server makes an exception of it.
            return super()._sse(name, data)
        if name == "message_start":
            return _event("messageStart", {"role": "assistant"})
        if name == "message_delta":
            word = data["delta"]["stop_reason"]
            return _event("messageStop", {"stopReason": _WORDS.get(word, word)})
        if name == "message_stop":
            return b""
        at = {"contentBlockIndex": data["index"]}
        if name == "content_block_start":
            return self._started(data["content_block"], at)
        if not self._shown:
            return b""
        if name == "content_block_stop":
            return _event("contentBlockStop", at)
        delta = _delta(data["delta"])
        return b"" if delta is None else _event("contentBlockDelta", {"delta": delta, **at})

    def _started(self, block: dict[str, Any], at: dict[str, Any]) -> bytes:
        """Return the beginning of a block; a text or a thought begins with its first piece."""
        kind = block["type"]
        self._shown = kind in ("text", "thinking", "tool_use", "redacted_thinking")
        if kind == "tool_use":
            start = {"toolUse": {"toolUseId": block["id"], "name": block["name"]}}
            return _event("contentBlockStart", {"start": start, **at})
        if kind == "redacted_thinking":
            return _event("contentBlockDelta", {"delta": _redacted(block["data"]), **at})
        return b""


def _delta(delta: dict[str, Any]) -> dict[str, Any] | None:
    kind = delta["type"]
    if kind == "text_delta":
        return {"text": delta["text"]}
    if kind == "input_json_delta":
        return {"toolUse": {"input": delta["partial_json"]}}
    if kind == "thinking_delta":
        return {"reasoningContent": {"text": delta["thinking"]}}
    if kind == "signature_delta":
        return {"reasoningContent": {"signature": delta["signature"]}}
    return None  # The places of citations differ from API to API.


def _event(name: str, data: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), json_text(data).encode())


def whole(message: dict[str, Any], answer: ProviderResponse) -> dict[str, Any]:
    """Return an answer of the Messages API as one of Converse.

    Args:
        message: the answer of the Messages API.
        answer: the answer in neutral form.
    """
    content = [found for block in message["content"] if (found := _converse_block(block))]
    word = message["stop_reason"]
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": _WORDS.get(word, word),
        "usage": usage_of("bedrock.converse", answer),
        "metrics": {"latencyMs": 0},
    }


def _converse_block(block: dict[str, Any]) -> dict[str, Any] | None:
    """Return a block of the Messages API as one of Converse; None if Converse has none like it."""
    kind = block["type"]
    if kind == "text":
        return {"text": block["text"]} if block["text"] else None
    if kind == "tool_use":
        named = {"toolUseId": block["id"], "name": block["name"]}
        return {"toolUse": {**named, "input": block["input"]}}
    if kind == "thinking":
        seal = {"signature": block["signature"]} if block.get("signature") else {}
        return {"reasoningContent": {"reasoningText": {"text": block["thinking"], **seal}}}
    return _redacted(block["data"]) if kind == "redacted_thinking" else None


def _redacted(data: str) -> dict[str, Any]:
    encoded = base64.b64encode(data.encode("utf-8", "replace")).decode()
    return {"reasoningContent": {"redactedContent": encoded}}
