"""Requests, answers and streams of Bedrock's Converse, translated by way of the Messages API."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from typing_extensions import override

from remit.kernel.json_text import JsonTextError, is_finite, load_exact
from remit.providers.dialects import _checks as checks
from remit.providers.dialects.citations import message_citation
from remit.providers.dialects.errors import DialectError, cannot, shaped
from remit.providers.dialects.messages import (
    request_reader as messages_reader,
    request_writer as messages_writer,
)
from remit.providers.dialects.messages.streams import MessagesReader, MessagesWriter
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.streaming import event_bytes
from remit.providers.dialects.tool_calls import json_text
from remit.providers.dialects.usage import usage_of
from remit.providers.protocol import ProviderResponse
from remit.providers.wire.converse import (
    DOCUMENTS,
    converse_block,
    converse_delta,
    message_blocks,
    message_event,
)

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
_FORMATS = {media: name for name, media in DOCUMENTS.items()}
_NOT_OF_TITLES = re.compile(r"[^A-Za-z0-9\-()\[\]]+")
_LONGEST_TITLE = 180
_SHOWN = ("text", "thinking", "tool_use", "redacted_thinking")
"""Types of blocks of the Messages API that answers of Converse have too."""
_WORDS = {"refusal": "content_filtered"}
_WITH_BLOCKS = {"toolResult": "", "document": ".source", "searchResult": ""}
"""Kinds of blocks that contain blocks, and the members between both."""


def read_request(body: Any) -> ModelCall:
    """Return a body of Converse, with ``model`` and ``stream`` set, in neutral form.

    Fields that the neutral form does not have are in ``other``, unread members in ``dropped``.

    Raises:
        DialectError: the body is invalid.
    """
    body = checks.checked_body(body)
    more = checks.optional(body, "additionalModelRequestFields", dict) or {}
    config = checks.optional(body, "inferenceConfig", dict) or {}
    given = {name: more[name] for name in _OF_MODELS if name in more}
    given |= {name: config[own] for own, name in _CONFIG.items() if own in config}
    given |= {name: body[name] for name in ("model", "stream") if name in body}
    given["system"] = _blocks_of(body.get("system"), "system")
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
    content = _blocks_of(turn.get("content"), where)
    return {"role": turn.get("role"), "content": content if type(content) is list else None}


def _tools(body: dict[str, Any]) -> dict[str, Any]:
    config = checks.optional(body, "toolConfig", dict)
    if config is None:
        return {}
    tools: list[Any] = []
    for index, tool in enumerate(checks.optional(config, "tools", list, "toolConfig") or ()):
        where = f"toolConfig.tools[{index}]"
        checks.check_kind(checks.checked_object(tool, where), where)
        tool = {name: value for name, value in tool.items() if value is not None}
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
        kind = next((name for name, value in choice.items() if value is not None), "auto")
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
            schema = load_exact(checks.text(held, "schema", f"{where}.jsonSchema").encode())
        except (JsonTextError, UnicodeError):
            schema = None
        if type(schema) is not dict or not is_finite(schema):
            raise checks.refuse("is not the text of a schema", f"{where}.jsonSchema.schema")
        found["format"] = {"type": "json_schema", "schema": schema}
    return found


def _blocks_of(blocks: Any, where: str) -> Any:
    """Return blocks of Converse as blocks of the Messages API, at the same places.

    Values of the wrong type stay, for the reader to refuse. Raise DialectError if a block has more
    than one kind.

    Args:
        blocks: the client's value.
        where: its place in the body.
    """
    if type(blocks) is not list:
        return blocks
    _check_kinds(blocks, where)
    read = iter(message_blocks(blocks))
    found: list[Any] = []
    for index, block in enumerate(blocks):
        if type(block) is not dict or type(block.get("cachePoint")) is not dict:
            found += [checks.SKIPPED] * (index - len(found))
            found.append(next(read))
    return found


def _check_kinds(blocks: Any, where: str) -> None:
    """Raise DialectError if a block, or a block within it, has more than one kind."""
    for index, block in enumerate(blocks if type(blocks) is list else ()):
        if type(block) is not dict:
            continue
        checks.check_kind(block, at := f"{where}[{index}]")
        for name, value in block.items():
            if type(value) is dict and name in _WITH_BLOCKS:
                inner = value.get("source") if name == "document" else value
                content = inner.get("content") if type(inner) is dict else None
                _check_kinds(content, f"{at}.{name}{_WITH_BLOCKS[name]}.content")


def write_request(call: ModelCall, *, model: str, max_output_tokens: int) -> dict[str, Any]:
    """Return a call of another dialect as a body of Converse with ``model`` and ``stream``, which
    the provider's path states.

    Fields that the body cannot have are noted in the call's ``dropped``; those whose absence would
    change the answer are refused. The arguments are those of
    :func:`~remit.providers.dialects.translators.write_request`.

    Raises:
        DialectError: the API cannot express the call.
    """
    for index, tool in enumerate(call.tools):
        if tool.get("type") == "web_search" and tool.get("external_web_access") is not False:
            raise cannot(str(tool.get("at", f"tools[{index}]")), "a search of the web")
    name = model.rpartition("anthropic.")[2]
    given = messages_writer.write_request(call, model=name, max_output_tokens=max_output_tokens)
    writer = _BlockWriter(call, caches="claude" in name or "nova" in name)
    body: dict[str, Any] = {"model": model}
    body["messages"] = [
        {"role": turn["role"], "content": writer.blocks(turn["content"])}
        for turn in given["messages"]
    ]
    if system := given.get("system"):
        body["system"] = writer.blocks(system)
    config = {own: given[name] for own, name in _CONFIG.items() if name in given}
    body["inferenceConfig"] = config
    body |= _tool_config(call, given, writer)
    output = given.get("output_config", {})
    wanted: dict[str, Any] = {}
    if (form := output.get("format")) is not None:
        schema = {"jsonSchema": {"schema": json_text(form["schema"])}}
        wanted["textFormat"] = {"type": "json_schema", "structure": schema}
    more = {name: given[name] for name in ("thinking", "top_k") if name in given}
    if "claude" not in name:  # These are Anthropic's own fields.
        for field in more:
            call.drop("reasoning" if field == "thinking" else field)
        more = {}
    elif "effort" in output:
        wanted["effort"] = output["effort"]
    if wanted:
        body["outputConfig"] = wanted
    if more:
        body["additionalModelRequestFields"] = more
    if call.user:
        call.drop("user")
    if call.stream:
        body["stream"] = True
    return body


class _BlockWriter:
    """Writes blocks of the Messages API as blocks of Converse.

    Args:
        call: the request.
        caches: True if the model accepts cache points.
    """

    def __init__(self, call: ModelCall, *, caches: bool) -> None:
        self._call = call
        self._caches = caches
        self._titles: set[str] = set()

    def blocks(self, content: Any, *, in_result: bool = False) -> list[dict[str, Any]]:
        """Return the blocks, each hint as a cache point.

        Args:
            content: a text, or blocks.
            in_result: True for the content of a tool's result, which has no cache points.
        """
        if isinstance(content, str):
            return [{"text": content}]
        found: list[dict[str, Any]] = []
        for block in content:
            kind = block["type"]
            if kind in ("image", "document"):
                found.append(self._media(block))
            elif kind == "tool_result":
                inner = self.blocks(block["content"], in_result=True)
                result = {"toolUseId": block["tool_use_id"], "content": inner}
                if block.get("is_error"):
                    result["status"] = "error"
                found.append({"toolResult": result})
            else:
                found.append(converse_block(block))
            found += self.cache_point(block, in_result=in_result)
        return found

    def cache_point(
        self, hinted: dict[str, Any], *, in_result: bool = False
    ) -> list[dict[str, Any]]:
        """Return the cache point for the hint of a block or tool; nothing without one."""
        hint = hinted.get("cache_control")
        if hint is None:
            return []
        if in_result or not self._caches:
            self._call.drop("cache_control")
            return []
        ttl = {"ttl": hint["ttl"]} if hint.get("ttl") else {}
        return [{"cachePoint": {"type": "default", **ttl}}]

    def _media(self, block: dict[str, Any]) -> dict[str, Any]:
        kind, source = block["type"], block["source"]
        form = source["type"]
        if form == "url":
            what = f"{'an' if kind == 'image' else 'a'} {kind} by its URL"
            raise cannot(str(block.get("at", "messages")), what)
        if kind == "image":
            media = source["media_type"].partition("/")[2]
            return {kind: {"format": media, "source": {"bytes": source["data"]}}}
        value: dict[str, Any] = {"name": self._title(block)}
        if form == "base64":
            value["format"] = _FORMATS.get(str(source["media_type"]), "pdf")
            value["source"] = {"bytes": source["data"]}
        elif form == "text":
            data = base64.b64encode(source["data"].encode("utf-8", "replace")).decode()
            value |= {"format": "txt", "source": {"bytes": data}}
        else:
            value["source"] = {"content": self.blocks(source["content"])}
        for name in ("context", "citations"):
            if block.get(name):
                value[name] = block[name]
        return {kind: value}

    def _title(self, block: dict[str, Any]) -> str:
        """Return the name of a document, in the API's letters and unlike all earlier names."""
        plain = " ".join(_NOT_OF_TITLES.sub(" ", str(block.get("title") or "")).split())
        title = plain[:_LONGEST_TITLE] or "document"
        if title in self._titles:
            title = f"{title} ({len(self._titles) + 1})"
        self._titles.add(title)
        return title


