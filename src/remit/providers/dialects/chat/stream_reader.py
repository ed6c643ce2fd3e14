"""Streams of Chat Completions as neutral events, read from the sum of the stream."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from remit.kernel import exchange
from remit.kernel.exchange import StreamEvent
from remit.providers.dialects.arguments import arguments_text
from remit.providers.dialects.chat.request_reader import citations_in, read_call, thoughts_in
from remit.providers.dialects.errors import failed, shaped, unreadable
from remit.providers.dialects.seals import thought_seal
from remit.providers.dialects.streaming import FreeInput
from remit.providers.wire.chat import ChatSum
from remit.providers.wire.delta import Cursor, Pieces, settled

__all__ = ["ChatReader"]

_THOUGHTS = ("reasoning_content", "reasoning")
_KINDS = (("thinking", _THOUGHTS), ("text", ("content",)), ("refusal", ("refusal",)))


class _Call:
    """The part of a tool call that was passed on."""

    def __init__(self) -> None:
        self.call: dict[str, Any] = {}
        self.cursor = Cursor()
        self.free: FreeInput | None = None
        self.begun = False
        self.ended = False


class ChatReader:
    """Reader of a stream's sum, which returns the additions of each chunk.

    Args:
        total: the sum, to which each chunk is added first.
    """

    def __init__(self, total: ChatSum) -> None:
        self._sum = total
        self._cursors = {key: Cursor() for _, keys in _KINDS for key in keys}
        self._open = ""
        self._pieces: list[str] = []
        self._cited = 0
        self._details = 0
        self._calls: list[_Call] = []
        self._ended = False

    def feed(self, data: Mapping[str, Any]) -> list[StreamEvent]:
        """Return the neutral events of one chunk.

        Raises:
            DialectError: the chunk does not have the API's form.
            ProviderError: the chunk reports an error.
        """
        if data.get("error"):
            raise failed(data["error"])
        choice = self._sum.first_choice
        if choice is None or self._ended:
            return []
        events: list[StreamEvent] = []
        message = choice.message
        for kind, keys in _KINDS:
            for key in keys:
                if new := self._new(key, message.get(key)):
                    if self._open != kind:
                        self._close(events)
                        self._open = kind
                    self._pieces.append(new)
                    if kind == "thinking":
                        events.append(exchange.ThinkingDelta(new, raw=True))
                    elif kind == "text":
                        events.append(exchange.TextDelta(new))
                    else:
                        events.append(exchange.RefusalDelta(new))
                    break
        for number, call in enumerate(shaped(message.get("tool_calls") or [], list, "tool_calls")):
            if not isinstance(call, dict):
                raise unreadable("tool_calls")
            self._call(number, call, events)
        return events

    def _new(self, key: str, value: Any) -> str:
        if value is None:
            return ""
        if key == "reasoning" and self._cursors["reasoning_content"].size:
            return ""  # the same thoughts again
        if type(value) is not Pieces and not isinstance(value, (str, list)):
            if key in _THOUGHTS or key == "refusal":
                return ""
            raise unreadable("delta.content")
        return self._cursors[key].new(value)

    def _close(self, events: list[StreamEvent]) -> None:
        """End the text, refusal or thinking that is coming; add OpenRouter's details."""
        choice = self._sum.first_choice
        message = {} if choice is None else choice.message
        kind, text = self._open, "".join(self._pieces)
        self._open, self._pieces = "", []
        details = message.get("reasoning_details")
        left = settled(details[self._details :]) if isinstance(details, list) else []
        self._details += len(left)
        thoughts: list[StreamEvent] = []
        thought = text if kind == "thinking" else ""
        for block in thoughts_in({"reasoning_content": thought, "reasoning_details": left}):
            if not thought and any(self._cursors[key].size for key in _THOUGHTS):
                block["thinking"] = ""  # It was told before its details came.
            elif not thought and block["thinking"]:
                thoughts.append(exchange.ThinkingDelta(block["thinking"], raw=True))
            thoughts.append(exchange.BlockEnd(block))
        if kind == "thinking":
            events += thoughts
            return
        if kind:
            block = {"type": kind, kind: text}
            noted = message.get("annotations")
            if kind == "text" and isinstance(noted, list):
                cited = citations_in(settled(noted[self._cited :]))
                self._cited = len(noted)
                if cited:
                    block["citations"] = cited
            events.append(exchange.BlockEnd(block))
        events += thoughts

    def _call(self, number: int, call: dict[str, Any], events: list[StreamEvent]) -> None:
        if number == len(self._calls):
            self._close(events)
            for earlier, state in enumerate(self._calls):
                if state.begun and self._is_whole(earlier):
                    self._end_call(earlier, events)
            self._calls.append(_Call())
        state = self._calls[number]
        state.call = call
        kind = "custom" if isinstance(call.get("custom"), dict) else "function"
        called = call.get(kind)
        called = called if isinstance(called, dict) else {}
        given = called.get("input" if kind == "custom" else "arguments")
        new = state.cursor.new(given) if type(given) is Pieces or type(given) is str else ""
        if kind == "custom" and state.free is None:
            state.free = FreeInput()
        if state.free is not None and new:
            new = state.free.add(new)
        if not state.begun:
            name = settled(called.get("name"))
            if not name or not isinstance(name, str) or not (call.get("id") or given):
                return  # some servers send the id, the name, or pieces of it one by one
            self._begin(number, call, name, events)
            new = state.cursor.text(given) if state.free is None else new
        if state.ended:
            if new.strip():
                raise unreadable("delta.tool_calls")
        elif new:
            events.append(exchange.ToolInputDelta(number, new))

    def _begin(
        self, number: int, call: dict[str, Any], name: str, events: list[StreamEvent]
    ) -> None:
        self._calls[number].begun = True
        if seal := thought_seal(settled(call)):
            events.append(exchange.BlockEnd(seal))
        events.append(exchange.ToolUseStart(number, self._call_id(number, call), name))

    def _call_id(self, number: int, call: dict[str, Any]) -> str:
        """Return a call's id. An absent one is made, different in each answer."""
        identity = call.get("id")
        if isinstance(identity, str) and identity:
            return identity
        digest = hashlib.sha256(f"{self._sum.request_id}:{number}".encode("utf-8", "surrogatepass"))
        return f"call_{digest.hexdigest()[:24]}"

    def _is_whole(self, number: int) -> bool:
        if self._calls[number].free is not None:
            return True
        function = self._calls[number].call.get("function")
        try:
            text = settled(function["arguments"]) if isinstance(function, dict) else ""
            return isinstance(text, dict) or isinstance(orjson.loads(text), dict)
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return False

    def _end_call(self, number: int, events: list[StreamEvent]) -> None:
        state, call = self._calls[number], settled(self._calls[number].call)
        if state.ended:
            return
        if not state.begun:
            function = call.get("custom") or call.get("function")
            name = function.get("name") if isinstance(function, dict) else None
            if not name or not isinstance(name, str):
                raise unreadable("delta.tool_calls")
            self._begin(number, call, name, events)
        block = read_call(_named(call), "tool_calls", self._call_id(number, call))
        state.ended = True
        if state.free is not None:
            events.append(exchange.ToolInputDelta(number, state.free.end()))
        elif not state.cursor.size and block["input"]:
            events.append(exchange.ToolInputDelta(number, arguments_text(block["input"])))
        events.append(exchange.BlockEnd(block, number))

    def finish(self) -> list[StreamEvent]:
        """Return the ends of all open blocks, once the stream has ended.

        Raises:
            DialectError: a call has no name.
        """
        events: list[StreamEvent] = []
        if not self._ended:
            self._ended = True
            self._close(events)
            for number in range(len(self._calls)):
                self._end_call(number, events)
        return events


def _named(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call whose custom or function part is there, as some servers leave out the type."""
    kind = "custom" if isinstance(call.get("custom"), dict) else "function"
    inner = call.get(kind)
    if kind == "custom" and isinstance(inner, dict):
        return {**call, "type": kind, kind: {"input": "", **inner}}
    return {**call, "type": kind}
