"""Events of the Messages API as neutral events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.kernel.exchange import (
    BlockEnd,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolUseStart,
)
from remit.providers.dialects.arguments import json_text, read_arguments
from remit.providers.dialects.messages.answer import read_answer, read_block
from remit.providers.dialects.streaming import stream_events
from remit.providers.dialects.unreadable import failed, shaped, unreadable

__all__ = ["MessagesReader"]

_PIECES = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "partial_json",
    "signature_delta": "signature",
}
_GROWS = {"text": "text", "thinking": "thinking"}


class _Block:
    """The state of one block of a stream."""

    def __init__(self, block: dict[str, Any]) -> None:
        self.block = block
        self.texts: list[str] = []
        self.inputs: list[str] = []
        self.signature: list[str] = []
        self.citations: list[Any] = []

    def whole(self) -> dict[str, Any]:
        block = dict(self.block)
        if key := _GROWS.get(str(block.get("type"))):
            block[key] = "".join(self.texts)
        if self.inputs:
            block["input"] = read_arguments("".join(self.inputs))
        if self.signature:
            block["signature"] = "".join(self.signature)
        if self.citations:
            block["citations"] = self.citations
        return block


class MessagesReader:
    """Reads a stream of the Messages API into neutral events."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._queries: dict[Any, list[str]] = {}

    def feed(self, data: Mapping[str, Any]) -> list[StreamEvent]:
        """Return the neutral events of one event's data.

        Raises:
            DialectError: the event does not have the API's form.
            ProviderError: the event reports an error.
        """
        kind = data.get("type")
        if kind == "error":
            raise failed(data.get("error"))
        if kind == "content_block_delta":
            return self._delta(self._at(data), data)
        if kind == "content_block_start":
            return self._start(data)
        if kind == "content_block_stop":
            return self._stop(data)
        if kind == "message":  # a server that does not stream
            return stream_events(read_answer(data))
        return []

    def _at(self, data: Mapping[str, Any]) -> _Block:
        index = data.get("index")
        block = self._blocks.get(index) if type(index) is int else None
        if block is None:
            raise unreadable("index")
        return block

    def _start(self, data: Mapping[str, Any]) -> list[StreamEvent]:
        index = shaped(data.get("index"), int, "index")
        block = shaped(data.get("content_block"), dict, "content_block")
        opened = self._blocks[index] = _Block(block)
        kind = block.get("type")
        if kind == "tool_use":
            identity = shaped(block.get("id"), str, "content_block.id")
            name = shaped(block.get("name"), str, "content_block.name")
            start = ToolUseStart(index, identity, name)
            given = block.get("input")
            if isinstance(given, dict) and given:
                return [start, ToolInputDelta(index, json_text(given))]
            return [start]
        cited = block.get("citations")
        if isinstance(cited, list):
            opened.citations += cited
        key = _GROWS.get(kind) if isinstance(kind, str) else None
        text = block.get(key) if key is not None else None
        if not isinstance(text, str) or not text:
            return []
        opened.texts.append(text)
        return [TextDelta(text) if key == "text" else ThinkingDelta(text)]

    def _delta(self, opened: _Block, data: Mapping[str, Any]) -> list[StreamEvent]:
        delta = shaped(data.get("delta"), dict, "delta")
        kind = delta.get("type")
        if kind == "citations_delta":
            opened.citations.append(delta.get("citation"))
            return []
        key = _PIECES.get(kind) if isinstance(kind, str) else None
        if key is None:
            return []
        piece = shaped(delta.get(key), str, f"delta.{key}")
        if key == "text":
            opened.texts.append(piece)
            return [TextDelta(piece)] if piece else []
        if key == "thinking":
            opened.texts.append(piece)
            return [ThinkingDelta(piece)] if piece else []
        if key == "signature":
            opened.signature.append(piece)
            return []
        opened.inputs.append(piece)
        if opened.block.get("type") != "tool_use" or not piece:
            return []
        return [ToolInputDelta(data["index"], piece)]

    def _stop(self, data: Mapping[str, Any]) -> list[StreamEvent]:
        whole = self._at(data).whole()
        index = data["index"]
        del self._blocks[index]
        block = read_block(whole, "content_block", self._queries)
        if block is None:
            return []
        return [BlockEnd(block, index if block["type"] == "tool_use" else None)]