def _tool_config(call: ModelCall, given: dict[str, Any], writer: _BlockWriter) -> dict[str, Any]:
    """Return ``toolConfig``; nothing without tools.

    Raises:
        DialectError: a tool is run by a provider, or no tool may be called.
    """
    tools: list[dict[str, Any]] = []
    for tool in given.get("tools", ()):
        if "input_schema" not in tool:
            raise cannot("tools", "a tool that the provider runs")
        spec = {name: tool[name] for name in ("name", "description", "strict") if name in tool}
        tools.append({"toolSpec": {**spec, "inputSchema": {"json": tool["input_schema"]}}})
        tools += writer.cache_point(tool)
    if not tools:
        return {}
    choice = given.get("tool_choice", {"type": "auto"})
    kind = choice["type"]
    if kind == "none":
        raise cannot(call.own("tool_choice"), "that no tool is called")
    if choice.get("disable_parallel_tool_use"):
        call.drop("parallel_tool_calls")
    config: dict[str, Any] = {"tools": tools}
    if kind != "auto":
        config["toolChoice"] = {kind: {"name": choice["name"]} if kind == "tool" else {}}
    return {"toolConfig": config}


class ConverseReader(MessagesReader):
    """Translates a stream of Converse to neutral events, read from the sum of the stream.

    The argument is a ConverseSum, to which each event is added before :meth:`feed`.
    """

    @override
    def _feed(self, data: Mapping[str, Any]) -> None:
        super()._feed(message_event(data))

    @override
    def _block(self, at: int) -> dict[str, Any]:
        block = super()._block(at)
        if not (cited := block.get("citations")):
            return block
        read = [message_citation(shaped(one, dict, "citation"))
                for one in shaped(cited, list, "citations")]  # fmt: skip
        return {**block, "citations": [one for one in read if one is not None]}


