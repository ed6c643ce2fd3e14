"""Calls in neutral form as bodies of Bedrock's Converse, by way of the Messages API."""

from __future__ import annotations

import base64
import re
from typing import Any

from remit.providers.dialects.arguments import json_text
from remit.providers.dialects.messages import request_writer as messages_writer
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.refusals import cannot
from remit.providers.wire.converse import DOCUMENTS, converse_block

__all__ = ["write_request"]

_CONFIG = {"max_tokens": "maxTokens", "temperature": "temperature", "top_p": "topP",
           "stop_sequences": "stopSequences"}  # fmt: skip
_FORMATS = {media: name for name, media in DOCUMENTS.items()}
_NOT_OF_NAMES = re.compile(r"[^A-Za-z0-9 \-()\[\]]+")
_LONGEST_NAME = 200
_ANTHROPIC = "anthropic."


def write_request(call: ModelCall, *, model: str, max_output_tokens: int) -> dict[str, Any]:
    """Return a call of another dialect as a body of Converse with ``model`` and ``stream``, which
    the provider's path states.

    Args:
        call: the request; fields that the API lacks are added to its ``dropped``.
        model: the provider's name of the model.
        max_output_tokens: the model's largest output, sent if the client set no limit.

    Raises:
        DialectError: the API cannot express the call.
    """
    name = model.rpartition(_ANTHROPIC)[2]
    given = messages_writer.write_request(call, model=name, max_output_tokens=max_output_tokens)
    body: dict[str, Any] = {"model": model}
    body["messages"] = [
        {"role": turn["role"], "content": _blocks(call, turn["content"])}
        for turn in given["messages"]
    ]
    if system := given.get("system"):
        body["system"] = _blocks(call, system)
    config = {own: given[name] for name, own in _CONFIG.items() if name in given}
    if config:
        body["inferenceConfig"] = config
    body |= _tools(call, given)
    output = given.get("output_config", {})
    wanted: dict[str, Any] = {}
    if (form := output.get("format")) is not None:
        schema = {"jsonSchema": {"schema": json_text(form["schema"])}}
        wanted["textFormat"] = {"type": "json_schema", "structure": schema}
    is_claude = "claude" in name
    if "effort" in output and is_claude:
        wanted["effort"] = output["effort"]
    if wanted:
        body["outputConfig"] = wanted
    more = {name: given[name] for name in ("thinking", "top_k") if name in given}
    if more and is_claude:
        body["additionalModelRequestFields"] = more
    for name in () if is_claude else more:
        call.drop("reasoning" if name == "thinking" else name)
    if call.user:
        call.drop("metadata.user_id" if call.endpoint == "anthropic.messages" else "user")
    if call.stream:
        body["stream"] = True
    return body


def _blocks(call: ModelCall, content: Any) -> list[dict[str, Any]]:
    """Return blocks of the Messages API as blocks of Converse, each hint as a cache point."""
    if isinstance(content, str):
        return [{"text": content}]
    found: list[dict[str, Any]] = []
    for block in content:
        kind = block["type"]
        if kind in ("image", "document"):
            found.append(_media(call, block))
        elif kind == "tool_result":
            result = {"toolUseId": block["tool_use_id"], "content": _blocks(call, block["content"])}
            if block.get("is_error"):
                result["status"] = "error"
            found.append({"toolResult": result})
        else:
            found.append(converse_block(block))
        if "cache_control" in block:
            found.append(_cache_point(block["cache_control"]))
    return found


def _cache_point(hint: dict[str, Any]) -> dict[str, Any]:
    ttl = {"ttl": hint["ttl"]} if hint.get("ttl") else {}
    return {"cachePoint": {"type": "default", **ttl}}


def _media(call: ModelCall, block: dict[str, Any]) -> dict[str, Any]:
    kind, source = block["type"], block["source"]
    form = source["type"]
    if form == "url":
        raise cannot("messages", f"{'an' if kind == 'image' else 'a'} {kind} by its URL")
    if kind == "image":
        media = source["media_type"].partition("/")[2]
        return {kind: {"format": media, "source": {"bytes": source["data"]}}}
    title = _NOT_OF_NAMES.sub(" ", str(block.get("title") or ""))[:_LONGEST_NAME].strip()
    value: dict[str, Any] = {"name": re.sub(" +", " ", title) or "document"}
    if form == "base64":
        value["format"] = _FORMATS.get(str(source["media_type"]), "pdf")
        value["source"] = {"bytes": source["data"]}
    elif form == "text":
        data = base64.b64encode(source["data"].encode("utf-8", "replace")).decode()
        value |= {"format": "txt", "source": {"bytes": data}}
    else:
        value["source"] = {"content": _blocks(call, source["content"])}
    for name in ("context", "citations"):
        if block.get(name):
            value[name] = block[name]
    return {kind: value}


def _tools(call: ModelCall, given: dict[str, Any]) -> dict[str, Any]:
    tools: list[dict[str, Any]] = []
    for tool in given.get("tools", ()):
        if "input_schema" not in tool:
            raise cannot("tools", "a tool that the provider runs")
        spec = {name: tool[name] for name in ("name", "description", "strict") if name in tool}
        tools.append({"toolSpec": {**spec, "inputSchema": {"json": tool["input_schema"]}}})
        if "cache_control" in tool:
            tools.append(_cache_point(tool["cache_control"]))
    if not tools:
        return {}
    config: dict[str, Any] = {"tools": tools}
    choice = given.get("tool_choice", {"type": "auto"})
    if choice["type"] == "none":
        raise cannot("tool_choice", "that no tool is called")
    if choice.get("disable_parallel_tool_use"):
        call.drop("parallel_tool_calls")
    if choice["type"] != "auto":
        inner = {"name": choice["name"]} if choice["type"] == "tool" else {}
        config["toolChoice"] = {choice["type"]: inner}
    return {"toolConfig": config}
