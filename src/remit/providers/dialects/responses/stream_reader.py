"""Events of Responses as neutral events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.kernel.exchange import (
    BlockEnd,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolUseStart,
)
from remit.providers.dialects.arguments import arguments_text
from remit.providers.dialects.dialect_error import DialectError
from remit.providers.dialects.responses.answer import read_answer, read_output_item
from remit.providers.dialects.streaming import FreeInput, stream_events
from remit.providers.dialects.unreadable import failed, shaped, unreadable

__all__ = ["ResponsesReader"]

_CALLS = ("function_call", "custom_tool_call")
_DELTAS = (
    "response.output_text.delta",
    "response.refusal.delta",
    "response.reasoning_summary_text.delta",
    "response.reasoning_text.delta",
    "response.function_call_arguments.delta",
    "response.custom_tool_call_input.delta",
)


class _Item:
    """The state of one output item of a stream."""

    def __init__(self) -> None:
        self.begun = False
        self.free = FreeInput()
        self.has_deltas = False  # The current part, or any part of the item, sent deltas.
        self.parts = 0
        self.thinks: str | None = None


class ResponsesReader:
    """Reads a stream of Responses into neutral events."""

    def __init__(self) -> None:
        self._items: dict[int, _Item] = {}

    def feed(self, data: Mapping[str, Any]) -> list[StreamEvent]:
        """Return the neutral events of one event's data.

        Raises:
            DialectError: the event does not have the API's form.
            ProviderError: the event reports an error.
        """
        kind = data.get("type")
        if not isinstance(kind, str):
            raise unreadable("type")
        if kind == "error":
            raise failed(data.get("error") or data)
        if kind in _DELTAS:
            return self._delta(kind, data)
        if kind == "response.output_item.added":
            return self._added(data)
        if kind == "response.output_item.done":
            return self._done(data)
        if kind == "response.content_part.done":
            return self._part_done(data)
        if kind == "response.reasoning_summary_part.added" and data.get("summary_index"):
            return self._thought(self._at(data), "\n\n", False)
        if kind == "response.failed":
            answer = data.get("response")
            raise failed(answer.get("error") if isinstance(answer, dict) else answer)
        if kind in ("response.completed", "response.incomplete") and not self._items:
            return stream_events(read_answer(shaped(data.get("response"), dict, "response")))
        return []

    def _at(self, data: Mapping[str, Any]) -> _Item:
        index = shaped(data.get("output_index"), int, "output_index")
        return self._items.setdefault(index, _Item())

    def _added(self, data: Mapping[str, Any]) -> list[StreamEvent]:
        item, at = data.get("item"), self._at(data)
        if not isinstance(item, dict) or item.get("type") not in _CALLS:
            return []
        return [self._start(item, at, data["output_index"])]

    def _start(self, item: dict[str, Any], at: _Item, index: int) -> ToolUseStart:
        at.begun = True
        identity = shaped(item.get("call_id"), str, "item.call_id")
        return ToolUseStart(index, identity, shaped(item.get("name"), str, "item.name"))

    def _delta(self, kind: str, data: Mapping[str, Any]) -> list[StreamEvent]:
        at = self._at(data)
        piece = shaped(data.get("delta"), str, "delta")
        if not piece:
            return []
        if kind.startswith("response.reasoning"):
            return self._thought(at, piece, kind == "response.reasoning_text.delta")
        at.has_deltas = True
        if kind == "response.output_text.delta":
            return [TextDelta(piece)]
        if kind == "response.refusal.delta":
            return [RefusalDelta(piece)]
        if not at.begun:
            raise unreadable("the input of a tool that has not been called")
        if kind == "response.custom_tool_call_input.delta":
            piece = at.free.add(piece)
        return [ToolInputDelta(data["output_index"], piece)]

    def _thought(self, at: _Item, piece: str, raw: bool) -> list[StreamEvent]:
        kind = "raw" if raw else "summary"
        if at.thinks is None:
            at.thinks = kind
        if at.thinks != kind:
            return []  # the same thoughts in other words
        at.has_deltas = True
        return [ThinkingDelta(piece, raw=raw)]

    def _part_done(self, data: Mapping[str, Any]) -> list[StreamEvent]:
        at, part = self._at(data), data.get("part")
        if not isinstance(part, dict) or part.get("type") not in ("output_text", "refusal"):
            return []
        at.parts += 1
        message = {"type": "message", "role": "assistant", "content": [part]}
        return self._ends(at, _read(message), data["output_index"])

    def _done(self, data: Mapping[str, Any]) -> list[StreamEvent]:
        at = self._at(data)
        item = shaped(data.get("item"), dict, "item")
        index = data["output_index"]
        if item.get("type") == "message":
            content = item.get("content")
            if not isinstance(content, list):
                raise unreadable("item.content")
            return self._ends(at, _read({**item, "content": content[at.parts :]}), index)
        events: list[StreamEvent] = []
        if item.get("type") in _CALLS and not at.begun:
            events.append(self._start(item, at, index))
        return events + self._ends(at, _read(item), index)

    def _ends(self, at: _Item, blocks: list[dict[str, Any]], index: int) -> list[StreamEvent]:
        """Return the ends of blocks, each after the content that did not come in pieces."""
        events: list[StreamEvent] = []
        for block in blocks:
            kind = block["type"]
            if kind == "tool_use":
                events += self._call_end(at, block, index)
                continue
            if not at.has_deltas:
                if kind == "text" and block["text"]:
                    events.append(TextDelta(block["text"]))
                elif kind == "refusal" and block["refusal"]:
                    events.append(RefusalDelta(block["refusal"]))
                elif kind == "thinking" and block["thinking"]:
                    raw = block.get("raw") is True
                    events.append(ThinkingDelta(block["thinking"], raw=raw))
            at.has_deltas = False
            events.append(BlockEnd(block))
        return events

    def _call_end(self, at: _Item, block: dict[str, Any], index: int) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        if not at.has_deltas:
            events.append(ToolInputDelta(index, arguments_text(block["input"])))
        elif block.get("custom") is True:
            events.append(ToolInputDelta(index, at.free.end()))
        return [*events, BlockEnd(block, index)]


def _read(item: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        return read_output_item(item, "item")
    except DialectError as error:
        raise unreadable("item") from error