class ConverseWriter(MessagesWriter):
    """A writer of one answer as events of Converse, in the bytes of server-sent events.

    The server sends each event as a frame; the name of the event is not part of its data. Citations
    and searches, which Converse does not have, are left out. The usage follows the end.
    """

    _shown = True  # False within a block that Converse does not have.

    @override
    def end(self, answer: ProviderResponse) -> bytes:
        metadata = {"usage": usage_of("bedrock.converse", answer), "metrics": {"latencyMs": 0}}
        return super().end(answer) + event_bytes(metadata, "metadata")

    @override
    def _sse(self, name: str, data: Mapping[str, Any]) -> bytes:
        if name == "error":  # The server makes an exception of it.
            return super()._sse(name, data)
        if name == "message_start":
            return event_bytes({"role": "assistant"}, "messageStart")
        if name == "message_delta":
            word = data["delta"]["stop_reason"]
            return event_bytes({"stopReason": _WORDS.get(word, word)}, "messageStop")
        if name == "message_stop":
            return b""
        at = {"contentBlockIndex": data["index"]}
        if name == "content_block_start":
            return self._started(data["content_block"], at)
        if not self._shown:
            return b""
        if name == "content_block_stop":
            return event_bytes(at, "contentBlockStop")
        delta = converse_delta(data["delta"])
        return b"" if delta is None else event_bytes({"delta": delta, **at}, "contentBlockDelta")

    def _started(self, block: dict[str, Any], at: dict[str, Any]) -> bytes:
        """Return the beginning of a block; a text or a thought begins with its first piece."""
        kind = block["type"]
        self._shown = kind in _SHOWN
        if kind == "tool_use":
            start = {"toolUse": {"toolUseId": block["id"], "name": block["name"]}}
            return event_bytes({"start": start, **at}, "contentBlockStart")
        if kind == "redacted_thinking":
            return event_bytes({"delta": converse_block(block), **at}, "contentBlockDelta")
        return b""


def whole(value: dict[str, Any], answer: ProviderResponse) -> dict[str, Any]:
    """Return an answer of Converse with an object as input of each call.

    Args:
        value: the sum of the answer's stream, in which an incomplete input is a text.
        answer: the answer in neutral form.
    """
    inputs = [block["input"] for block in answer.content_blocks if block["type"] == "tool_use"]
    calls = [block for block in value["output"]["message"]["content"] if "toolUse" in block]
    for block, given in zip(calls, inputs, strict=True):
        block["toolUse"]["input"] = given
    return value
