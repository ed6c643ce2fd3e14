"""Streams of Bedrock's ConverseStream, read and written by way of the Messages API."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from remit.kernel.exchange import StreamEvent
from remit.providers.dialects.arguments import json_text
from remit.providers.dialects.messages.stream_reader import MessagesReader
from remit.providers.dialects.messages.stream_writer import MessagesWriter
from remit.providers.dialects.usage import converse_usage
from remit.providers.protocol import ProviderResponse
from remit.providers.wire.converse import message_event

__all__ = ["ConverseReader", "ConverseWriter", "whole"]

_WORDS = {"refusal": "content_filtered"}


class ConverseReader(MessagesReader):
    """Reader of a stream's sum, which returns the additions of each event."""

    @override
    def feed(self, data: Mapping[str, Any]) -> list[StreamEvent]:
        return super().feed(message_event(data))


class ConverseWriter(MessagesWriter):
    """A writer of a stream (:class:`~remit.providers.dialects.StreamWriter`).

    The server sends each event as a frame; the name of the event is not part of its data.
    """

    _shown = True  # False within a block that Converse does not have.

    @override
    def end(self, answer: ProviderResponse) -> bytes:
        metadata = {"usage": converse_usage(answer), "metrics": {"latencyMs": 0}}
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
            data = base64.b64encode(block["data"].encode("utf-8", "replace")).decode()
            delta = {"reasoningContent": {"redactedContent": data}}
            return _event("contentBlockDelta", {"delta": delta, **at})
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


def whole(value: dict[str, Any], answer: ProviderResponse) -> dict[str, Any]:
    """Return an answer with an object as input of each call.

    Args:
        value: the sum of the answer's stream, in which an incomplete input is a text.
        answer: the answer.
    """
    calls = [block for block in answer.content_blocks if block["type"] == "tool_use"]
    blocks = value.get("output", {}).get("message", {}).get("content", ())
    used = [block["toolUse"] for block in blocks if "toolUse" in block]
    for block, call in zip(used, calls, strict=False):
        block["input"] = call["input"]
    return value
