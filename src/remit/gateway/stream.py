"""The tap of a call's stream: it adds the stream up and passes it on to the listener."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from typing import Any

from remit.gateway.memory import LARGE_BYTES, MEMORY_FULL, Holding, memory, run_large
from remit.kernel.errors import RemitError
from remit.kernel.exchange import (
    StreamEvent,
    TextDelta,
    TextSink,
    ThinkingDelta,
    ToolInputDelta,
    ToolUseStart,
)
from remit.kernel.json_text import dump
from remit.providers import Dispatched, EventSink, Outgoing, ProviderError, WireChunk
from remit.providers.dialects import StreamReader
from remit.providers.sse import SseParser
from remit.providers.wire import Repeats, StreamSum, Usage, read_event

_log = logging.getLogger("remit.gateway")

_MAX_UNREAD_PIECES = 64  # pieces of a stream that have been passed on and not been read yet
_MAX_UNREAD_BYTES = 256 * 1024
_STEP_BYTES = 64 * 1024  # a stream grows by this, or doubles, before it is weighed again
_WAIT_S, _MAX_WAITS = 0.05, 100
_HELD_S = 1.0  # the longest time for which chunks without content are held back
# An answer is in memory as values, as JSON, as its record has it, and as it is stored.
_COPIES = 4
_VALUE, _LIST = 16, 64  # bytes that one takes, beside its text
# The last member of an event's object, or the last before padding: it stands in no other object.
_NO_USAGE = re.compile(rb',\s?"usage":\s?null(?=(?:,\s?"obfuscation":\s?"\w*")?\}\n\n)')


def weight(raw: bytes) -> int:
    """Return about how many bytes a JSON text takes in memory once it is parsed.

    Args:
        raw: the JSON text.
    """
    return len(raw) + _VALUE * raw.count(b",") + _LIST * (raw.count(b"[") + raw.count(b"{"))


def _kept(total: StreamSum) -> int:
    """Return about how many bytes a stream's sum takes in memory. Joins its texts."""
    return weight(dump(total.answer()))


def _can_be_read(raw: bytes) -> bool:
    """Return True if each event is one line of JSON."""
    return all(
        event.startswith(b"data: ") and read_event(event[6:]) is not None
        for event in raw[:-2].split(b"\n\n")
    )


