"""What listens to the stream of a call, and notes what it brings."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import Any

from remit.gateway.memory import LARGE_BYTES, MEMORY_FULL, Holding, memory, run_large
from remit.kernel.errors import RemitError
from remit.kernel.exchange import (
    TextDelta,
    TextSink,
    ThinkingDelta,
    ToolInputDelta,
    ToolUseStart,
)
from remit.kernel.json_text import dump
from remit.providers import Dispatched, EventSink, ProviderError, WireChunk
from remit.providers.dialects import StreamReader
from remit.providers.sse import SseParser
from remit.providers.wire import Repeats, StreamSum, read_event

__all__ = ["ENDED_BY", "KEY_ENDED", "SHUTTING_DOWN", "STOPPED_READING", "StreamTap", "weight"]

STOPPED_READING = "the caller stopped reading the answer"
SHUTTING_DOWN = "the server shut down before the answer ended"
KEY_ENDED = "the caller's key was revoked or has expired"
ENDED_BY = (STOPPED_READING, SHUTTING_DOWN, KEY_ENDED)
"""What a call's task is cancelled with where that is why; its record says it."""

_log = logging.getLogger("remit.gateway")

_MOST_UNREAD = 64  # pieces of a stream that have been passed on and not been read yet
_MOST_UNREAD_BYTES = 256 * 1024
_STEP_BYTES = 64 * 1024  # a stream grows by this, or doubles, before it is weighed again
_WAIT_S, _MOST_WAITS = 0.05, 100
# An answer is in memory as values, as JSON, as its record has it, and as it is stored.
_COPIES = 4
_VALUE, _LIST = 16, 64  # bytes that one takes, beside its text
# The last member of an event's object, or the last before padding: it stands in no other object.
_NO_USAGE = re.compile(rb',\s?"usage":\s?null(?=(?:,\s?"obfuscation":\s?"\w*")?\}\n\n)')


def weight(raw: bytes) -> int:
    """How many bytes a JSON text takes in memory, about: a value in it takes more than its text."""
    return len(raw) + _VALUE * raw.count(b",") + _LIST * (raw.count(b"[") + raw.count(b"{"))


def _kept(total: StreamSum) -> int:
    """Return about how many bytes a stream's sum takes in memory; its texts are joined."""
    return weight(dump(total.answer()))


def _can_be_read(raw: bytes) -> bool:
    """Whether each event is one line of JSON: of comments and what is broken nothing is removed."""
    return all(
        event.startswith(b"data: ") and read_event(event[6:]) is not None
        for event in raw[:-2].split(b"\n\n")
    )


