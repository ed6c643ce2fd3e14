"""Chunks of Chat Completions as neutral events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from remit.kernel.exchange import (
    BlockEnd,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolUseStart,
    text_of,
)
from remit.providers.dialects.arguments import read_arguments
from remit.providers.dialects.chat.answer import citations_in, read_answer
from remit.providers.dialects.seals import thought_seal
from remit.providers.dialects.streaming import FreeInput, stream_events
from remit.providers.dialects.unreadable import failed, unreadable
from remit.providers.wire.delta import call_of

__all__ = ["ChatReader"]

_KEYS = {"thinking": "thinking", "text": "text", "refusal": "refusal"}


class _Call:
    """The state of one tool call of a stream."""

    def __init__(self, number: int, index: Any) -> None:
        self.number = number
        self.index = index  # the server's, which several calls may share
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.free: FreeInput | None = None
        self.begun = False
        self.ended = False

    def get(self, name: str) -> Any:
        """Return the server's ``index`` or ``id``, as a piece of the call has them."""
        return self.index if name == "index" else self.id

    def block(self) -> dict[str, Any]:
        head = {"type": "tool_use", "id": self.id, "name": self.name}
        if self.free is not None:
            return {**head, "input": {"input": self.free.text}, "custom": True}
        return {**head, "input": read_arguments("".join(self.pieces))}

    def is_whole(self) -> bool:
        if self.free is not None:
            return True
        try:
            return isinstance(orjson.loads("".join(self.pieces)), dict)
        except orjson.JSONDecodeError:
            return False


class ChatReader:
    """Reads a stream of Chat Completions into neutral events."""

    def __init__(self) -> None:
        self._open = ""
        self._pieces: list[str] = []
        self._citations: list[dict[str, Any]] = []
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
        events: list[StreamEvent] = []
        choices = data.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict) or self._ended or choice.get("index"):
                continue
            if isinstance(choice.get("message"), dict):  # a server that does not stream
                self._ended = True
                return stream_events(read_answer(data))
            delta = choice.get("delta")
            if isinstance(delta, dict):
                self._delta(delta, events)
            if choice.get("finish_reason"):
                self._finish(events)
        return events

    def _delta(self, delta: dict[str, Any], events: list[StreamEvent]) -> None:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str) and thought:
            self._piece("thinking", thought, events)
            events.append(ThinkingDelta(thought, raw=True))
        text = delta.get("content")
        if isinstance(text, list):
            text = text_of(text)
        if text is not None and not isinstance(text, str):
            raise unreadable("delta.content")
        if text:
            self._piece("text", text, events)
            events.append(TextDelta(text))
        self._citations += citations_in(delta.get("annotations"))
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._piece("refusal", refusal, events)
            events.append(RefusalDelta(refusal))
        calls = delta.get("tool_calls")
        for part in calls if isinstance(calls, list) else ():
            if not isinstance(part, dict):
                raise unreadable("delta.tool_calls")
            self._call(part, events)

    def _piece(self, kind: str, text: str, events: list[StreamEvent]) -> None:
        if self._open != kind:
            self._close(events)
            self._open = kind
        self._pieces.append(text)

    def _close(self, events: list[StreamEvent]) -> None:
        """End the text, refusal or thinking that is coming."""
        if not self._open:
            return
        block: dict[str, Any] = {"type": self._open, _KEYS[self._open]: "".join(self._pieces)}
        if self._open == "thinking":
            block["raw"] = True
        elif self._open == "text" and self._citations:
            block["citations"], self._citations = self._citations, []
        self._open, self._pieces = "", []
        events.append(BlockEnd(block))

    def _call(self, part: dict[str, Any], events: list[StreamEvent]) -> None:
        call: _Call | None = call_of(self._calls, part)
        if call is None:
            self._close(events)
            for earlier in self._calls:
                if earlier.begun and earlier.is_whole():
                    self._end_call(earlier, events)
            call = _Call(len(self._calls), part.get("index"))
            self._calls.append(call)
            if seal := thought_seal(part):
                events.append(BlockEnd(seal))
        kind = "custom" if isinstance(part.get("custom"), dict) else "function"
        called = part.get(kind)
        called = called if isinstance(called, dict) else {}
        if kind == "custom" and call.free is None:
            call.free = FreeInput()
        if not call.begun:  # some servers send the id, the name, or pieces of it one by one
            call.id = call.id or (part["id"] if isinstance(part.get("id"), str) else "")
            call.name += called["name"] if isinstance(called.get("name"), str) else ""
        piece = called.get("input" if kind == "custom" else "arguments")
        if isinstance(piece, dict):
            piece = orjson.dumps(piece).decode()
        if not call.begun and call.name and (call.id or piece):
            self._begin(call, events)
        if not isinstance(piece, str) or not piece:
            return
        if call.ended:
            if piece.strip():
                raise unreadable("delta.tool_calls")
            return
        if call.free is not None:
            piece = call.free.add(piece)
        else:
            call.pieces.append(piece)
        if call.begun:
            events.append(ToolInputDelta(call.number, piece))

    def _begin(self, call: _Call, events: list[StreamEvent]) -> None:
        call.begun = True
        call.id = call.id or f"call_{call.number}"
        events.append(ToolUseStart(call.number, call.id, call.name))
        if call.pieces:
            events.append(ToolInputDelta(call.number, "".join(call.pieces)))

    def _end_call(self, call: _Call, events: list[StreamEvent]) -> None:
        if call.ended:
            return
        call.ended = True
        if call.free is not None:
            events.append(ToolInputDelta(call.number, call.free.end()))
        events.append(BlockEnd(call.block(), call.number))

    def _finish(self, events: list[StreamEvent]) -> None:
        self._ended = True
        self._close(events)
        for call in self._calls:
            if not call.name:
                raise unreadable("delta.tool_calls")
            if not call.begun:
                self._begin(call, events)
            self._end_call(call, events)
