"""Streams of the Messages API as neutral events, read from the sum of the stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.kernel import exchange
from remit.kernel.exchange import StreamEvent
from remit.providers.dialects.arguments import input_of, json_text
from remit.providers.dialects.errors import failed, shaped, unreadable
from remit.providers.dialects.messages.request_reader import read_block
from remit.providers.wire.delta import Cursor
from remit.providers.wire.messages import MessageSum

__all__ = ["MessagesReader"]

_ROLES = (None, "assistant")
_READ = ("text", "thinking", "redacted_thinking", "tool_use")
_GROWS = {"text": "text", "thinking": "thinking"}
_OF_A_BLOCK = ("content_block_delta", "content_block_stop")
_TEXT_OF = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json",
            "signature_delta": "signature"}  # fmt: skip
_MESSAGE = {"id": str, "type": str, "role": str, "model": str, "content": list, "stop_reason": str,
            "stop_sequence": str}  # fmt: skip
"""The members of a message and their types; each may be null in a message that only begins."""


class MessagesReader:
    """Reader of a stream's sum, which returns the additions of each event.

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
        if kind == "error" or (kind is None and data.get("error") and "content" not in data):
            raise failed(data.get("error"))
        whole = kind == "message" or isinstance(data.get("content"), list)  # Nothing is streamed.
        _check("message" if whole else kind, data)
        events: list[StreamEvent] = []
        while self._begun < self._sum.count:
            for earlier in tuple(self._open):  # Only calls come at the same time.
                if self._sum.block(earlier).get("type") != "tool_use" or whole:
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
        elif whole:
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
            events.append(exchange.ToolUseStart(at, identity, name))
            given = block.get("input")
            if isinstance(given, dict) and given:
                events.append(exchange.ToolInputDelta(at, json_text(given)))
        self._grow(at, events)

    def _grow(self, at: int, events: list[StreamEvent]) -> None:
        block = self._sum.block(at)
        kind = str(block.get("type"))
        if kind == "tool_use":
            if new := self._open[at].new(self._sum.inputs(at)):
                events.append(exchange.ToolInputDelta(at, new))
        elif key := _GROWS.get(kind):
            value = block.get(key, "")
            if not isinstance(value, (str, list)):
                raise unreadable(f"content_block.{key}")
            if new := self._open[at].new(value):
                events.append(
                    exchange.TextDelta(new) if key == "text" else exchange.ThinkingDelta(new)
                )

    def _end(self, at: int, events: list[StreamEvent]) -> None:
        del self._open[at]
        block = _read(self._sum.whole(at), self._queries)
        if block is not None:
            events.append(exchange.BlockEnd(block, at if block["type"] == "tool_use" else None))


def _check(kind: Any, data: Mapping[str, Any]) -> None:
    """Raise DialectError unless an event has the form that its kind demands in the API."""
    if kind == "message":
        shaped(data.get("content"), list, "content")
        _check_message(data)
    elif kind == "message_start":
        _check_message(shaped(data.get("message"), dict, "message"))
    elif kind == "message_delta":
        _check_message(shaped(data.get("delta"), dict, "delta"))
    elif kind == "content_block_start":
        _check_block(data.get("content_block"))
    elif kind == "content_block_delta":
        delta = shaped(data.get("delta"), dict, "delta")
        delta_kind = delta.get("type")
        key = _TEXT_OF.get(delta_kind) if isinstance(delta_kind, str) else None
        if key is not None:
            shaped(delta.get(key), str, f"delta.{key}")


def _check_message(message: Mapping[str, Any]) -> None:
    for name, form in _MESSAGE.items():
        if message.get(name) is not None:
            shaped(message[name], form, name)
    if message.get("type") not in (None, "message") or message.get("role") not in _ROLES:
        raise unreadable("message")
    for block in message.get("content") or ():
        kind = _check_block(block)
        if kind in _GROWS:
            shaped(block.get(kind), str, f"content.{kind}")


def _check_block(block: Any) -> str:
    """Return the block's type; raise DialectError if it has none."""
    kind: str = shaped(shaped(block, dict, "content_block").get("type"), str, "content_block.type")
    if not kind:
        raise unreadable("content_block.type")
    return kind


def _read(block: dict[str, Any], queries: dict[Any, list[str]]) -> dict[str, Any] | None:
    """Return one block of an answer in neutral form; None for blocks without meaning elsewhere.

    A search and its result become one block.

    Args:
        block: the block.
        queries: search queries, keyed by the search's id; added to.
    """
    kind = block.get("type")
    if kind == "server_tool_use" and block.get("name") == "web_search":
        asked = block.get("input")
        query = asked.get("query") if isinstance(asked, dict) else None
        queries[str(block.get("id"))] = [query] if isinstance(query, str) else []
    elif kind == "web_search_tool_result":
        return _search(block, queries)
    elif kind in _READ:
        if kind == "tool_use":
            block = {**block, "input": input_of(block.get("input"))}
        for name, shape in (("citations", list), ("signature", str)):
            if type(block.get(name)) is not shape:  # An answer stays readable without them.
                block = {**block, name: None}
        return read_block(block, str(kind), "content_block")
    return None


def _search(block: dict[str, Any], queries: dict[Any, list[str]]) -> dict[str, Any]:
    identity = str(block.get("tool_use_id"))
    found = block.get("content")
    sources = [
        {key: result[key] for key in ("url", "title") if isinstance(result.get(key), str)}
        for result in (found if isinstance(found, list) else [])
        if isinstance(result, dict) and isinstance(result.get("url"), str)
    ]
    asked = queries.get(identity, [])
    return {"type": "server_tool", "id": identity, "queries": asked, "sources": sources}
