"""Streams of Responses as neutral events, read from the sum of the stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.kernel import exchange
from remit.kernel.exchange import StreamEvent
from remit.providers.dialects.arguments import arguments_text, json_text
from remit.providers.dialects.errors import failed, shaped, unreadable
from remit.providers.dialects.responses.items import read_item
from remit.providers.dialects.streaming import FreeInput
from remit.providers.wire.delta import Cursor, settled
from remit.providers.wire.responses import ResponseSum

__all__ = ["ResponsesReader"]

_INPUTS = {"function_call": "arguments", "custom_tool_call": "input"}


class _Item:
    """The part of an output item that was passed on."""

    def __init__(self) -> None:
        self.begun = False
        self.free = FreeInput()
        self.cursors: dict[int, Cursor] = {}  # keyed by part
        self.parts = 0  # The number of parts that have ended.
        self.thinks = ""  # the list with the thoughts: summary or content


class ResponsesReader:
    """Reader of a stream's sum, which returns the additions of each event.

    Args:
        total: the sum, to which each event is added first.
    """

    def __init__(self, total: ResponseSum) -> None:
        self._sum = total
        self._open: dict[int, _Item] = {}  # keyed by output index
        self._last: dict[int, dict[str, Any]] = {}
        self._any = False

    def feed(self, data: Mapping[str, Any]) -> list[StreamEvent]:
        """Return the neutral events of one event's data.

        Raises:
            DialectError: the event does not have the API's form.
            ProviderError: the event reports an error.
        """
        kind = data.get("type")
        if not isinstance(kind, str):
            kind, data = "response.completed", {"response": data}
        answer = data.get("response")
        error = answer.get("error") if isinstance(answer, dict) else answer
        if kind == "error":
            raise failed(data.get("error") or data)
        if kind == "response.failed" or _has_failed(answer):
            raise failed(error or "the response failed")
        if kind in ("response.completed", "response.incomplete"):
            return self.finish() if self._any else self._whole(answer)
        if "output_index" not in data and not kind.startswith("response.output_item."):
            return []
        index = shaped(data.get("output_index"), int, "output_index")
        events: list[StreamEvent] = []
        if kind.endswith(".delta"):
            shaped(data.get("delta"), str, "delta")
        if (item := self._sum.item(index)) is not None:
            state = self._open.get(index)
            if state is None:
                if index in self._last:
                    raise unreadable("output_index")
                state = self._open[index] = _Item()
            self._any = True
            self._last[index] = item
            self._grow(state, item, index, events)
            is_message = item.get("type") == "message"
            if (
                is_message
                and kind == "response.content_part.done"
                and state.parts < len(item["content"])  # The end of a part may come twice.
            ):
                self._end_part(state, item, events)
        if kind == "response.output_item.done":
            self._end(index, shaped(data.get("item"), dict, "item"), events)
        return events

    def finish(self) -> list[StreamEvent]:
        """Return the ends of all open items, once the stream has ended.

        Raises:
            DialectError: an item does not have the API's form.
        """
        events: list[StreamEvent] = []
        for index in sorted(self._open):
            self._end(index, settled(self._last[index]), events)
        return events

    def _whole(self, answer: Any) -> list[StreamEvent]:
        """Return the events of an answer of which no item has come."""
        self._any = True
        events: list[StreamEvent] = []
        output = shaped(shaped(answer, dict, "response").get("output"), list, "output")
        for index, item in enumerate(output):
            self._open[index] = _Item()
            self._end(index, shaped(item, dict, f"output[{index}]"), events)
        return events

    def _grow(
        self, state: _Item, item: dict[str, Any], index: int, events: list[StreamEvent]
    ) -> None:
        kind = str(item.get("type"))
        if kind == "message":
            parts = shaped(item.get("content", []), list, "item.content")
            while state.parts < len(parts):
                self._text(state, parts[state.parts], events)
                if state.parts + 1 == len(parts):
                    break
                self._end_part(state, item, events)
        elif kind == "reasoning":
            self._think(state, item, events)
        elif kind in _INPUTS:
            if not state.begun:
                state.begun = True
                names = [shaped(item.get(key), str, f"item.{key}") for key in ("call_id", "name")]
                events.append(exchange.ToolUseStart(index, *names))
            given = item.get(_INPUTS[kind])
            cursor = state.cursors.setdefault(0, Cursor())
            if isinstance(given, (str, list)) and (new := cursor.new(given)):
                piece = state.free.add(new) if kind == "custom_tool_call" else new
                events.append(exchange.ToolInputDelta(index, piece))

    def _text(self, state: _Item, part: Any, events: list[StreamEvent]) -> None:
        key = "refusal" if isinstance(part, dict) and part.get("type") == "refusal" else "text"
        text = part.get(key, "") if isinstance(part, dict) else None
        if not isinstance(text, (str, list)):
            raise unreadable(f"part.{key}")
        if new := state.cursors.setdefault(state.parts, Cursor()).new(text):
            events.append(exchange.TextDelta(new) if key == "text" else exchange.RefusalDelta(new))

    def _think(self, state: _Item, item: dict[str, Any], events: list[StreamEvent]) -> None:
        for name, raw in (("content", True), ("summary", False)):
            parts = item.get(name)
            if state.thinks in ("", name) and isinstance(parts, list) and parts:
                for place, part in enumerate(parts):
                    text = part.get("text", "") if isinstance(part, dict) else None
                    if not isinstance(text, (str, list)):
                        raise unreadable("part.text")
                    known = place in state.cursors
                    new = state.cursors.setdefault(place, Cursor()).new(text)
                    if place and not known and not raw:
                        new = f"\n\n{new}"
                    if new:
                        state.thinks = name
                        events.append(exchange.ThinkingDelta(new, raw=raw))

    def _end_part(self, state: _Item, item: dict[str, Any], events: list[StreamEvent]) -> None:
        """End the current part of a message."""
        part = settled(shaped(item.get("content"), list, "item.content")[state.parts])
        state.parts += 1
        message = {"type": "message", "role": "assistant", "content": [part]}
        events += [exchange.BlockEnd(block) for block in _read(message)]

    def _end(self, index: int, item: dict[str, Any], events: list[StreamEvent]) -> None:
        state = self._open.pop(index, None)
        if state is None:
            return
        self._grow(state, item, index, events)
        if item.get("type") == "message":
            rest = shaped(item.get("content", []), list, "item.content")[state.parts :]
            item = {**item, "role": "assistant", "content": rest}
        for block in _read(item):
            if block["type"] != "tool_use":
                events.append(exchange.BlockEnd(block))
                continue
            if not state.begun:
                events.append(exchange.ToolUseStart(index, block["id"], block["name"]))
            if block.get("custom") is True:
                events.append(exchange.ToolInputDelta(index, state.free.end()))
            elif not state.begun or not state.cursors[0].size:
                events.append(exchange.ToolInputDelta(index, arguments_text(block["input"])))
            events.append(exchange.BlockEnd(block, index))


def _has_failed(answer: Any) -> bool:
    failed = isinstance(answer, dict) and (answer.get("error") or answer.get("status") == "failed")
    return bool(failed)


def _read(item: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the neutral blocks of an output item; none for items without meaning elsewhere.

    Raises:
        DialectError: the item does not have the API's form.
    """
    given = item.get("arguments")  # absent, or an object, as some servers write it
    if item.get("type") == "function_call" and not isinstance(given, str):
        item = {**item, "arguments": "" if given is None else json_text(given)}
    role, content = read_item(item, "item")
    blocks = [b for b in content if b["type"] != "other"] if role == "assistant" else []
    for block in blocks:
        if block["type"] == "server_tool":
            del block["endpoint"], block["value"], block["at"]
    return blocks
