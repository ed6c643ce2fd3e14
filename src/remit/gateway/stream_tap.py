"""What listens to the stream of a call, and notes what it brings."""

from __future__ import annotations

import logging
import time
from typing import Any

from remit.kernel.errors import RemitError
from remit.kernel.exchange import (
    TextDelta,
    TextSink,
    ThinkingDelta,
    ToolInputDelta,
    ToolUseStart,
)
from remit.providers import Dispatched, EventSink, WireChunk
from remit.providers.dialects import StreamReader
from remit.providers.wire.answer import StreamSum

__all__ = ["StreamTap"]

_log = logging.getLogger("remit.gateway")


class StreamTap:
    """Listens to one attempt's stream: notes what it brings, and passes it on.

    A listener that raises is not called again; it changes nothing of the record.

    Args:
        on_text: wants the answer's text.
        sink: wants everything.
    """

    def __init__(self, on_text: TextSink | None, sink: EventSink | None) -> None:
        self._on_text = self.on_text = on_text
        self._sink = self.sink = sink
        self._parts: list[str] = []
        self._pieces = self._size = 0
        self._started = 0.0
        self._reader: StreamReader | None = None
        self.wanted = on_text is not None or sink is not None
        self.sum: StreamSum | None = None
        self.first_after_ms: float | None = None

    def start(self) -> None:
        """Begin an attempt: nothing of an earlier one is kept."""
        self._started = time.perf_counter()
        self._parts.clear()
        self._pieces = self._size = 0
        self.sum = self._reader = None

    @property
    def pieces(self) -> int:
        """How many pieces of content came."""
        return self._pieces if self.sum is None else self.sum.pieces

    @property
    def size(self) -> int:
        """Their bytes in UTF-8."""
        return self._size if self.sum is None else self.sum.size

    @property
    def text(self) -> str:
        """The answer's text as far as it came."""
        return "".join(self._parts) if self.sum is None else self.sum.text

    @property
    def input_tokens(self) -> int | None:
        """Those that were reported before the end."""
        usage = None if self.sum is None else self.sum.usage
        return None if usage is None else usage.input_tokens

    @property
    def began(self) -> bool:
        """Whether anything of the answer came: from then on no other model may answer."""
        return self.first_after_ms is not None

    async def dispatched(self, entry_id: str) -> None:
        """An attempt is about to be sent."""
        if self._sink is not None:
            await self._pass(Dispatched(entry_id))

    async def chunk(self, chunk: WireChunk, *, begins: bool) -> None:
        """One event of a stream as it came; an error does not begin an answer."""
        if self._on_text is not None:
            try:
                if self._reader is None:
                    self._reader = StreamReader(chunk.endpoint)
                for event in self._reader.feed(chunk.value):
                    if type(event) is TextDelta:
                        self._tell_text(event.text)
            except RemitError as error:
                self._fell_silent(error)
        passed = None
        if self._sink is not None:
            try:
                passed = await self._sink(chunk)
            except Exception as error:  # noqa: BLE001 - a listener must not change the record
                self._fell_silent(error)
        # What the listener holds back binds nobody: another model may answer yet.
        if begins and self.first_after_ms is None and passed is not False:
            self._mark()

    async def event(self, event: Any) -> None:
        """One event of a stream in neutral form."""
        kind = type(event)
        text = ""
        if kind is TextDelta:
            text = event.text
            if not text:
                return
            self._parts.append(text)
        elif kind is ToolInputDelta:
            text = event.partial_json
        elif kind is ThinkingDelta:
            text = event.text
        elif kind is ToolUseStart:
            text = event.name
        self._pieces += 1
        self._size += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        if not self.began:
            self._mark()
        if kind is TextDelta and self._on_text is not None:
            self._tell_text(text)
        await self._pass(event)

    def _mark(self) -> None:
        self.first_after_ms = round((time.perf_counter() - self._started) * 1000, 3)

    def _tell_text(self, text: str) -> None:
        try:
            if self._on_text is not None:
                self._on_text(text)
        except Exception as error:  # noqa: BLE001 - a listener must not change the record
            self._fell_silent(error)

    async def _pass(self, event: Any) -> None:
        if self._sink is not None:
            try:
                await self._sink(event)
            except Exception as error:  # noqa: BLE001 - a listener must not change the record
                self._fell_silent(error)

    def _fell_silent(self, error: Exception) -> None:
        self._on_text = self._sink = None
        _log.warning(
            "the listener of a stream raised %s; it is not called again", type(error).__name__
        )
