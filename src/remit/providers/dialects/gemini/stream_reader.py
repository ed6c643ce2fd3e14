"""Streams of Gemini's ``streamGenerateContent`` as neutral events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.kernel import exchange
from remit.kernel.exchange import StreamEvent
from remit.providers.dialects.arguments import input_of, json_text
from remit.providers.dialects.errors import failed, shaped
from remit.providers.wire.gemini import GenerateSum, candidates_of, parts_of

__all__ = ["GeminiReader"]


class GeminiReader:
    """Reader of the first candidate, which returns the additions of each event.

    Args:
        total: the sum, to which each event is added first.
    """

    def __init__(self, total: GenerateSum) -> None:
        self._open = ""  # ``text`` or ``thinking``
        self._texts: list[str] = []
        self._calls = 0

    def feed(self, data: Mapping[str, Any]) -> list[StreamEvent]:
        """Return the neutral events of one event's data.

        Raises:
            DialectError: the event does not have the API's form.
            ProviderError: the event reports an error.
        """
        if data.get("error"):
            raise failed(data["error"])
        if "candidates" in data:
            shaped(data["candidates"], list, "candidates")
        events: list[StreamEvent] = []
        for candidate in candidates_of(data)[:1]:
            if candidate.get("index") in (None, 0):
                for part in parts_of(candidate):
                    self._add(part, str(data.get("responseId") or "gemini"), events)
        return events

    def finish(self) -> list[StreamEvent]:
        """Return the end of an open block, once the stream has ended."""
        events: list[StreamEvent] = []
        self._end(events)
        return events

    def _add(self, part: dict[str, Any], answer_id: str, events: list[StreamEvent]) -> None:
        seal = part.get("thoughtSignature")
        seal = {"thought_signature": seal} if type(seal) is str and seal else {}
        call = part.get("functionCall")
        if "text" in part:
            text = shaped(part["text"], str, "text")
            kind = "thinking" if part.get("thought") is True else "text"
            if text:
                if self._open != kind:
                    self._end(events)
                    self._open = kind
                self._texts.append(text)
                thought = kind == "thinking"
                events.append(exchange.ThinkingDelta(text) if thought else exchange.TextDelta(text))
        if seal or call is not None:
            self._end(events)
        if seal:
            events.append(exchange.BlockEnd({"type": "thinking", "thinking": "", **seal}))
        if call is not None:
            name = shaped(shaped(call, dict, "functionCall").get("name"), str, "functionCall.name")
            index, self._calls = self._calls, self._calls + 1
            given = call.get("id")
            identity = given if type(given) is str and given else f"call_{answer_id}_{index}"
            value = input_of(call.get("args"))
            block = {"type": "tool_use", "id": identity, "name": name, "input": value}
            events.append(exchange.ToolUseStart(index, identity, name))
            events.append(exchange.ToolInputDelta(index, json_text(value)))
            events.append(exchange.BlockEnd(block, index))

    def _end(self, events: list[StreamEvent]) -> None:
        if self._open:
            block = {"type": self._open, self._open: "".join(self._texts)}
            events.append(exchange.BlockEnd(block))
            self._open = ""
            self._texts.clear()