class StreamTap:
    """Listens to one attempt's stream: notes what it brings, and passes it on.

    A listener that raises is not called again; it changes nothing of the record. Of a stream of
    the listener's own dialect, events that hold nothing but more of the answer are passed on as
    they came (:meth:`pass_on`); what differs from one before in its text alone is not read beyond
    that, the rest later, many at once.

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
        self._sum: StreamSum | None = None
        self._unread: list[bytes] = []
        self._unread_bytes = 0
        self._block = 1  # how many are read at once
        self._repeats: Repeats | None = None
        self.came = 0  # upper bound of the bytes kept, of what came since the last weighing
        self.next_weighing = _STEP_BYTES
        self.kept = 0  # bytes, at the last weighing
        self.holding: Holding | None = None  # once the stream has grown
        self._asks_usage = False
        self._at_once: re.Pattern[bytes] | None = None  # where the next may be passed on
        self.first_after_ms: float | None = None

    def start(self) -> None:
        """Begin an attempt: nothing of an earlier one is kept."""
        self._started = time.perf_counter()
        self._parts.clear()
        self._pieces = self._size = self.kept = self.came = 0
        self.next_weighing = _STEP_BYTES
        self._sum = self._reader = None
        self._unread.clear()
        self._unread_bytes = 0
        self._at_once = None
        if self.holding is not None:
            self.release()

    def listen(self, total: StreamSum, *, asks_usage: bool) -> None:
        """A stream of events begins.

        Args:
            total: adds it up.
            asks_usage: whether only Remit asked for its usage.
        """
        self._sum, self._asks_usage = total, asks_usage
        self.kept = self.came = 0
        self.next_weighing = _STEP_BYTES
        self._repeats, self._block = Repeats(total), 1

    def unheard(self) -> None:
        """What came was no stream of events that could be read."""
        self._sum = None

    def may_pass_on(self) -> None:
        """An event was read, and passed on: more of the answer may follow it unread."""
        total = self._sum
        if total is not None and self.began and self._on_text is None:
            self._at_once = total.at_once if self.came < self.next_weighing else None
            if self._repeats is not None:
                self._repeats.forget()

    def pass_on(self, raw: bytes) -> bool:
        """Pass on whole events as they came, to be read later.

        ``False``: they have to be read first, or the listener is not ready for more.
        """
        at_once, repeats = self._at_once, self._repeats
        if at_once is None or repeats is None:
            return False
        texts = repeats.texts_in(raw)
        if texts is None and at_once.search(raw) is not None:
            return False
        wire = raw
        if self._asks_usage:
            wire, removed = _NO_USAGE.subn(b"", raw)
            if removed != raw.count(b'"usage"') or (removed and not _can_be_read(raw)):
                return False
        if self._sink is not None:
            try:
                if not self._sink.pass_on(wire):
                    return False
            except Exception as error:  # noqa: BLE001 - a listener must not change the record
                self._fell_silent(error)
        self.came += len(raw) if texts is not None else weight(raw)
        if self.came > self.next_weighing:  # the next piece is read, and then the sum is weighed
            self._at_once = None
        if texts is not None:
            repeats.append(texts)
            return True
        repeats.forget()
        self._unread.append(raw)
        self._unread_bytes += len(raw)
        if len(self._unread) >= self._block or self._unread_bytes > _MOST_UNREAD_BYTES:
            self.catch_up()
            self._block = 1 if repeats.known else min(2 * self._block, _MOST_UNREAD)
        return True

    def catch_up(self) -> None:
        """Read what was passed on."""
        if self._unread and self._sum is not None and self._repeats is not None:
            events = SseParser(begun=True).feed(b"".join(self._unread))
            self._unread.clear()
            self._unread_bytes = 0
            for event in events:
                value = self._sum.add(event.name, event.data)
            self._repeats.learn(event.raw, event.data, value)

    async def weigh(self, waiting: int = 0) -> None:
        """Charge the account of this process with what the stream keeps.

        Args:
            waiting: bytes of an event that is not complete.
        """
        if self.came > self.next_weighing and (total := self.sum) is not None:
            most = self.kept + self.came
            self.next_weighing = max(_STEP_BYTES, min(most, LARGE_BYTES))
            if most > 2 * total.size:  # the text is only a part of what came
                most = await run_large(_kept, total) if most > LARGE_BYTES else _kept(total)
                self.next_weighing = max(_STEP_BYTES, most // 4)
            self.kept, self.came = most, 0
        await self.hold(_COPIES * (self.kept + waiting))

    async def hold(self, size: int) -> None:
        """Charge the account of this process with so many bytes for this answer.

        While an answer that the account has ended is recorded, the others wait.
        """
        if self.holding is None:
            self.holding = Holding(memory, asyncio.current_task())
        self.holding.resize(size)
        for _ in range(_MOST_WAITS):
            if not memory.is_over:
                break
            await asyncio.sleep(_WAIT_S)  # raises CancelledError if the account has ended this one

    def raise_if_ended(self, error: asyncio.CancelledError) -> None:
        """Raise ProviderError if ``error`` says that the account of memory ended the answer."""
        if error.args == (MEMORY_FULL,) and (task := asyncio.current_task()) is not None:
            task.uncancel()
            said = f"{MEMORY_FULL}; this answer was the largest and was cut off"
            raise ProviderError("SERVER_ERROR", said, maybe_billed=True, healthy=True) from None

    def settle(self) -> None:
        """Tell the account of memory that the answer grows no more."""
        if self.holding is not None:
            self.holding.settle()

    def release(self) -> None:
        """Hold nothing any more."""
        if self.holding is not None:
            self.holding.resize(0)
            self.holding = None

    @property
    def sum(self) -> StreamSum | None:
        """What the stream adds up to so far."""
        self.catch_up()
        return self._sum

    @property
    def pieces(self) -> int:
        """How many pieces of content came."""
        return self._pieces if (total := self.sum) is None else total.pieces

    @property
    def size(self) -> int:
        """Their bytes in UTF-8."""
        return self._size if (total := self.sum) is None else total.size

    @property
    def text(self) -> str:
        """The answer's text as far as it came."""
        return "".join(self._parts) if (total := self.sum) is None else total.text

    @property
    def input_tokens(self) -> int | None:
        """Those that were reported before the end."""
        usage = None if (total := self.sum) is None else total.usage
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
            except RemitError:
                self._on_text = None  # the answer's own error says why it cannot be read
        passed = None
        if self._sink is not None:
            try:
                passed = await self._sink.take(chunk)
            except Exception as error:  # noqa: BLE001 - a listener must not change the record
                self._fell_silent(error)
        # What the listener holds back was not sent: another model may still answer.
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
        self.kept = self._size
        if self.kept > self.next_weighing:
            self.next_weighing = self.kept + min(self.kept, LARGE_BYTES)
            await self.hold(_COPIES * self.kept)

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
                await self._sink.take(event)
            except Exception as error:  # noqa: BLE001 - a listener must not change the record
                self._fell_silent(error)

    def _fell_silent(self, error: Exception) -> None:
        self._on_text = self._sink = None
        _log.warning(
            "the listener of a stream raised %s; it is not called again", type(error).__name__
        )