class StreamTap:
    """The listener of one call's stream; :meth:`start` begins each attempt anew.

    After ``on_text`` or ``sink`` has raised, which is logged, neither is called again; the record
    does not change.
    If the client speaks the stream's dialect, events that only add content are passed on unparsed
    (:meth:`pass_on`) and parsed later in groups. The bytes that are kept count against the memory
    limit of the process.

    Args:
        on_text: receives the answer's text; None for no listener.
        sink: receives every event; None for no listener.

    Attributes:
        wanted: True if there is a listener.
        came: upper bound of the bytes kept since the last weighing.
        problem: the error with which the stream could not be read in neutral form; else None.
        next_weighing: value of ``came`` at which the stream is weighed again.
        kept: bytes kept at the last weighing.
        holding: the holding in the memory account, once the stream has grown; else None.
        first_after_ms: milliseconds until the first piece; None before it.
        is_paid: True if the provider may charge for the attempt that failed last.
        received: bytes that came of an answer that failed, without those that were passed on.
        records: True if the stream's bytes are recorded.
        created: time of the dispatch in seconds since 1970, if the bytes are recorded; else 0.
        wire: the stream's bytes so far, in pieces; None if they are not recorded.
    """

    def __init__(self, on_text: TextSink | None, sink: EventSink | None) -> None:
        self._on_text = self.on_text = on_text
        self._sink = self.sink = sink
        self._parts: list[str] = []
        self._pieces = self._size = 0
        self._started = 0.0
        self._reader: StreamReader | None = None
        self.problem: RemitError | None = None
        self.wanted = on_text is not None or sink is not None
        self._sum: StreamSum | None = None
        self._unread: list[bytes] = []
        self._unread_bytes = 0
        self._block = 1  # how many are read at once
        self._repeats: Repeats | None = None
        self.kept = self.came = 0
        self.next_weighing = _STEP_BYTES
        self.holding: Holding | None = None  # once the stream has grown
        self._asks_usage = False
        self._at_once: re.Pattern[bytes] | None = None
        self.first_after_ms: float | None = None
        self.is_paid = False
        self.received = 0
        self.records = False
        self.created = 0
        self.wire: list[bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None  # runs while the listener holds back

    def start(self) -> None:
        """Begin an attempt: forget the stream of an earlier one, and start the clock.

        The bytes of an earlier attempt leave the memory account.
        """
        self._started = time.perf_counter()
        self._parts.clear()
        self._pieces = self._size = self.kept = self.came = 0
        self.next_weighing = _STEP_BYTES
        self._sum = self._reader = self.wire = self.problem = None
        self._unread.clear()
        self._unread_bytes = 0
        self._at_once = None
        if self.holding is not None:
            self.release()

    def listen(
        self, total: StreamSum, *, asks_usage: bool, reader: StreamReader | None = None
    ) -> None:
        """Begin a stream of events.

        Args:
            total: adds the stream up.
            asks_usage: True if only Remit asked for the usage, so that the client must not see it.
            reader: reads the events for a client of another dialect; None for one of their own.
        """
        self._sum, self._asks_usage = total, asks_usage
        self._reader = reader
        self.kept = self.came = 0
        self.next_weighing = _STEP_BYTES
        self._repeats, self._block = Repeats(total), 1
        if self.records:
            self.wire = []

    def unheard(self) -> None:
        """Note that the stream was not readable as events."""
        self._sum = None

    def may_pass_on(self) -> None:
        """Allow the next events to be passed on unparsed, after an event was parsed and passed on.

        Nothing is allowed if the listener wants text, or the stream must be weighed first.
        """
        total = self._sum
        if total is not None and self.was_passed_on and self._on_text is None:
            self._at_once = total.at_once if self.came < self.next_weighing else None
            if self._repeats is not None:
                self._repeats.forget()

    def pass_on(self, raw: bytes) -> bool:
        """Pass on whole events unparsed; return False if they must be parsed first.

        False is also returned if the listener is not ready for more, or :meth:`may_pass_on` has not
        allowed it. Events that repeat a known form are added to the sum at once. Others are kept
        until :meth:`catch_up` parses them, at the latest after 64 groups or 256 KiB. An empty
        ``usage`` that only Remit asked for is cut out.

        Args:
            raw: complete events, as they came.

        Raises:
            ProviderError: an event is too long.
        """
        at_once, repeats = self._at_once, self._repeats
        if at_once is None or repeats is None:
            return False
        texts = repeats.texts_in(raw)
        if texts is None and (at_once.search(raw) or b"NaN" in raw or b"Infinity" in raw):
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
        if self.wire is not None:
            self.wire.append(raw)
        self.came += len(raw) if texts is not None else weight(raw)
        if self.came > self.next_weighing:  # the next piece is read, and then the sum is weighed
            self._at_once = None
        if texts is not None:
            repeats.append(texts)
            return True
        repeats.forget()
        self._unread.append(raw)
        self._unread_bytes += len(raw)
        if len(self._unread) >= self._block or self._unread_bytes > _MAX_UNREAD_BYTES:
            self.catch_up()
            self._block = 1 if repeats.known else min(2 * self._block, _MAX_UNREAD_PIECES)
        return True

    def catch_up(self) -> None:
        """Parse the events that were passed on unparsed, if any, and add them to the sum.

        Raises:
            ProviderError: an event is too long.
        """
        if self._unread and self._sum is not None and self._repeats is not None:
            events = SseParser(begun=True).feed(b"".join(self._unread))
            self._unread.clear()
            self._unread_bytes = 0
            for event in events:
                value = self._sum.add(event.name, event.data)
            self._repeats.learn(event.raw, event.data, value)

    async def weigh(self, waiting: int = 0) -> None:
        """Charge the memory account with the bytes that the stream keeps.

        The stream is measured anew only if ``came`` has passed ``next_weighing``; otherwise the
        last measure counts. A large stream is measured in a thread.

        Args:
            waiting: bytes of an incomplete event.

        Raises:
            CancelledError: the account has ended this answer.
            ProviderError: an event that was passed on unparsed is too long.
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
        """Charge the memory account with ``size`` bytes for this answer.

        While an answer that the account has ended is being recorded, wait up to five seconds. If
        the account is still over its limit then, continue.

        Args:
            size: the bytes, in place of those charged before.

        Raises:
            CancelledError: the account has ended this answer.
        """
        if self.holding is None:
            self.holding = Holding(memory, asyncio.current_task())
        self.holding.resize(size)
        for _ in range(_MAX_WAITS):
            if not memory.is_over:
                break
            await asyncio.sleep(_WAIT_S)  # raises CancelledError if the account has ended this one

    def raise_if_ended(self, error: asyncio.CancelledError) -> None:
        """Replace a cancellation by the memory account with an error; do nothing for any other.

        Args:
            error: the cancellation.

        Raises:
            ProviderError: the memory account ended the answer (``SERVER_ERROR``, maybe billed). The
                task then no longer counts as cancelled.
        """
        if error.args == (MEMORY_FULL,) and (task := asyncio.current_task()) is not None:
            task.uncancel()
            self.is_paid = True
            said = f"{MEMORY_FULL}; this answer was the largest and was cut off"
            raise ProviderError("SERVER_ERROR", said, maybe_billed=True, healthy=True) from None

    def settle(self) -> None:
        """Forbid the memory account to end this answer."""
        if self.holding is not None:
            self.holding.settle()

    def release(self) -> None:
        """Remove the answer's bytes from the memory account."""
        if self.holding is not None:
            self.holding.resize(0)
            self.holding = None

    @property
    def sum(self) -> StreamSum | None:
        """The sum of the stream so far; None without a stream of events."""
        self.catch_up()
        return self._sum

    @property
    def pieces(self) -> int:
        """Number of pieces of content that this attempt has received.

        The bill of a failed attempt depends on this number: what came was produced.
        """
        return self._pieces if (total := self.sum) is None else total.pieces

    @property
    def size(self) -> int:
        """Bytes of the received content in UTF-8."""
        return self._size if (total := self.sum) is None else total.size

    @property
    def text(self) -> str:
        """The answer's text so far."""
        return "".join(self._parts) if (total := self.sum) is None else total.text

    @property
    def input_tokens(self) -> int | None:
        """Input tokens that the provider has reported so far; None without a report."""
        usage = None if (total := self.sum) is None else total.usage
        return None if usage is None else usage.input_tokens

    @property
    def final_usage(self) -> Usage | None:
        """Usage of the whole answer, as far as the provider has reported it; None before."""
        total = self.sum
        return total.facts().usage if total is not None and total.has_final_usage else None

    @property
    def was_passed_on(self) -> bool:
        """True if content was passed on to the listener; then no other model may answer."""
        return self.first_after_ms is not None

    async def dispatched(self, entry_id: str, outgoing: Outgoing | None = None) -> None:
        """Pass the id of the attempt that is about to be sent to the sink, with its dropped fields.

        Sets ``created`` if the stream is recorded. Does nothing without a sink.

        Args:
            entry_id: the ``DISPATCH``.
            outgoing: the body to send; None for a provider in neutral form.
        """
        if self._sink is not None:
            dropped = () if outgoing is None else outgoing.dropped
            if self.records:
                self.created = int(time.time())
            await self._pass(Dispatched(entry_id, dropped, self.created))

    async def chunk(self, chunk: WireChunk, *, begins: bool) -> None:
        """Pass one event of a stream to the listener.

        The first event with ``begins`` that the sink does not hold back (by returning False), or a
        later one that ends the wait of such an event, sets ``first_after_ms``. The sum is not
        changed.

        Args:
            chunk: the event.
            begins: False for an event that does not begin an answer, such as an error.
        """
        if self._on_text is not None and chunk.events:
            for event in chunk.events:
                if type(event) is TextDelta:
                    self._tell_text(event.text)
        # Without a sink, a chunk that holds nothing of the answer reaches nobody.
        passed = False if self._sink is None and chunk.events == [] else None
        if self._sink is not None:
            try:
                passed = await self._sink.take(chunk)
            except Exception as error:  # noqa: BLE001 - a listener must not change the record
                self._fell_silent(error)
        # What the listener holds back was not sent: another model may still answer.
        if self.first_after_ms is None and (begins or self._timer is not None):
            if passed is not False:
                self.drop_held()
                self._mark()
            elif begins and self._timer is None and self._sink is not None:
                self._timer = asyncio.get_running_loop().call_later(_HELD_S, self.release_held)

    def drop_held(self) -> None:
        """Leave the chunks without content with the listener, after an error that follows them."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def release_held(self) -> None:
        """Have the listener pass on the chunks without content that it holds back, if any.

        Then no other model may answer. Also runs a second after the first of them.
        """
        holds, release = self._timer is not None, getattr(self._sink, "release", bool)
        self.drop_held()
        if holds:
            try:
                if release():
                    self._mark()
            except Exception as error:  # noqa: BLE001 - a listener must not change the record
                self._fell_silent(error)

    def failed(self, error: ProviderError) -> None:
        """Note whether the provider may charge for a failed attempt, which is then not retried.

        The provider may do so if content came, if the error's answer states output, or if the
        answer began and the provider states no error.

        Args:
            error: the error of the attempt.
        """
        answer = error.answer
        is_begun = self.received or self.came or self.kept or answer is not None
        has_output = self.pieces or (answer is not None and answer.output_tokens)
        self.is_paid = bool(has_output or (error.maybe_billed and is_begun))
        self.received = 0

    def read(self, value: Any) -> list[StreamEvent]:
        """Return an event in neutral form; nothing once the stream could not be read.

        The first error is stored in :attr:`problem`.

        Args:
            value: the parsed data of the event added last.
        """
        return self._read(lambda reader: reader.feed(value))

    async def finish(self, endpoint: str) -> None:
        """Pass the rest of the answer to the listener, once the whole stream has come."""
        if self._reader is not None and (events := self._read(StreamReader.finish)):
            await self.chunk(WireChunk(endpoint, b"", "", None, events=events), begins=True)

    def _read(self, read: Callable[[StreamReader], list[StreamEvent]]) -> list[StreamEvent]:
        if self._reader is None or self.problem is not None:
            return []
        try:
            return read(self._reader)
        except RemitError as error:
            self.problem = error.with_traceback(None)  # It would keep all received data alive.
            return []

    async def event(self, event: Any) -> None:
        """Count one event of a stream in neutral form and pass it to the listener.

        The first event sets ``first_after_ms``. An empty text is ignored. Text is kept for the
        record.

        Args:
            event: a ``TextDelta``, ``ToolInputDelta``, ``ThinkingDelta``, ``ToolUseStart`` or other
                event.

        Raises:
            CancelledError: the memory account has ended this answer.
        """
        kind, text = type(event), ""
        if kind is TextDelta:
            if not (text := event.text):
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
        if not self.was_passed_on:
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
