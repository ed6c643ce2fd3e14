"""Parts that the readers and writers of streams share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from remit.kernel import exchange
from remit.kernel.exchange import StreamEvent
from remit.providers.dialects.arguments import arguments_text, json_text
from remit.providers.protocol import ProviderResponse

__all__ = ["FreeInput", "StreamWriter", "sse", "stream_events"]


class StreamWriter(Protocol):
    """The writer of one answer as server-sent events: ``start``, ``event``…, then ``end`` or
    ``error``.
    """

    def start(self) -> bytes:
        """Return the events before any content."""
        ...

    def event(self, event: StreamEvent) -> bytes:
        """Return the events of one neutral event; may be empty.

        Raises:
            DialectError: the event belongs to a call that has not begun.
        """
        ...

    def end(self, answer: ProviderResponse) -> bytes:
        """Return the last events, with the finish reason and usage of ``answer``."""
        ...

    def error(self, status: int, code: str, message: str) -> bytes:
        """Return an error that ends the stream."""
        ...


def sse(name: str, data: Mapping[str, Any]) -> bytes:
    """Return one server-sent event; ``name`` is also the ``type`` in its data."""
    body = json_text({"type": name, **data}).encode()
    return b"event: " + name.encode() + b"\ndata: " + body + b"\n\n"


def stream_events(answer: ProviderResponse) -> list[StreamEvent]:
    """Return a whole answer as neutral events."""
    blocks = answer.content_blocks
    if not blocks and answer.content:
        blocks = ({"type": "text", "text": answer.content},)
    events: list[StreamEvent] = []
    for index, block in enumerate(blocks):
        kind = block["type"]
        if kind == "tool_use":
            events.append(exchange.ToolUseStart(index, block["id"], block["name"]))
            events.append(exchange.ToolInputDelta(index, arguments_text(block["input"])))
            events.append(exchange.BlockEnd(block, index))
            continue
        if kind == "text" and block["text"]:
            events.append(exchange.TextDelta(block["text"]))
        elif kind == "refusal" and block["refusal"]:
            events.append(exchange.RefusalDelta(block["refusal"]))
        elif kind == "thinking" and block["thinking"]:
            events.append(exchange.ThinkingDelta(block["thinking"], raw=block.get("raw") is True))
        events.append(exchange.BlockEnd(block))
    return events


class FreeInput:
    """Converts pieces of a free text input to pieces of the JSON ``{"input": text}``."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def add(self, text: str) -> str:
        """Return the JSON of the next piece."""
        begun = "" if self._pieces else '{"input":"'
        self._pieces.append(text)
        return begun + json.dumps(text)[1:-1]

    def end(self) -> str:
        """Return the JSON that ends the input."""
        return '"}' if self._pieces else '{"input":""}'

    @property
    def text(self) -> str:
        """The whole text so far."""
        return "".join(self._pieces)
