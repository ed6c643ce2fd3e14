"""Streams of the Messages API as neutral events, read from the sum of the stream."""

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
from remit.providers.dialects.arguments import json_text
from remit.providers.dialects.messages.answer import read_block
from remit.providers.dialects.unreadable import failed, shaped, unreadable
from remit.providers.wire.delta import Cursor
from remit.providers.wire.messages import MessageSum

__all__ = ["MessagesReader"]

_GROWS = {"text": "text", "thinking": "thinking"}
_OF_A_BLOCK = ("content_block_delta", "content_block_stop")
_TEXT_OF = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json",
            "signature_delta": "signature"}  # fmt: skip


class MessagesReader:
    """Reads the sum of a stream after each event, and returns what the event added.

    Args:
        total: the sum, to which each event is added first.
    """

    def __init__(self, total: MessageSum) -> None:
        self._sum = total
        self._begun = 0  # blocks
        self._open: dict[int, Cursor] = {}  # keyed by the block's place in the sum
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
        _check(kind, data)
        events: list[StreamEvent] = []
        while self._begun < self._sum.count:
            for earlier in tuple(self._open):  # Only calls come at the same time.
                if self._sum.block(earlier).get("type") != "tool_use" or kind == "message":
                    self._end(earlier, events)
            self._begin(self._begun, events)
            self._begun += 1
        if kind in _OF_A_BLOCK:
            at = self._sum.place(data.get("index"))
            if at is None or at not in self._open:
                raise unreadable("index")
            self._grow(at, events)
            if kind == "content_block_stop":
                self._end(at, events)
        elif kind == "message":  # a server that does not stream
            events += self.finish()
        return events

    def finish(self) -> list[StreamEvent]:
        """Return the ends of all open blocks, once the stream has ended.

        Raises:
            DialectError: a block does not have the API's form.
        """
        events: list[StreamEvent] = []
        for at in tuple(self._open):
            self._end(at, events)
        return events

    def _begin(self, at: int, events: list[StreamEvent]) -> None:
        self._open[at] = Cursor()
        block = self._sum.block(at)
        if block.get("type") == "tool_use":
            identity = shaped(block.get("id"), str, "content_block.id")
            name = shaped(block.get("name"), str, "content_block.name")
            events.append(ToolUseStart(at, identity, name))
            given = block.get("input")
            if isinstance(given, dict) and given:
                events.append(ToolInputDelta(at, json_text(given)))
        self._grow(at, events)

    def _grow(self, at: int, events: list[StreamEvent]) -> None:
        block = self._sum.block(at)
        kind = str(block.get("type"))
        if kind == "tool_use":
            if new := self._open[at].new(self._sum.inputs(at)):
                events.append(ToolInputDelta(at, new))
        elif key := _GROWS.get(kind):
            value = block.get(key, "")
            if not isinstance(value, (str, list)):
                raise unreadable(f"content_block.{key}")
            if new := self._open[at].new(value):
                events.append(TextDelta(new) if key == "text" else ThinkingDelta(new))

    def _end(self, at: int, events: list[StreamEvent]) -> None:
        del self._open[at]
        block = read_block(self._sum.whole(at), "content_block", self._queries)
        if block is not None:
            events.append(BlockEnd(block, at if block["type"] == "tool_use" else None))


def _check(kind: Any, data: Mapping[str, Any]) -> None:
    """Raise DialectError unless an event of a block has the API's form."""
    if kind == "content_block_start":
        shaped(data.get("content_block"), dict, "content_block")
    elif kind == "content_block_delta":
        delta = shaped(data.get("delta"), dict, "delta")
        delta_kind = delta.get("type")
        key = _TEXT_OF.get(delta_kind) if isinstance(delta_kind, str) else None
        if key is not None:
            shaped(delta.get(key), str, f"delta.{key}")
