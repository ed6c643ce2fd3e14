"""What the readers and writers of streams share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from remit.kernel.exchange import (
    BlockEnd,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolUseStart,
)
from remit.providers.dialects.arguments import arguments_text, json_text
from remit.providers.protocol import ProviderResponse

__all__ = ["FreeInput", "StreamWriter", "sse", "stream_events"]


class StreamWriter(Protocol):
    """Server-sent events of one answer: ``start``, each ``event``, then ``end`` or ``error``."""

    def start(self) -> bytes:
        """What comes before any of the answer."""
        ...

    def event(self, event: StreamEvent) -> bytes:
        """The events of one piece; may be empty.

        Raises:
            DialectError: the piece belongs to a call that has not begun.
        """
        ...

    def end(self, answer: ProviderResponse) -> bytes:
        """The last events, with why it ended and the usage of ``answer``."""
        ...

    def error(self, status: int, code: str, message: str) -> bytes:
        """An error in the midst of the stream, which ends it."""
        ...


def sse(name: str, data: Mapping[str, Any]) -> bytes:
    """One event; ``name`` is also its data's ``type``."""
    body = json_text({"type": name, **data}).encode()
    return b"event: " + name.encode() + b"\ndata: " + body + b"\n\n"


def stream_events(answer: ProviderResponse) -> list[StreamEvent]:
    """A whole answer as the events of a stream."""
    blocks = answer.content_blocks
    if not blocks and answer.content:
        blocks = ({"type": "text", "text": answer.content},)
    events: list[StreamEvent] = []
    for index, block in enumerate(blocks):
        kind = block["type"]
        if kind == "tool_use":
            events.append(ToolUseStart(index, block["id"], block["name"]))
            events.append(ToolInputDelta(index, arguments_text(block["input"])))
            events.append(BlockEnd(block, index))
            continue
        if kind == "text" and block["text"]:
            events.append(TextDelta(block["text"]))
        elif kind == "refusal" and block["refusal"]:
            events.append(RefusalDelta(block["refusal"]))
        elif kind == "thinking" and block["thinking"]:
            events.append(ThinkingDelta(block["thinking"], raw=block.get("raw") is True))
        events.append(BlockEnd(block))
    return events


class FreeInput:
    """Pieces of a free text input as pieces of the JSON ``{"input": text}``."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def add(self, text: str) -> str:
        """The JSON of the next piece."""
        begun = "" if self._pieces else '{"input":"'
        self._pieces.append(text)
        return begun + json.dumps(text)[1:-1]

    def end(self) -> str:
        """The JSON that ends it."""
        return '"}' if self._pieces else '{"input":""}'

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self._pieces)
