"""An answer of a provider while it arrives: whole, as events, or in pieces, decompressed."""

from __future__ import annotations

import asyncio
import io
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from multidict import CIMultiDict

from remit.kernel.errors import let_go
from remit.providers.event_stream import EVENT_STREAM, FrameParser
from remit.providers.http_connection import BrokenError
from remit.providers.protocol import ProviderError
from remit.providers.sse import SseEvent, SseParser
from remit.providers.upstream_errors import hide

if TYPE_CHECKING:
    from remit.providers.http_connection import HttpConnection
    from remit.providers.proxied_http import ProxiedAnswer


from typing import Any

MAX_BODY_BYTES = 64 * 1024 * 1024
_EVENTS = "text/event-stream"
_BEFORE_DATA = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:(?:event|id|retry)?:[^\r\n]*[\r\n]\s*)*")
_UNFINISHED = re.compile(rb"(?:event|id|retry)?:[^\r\n]*")
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b"\xef\xbb\xbf")
_DATA = (b"{", b"[{", b"[DONE]")
_SNIFFED_BYTES = 4096
_EVENT_NOTICE_BYTES = 64 * 1024
_THREAD_BYTES = 1024 * 1024  # Larger events are parsed in a thread, so that others need not wait.
_BROKEN = (TimeoutError, BrokenError, ValueError, EOFError, zlib.error)


class UpstreamReply:
    """An answer whose headers have come.

    The body can be read once: by :meth:`read`, :meth:`events` or :meth:`chunks`. The end of an
    ``async with`` block closes the answer.

    Args:
        answer: the connection or proxied answer.
        idle_s: longest wait between two pieces, in seconds.
        hidden: secrets of the request, masked in the headers and the body, but not in chunks.

    Attributes:
        status: HTTP status.
        headers: headers, case-insensitive; a name may occur more than once. ``content-encoding``
            and ``content-length`` describe the body as the server sent it.
        received: number of bytes of the body that have come, as the server sent them.
        waiting: number of bytes of the incomplete event.
        content_type: content type without parameters, in lower case; empty if there is none.
            Amazon's frames are read as events, so their type is ``text/event-stream``.
    """

    __slots__ = (
        "_answer", "_ends", "_first", "_hidden", "_idle_s", "_inflate", "_is_framed", "_is_over",
        "content_type", "headers", "received", "status", "waiting",
    )  # fmt: skip

    def __init__(
        self, answer: HttpConnection | ProxiedAnswer, idle_s: float, hidden: Sequence[bytes] = ()
    ) -> None:
        self._answer = answer
        self._hidden = hidden
        self._idle_s = idle_s
        self._is_over = False
        self._first: bytes | None = None  # the first bytes, while they wait to be read again
        self._ends = False  # True if the body ended with them
        self.status: int = answer.status
        self.received = self.waiting = 0
        self.headers: Mapping[str, str] = answer.headers
        said, shown = "\n".join(answer.headers.values()).encode("utf-8", "surrogatepass"), []
        for secret in hidden:
            if secret in said:
                shown.append(secret.decode("utf-8", "surrogatepass"))
        if shown:
            masked = ((name, hide(value, shown)) for name, value in answer.headers.items())
            self.headers = CIMultiDict(masked)
        kind = self.headers.get("content-type", "")
        self.content_type: str = kind.partition(";")[0].strip().lower()
        self._is_framed = self.content_type == EVENT_STREAM
        if self._is_framed:
            self.content_type = _EVENTS
        encoding = self.headers.get("content-encoding", "").strip().lower()
        self._inflate: AsyncIterator[bytes] | None = None
        if encoding not in ("", "identity"):
            self._inflate = inflated(self._next)

    def __repr__(self) -> str:
        return f"UpstreamReply({self.status}, {self.content_type!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def is_event_stream(self) -> bool:
        """Return True if the body is an event stream, by its type or else by its first data.

        Some servers and proxies send one as ``text/plain``, or without a type. Then
        ``content_type`` is changed. A text is none unless its first data are JSON or ``[DONE]``.
        Call this method before the body is read.

        Raises:
            ProviderError: as :meth:`read`.
        """
        if self.content_type != _EVENTS and not self._is_over:
            first = await self._piece()
            while (begins := _begins_events(first)) is None and not self._is_over:
                first += await self._piece()
            self._first, self._ends, self._is_over = first, self._is_over, False
            if begins:
                self.content_type = _EVENTS
        return self.content_type == _EVENTS

    async def read(
        self,
        most: int = MAX_BODY_BYTES,
        on_growth: Callable[[int], Awaitable[None]] | None = None,
    ) -> bytes:
        """Return the whole body with secrets masked; empty if the body was read before.

        The connection then returns to its pool, or is closed after an error.

        Args:
            most: largest number of bytes, after decompression.
            on_growth: called with the number of bytes so far after each piece except the first.

        Raises:
            ProviderError: the body is longer than ``most``, the connection breaks or is silent for
                too long, or the body is compressed in an unknown way.
        """
        here = None
        if self._inflate is None and not self._is_over and self._first is None:
            here = self._answer.whole_body()
        if here is not None:
            self._is_over, data, self.received = True, here, len(here)
        else:
            data = await self._piece()
        if not self._is_over:
            whole = io.BytesIO()  # getvalue() makes no further copy.
            whole.write(data)
            while not self._is_over and whole.tell() <= most:
                whole.write(await self._piece())
                if on_growth is not None:
                    await on_growth(whole.tell())
            data = whole.getvalue()
        if len(data) > most:
            await self._give_up()
            said = f"the answer is longer than {most} bytes"
            raise ProviderError(
                "SERVER_ERROR", said, maybe_billed=True, status=self.status, healthy=True
            )
        for secret in self._hidden:
            if secret in data:
                data = data.replace(secret, b"[key]")
        return data

    async def events(
        self, pass_on: Callable[[bytes], bool] | None = None
    ) -> AsyncIterator[list[SseEvent]]:
        """Yield the events of an event stream, secrets masked; events that came together are in one
        list.

        The list is empty after a piece that leaves a long event incomplete, so that the reader can
        see :attr:`waiting`. An unfinished event at the end of the stream is yielded with
        ``complete`` False. The reply is closed at the end, also if the reader stops early.

        Args:
            pass_on: receives complete events as bytes, and returns True if it takes them. Events
                that it takes are not yielded. Not called for Amazon's frames and for events with
                secrets. It must not raise.

        Raises:
            ProviderError: the body is not an event stream, an event is too long, a frame cannot be
                read, or the connection breaks. The events of earlier pieces were yielded.
        """
        parser = FrameParser() if self._is_framed else SseParser()
        failure = None
        hidden = self._hidden

        def take(piece: bytes) -> bool:
            assert pass_on is not None
            if parser.waiting or piece[-2:] != b"\n\n" or b"\r" in piece:
                return False
            for secret in hidden:
                if secret in piece:
                    return False
            return pass_on(piece)

        direct = None if pass_on is None or self._is_framed else take
        try:
            if self.content_type != _EVENTS:
                kind = self.content_type[:100] or "no content type"
                said = f"the answer is not an event stream ({kind}); check the base URL"
                raise ProviderError("SERVER_ERROR", said, maybe_billed=True, status=self.status)
            while not self._is_over:
                try:
                    part = await self._piece(direct)
                except ProviderError as error:
                    failure = error
                    break
                if direct is not None and part and direct(part):
                    continue
                if not part:
                    continue
                if parser.waiting > _THREAD_BYTES and (b"\n\n" in part or b"\r" in part):
                    events = await asyncio.to_thread(parser.feed, part)
                else:
                    events = parser.feed(part)
                self.waiting = parser.waiting
                if events or self.waiting > _EVENT_NOTICE_BYTES:
                    yield self._without_secrets(events)
                if isinstance(parser, FrameParser) and parser.is_broken:
                    break
            if (rest := parser.end()) is not None:
                yield self._without_secrets([rest])
            if failure is not None:
                raise failure
        finally:
            await self.aclose()

    def _without_secrets(self, events: list[SseEvent]) -> list[SseEvent]:
        for secret in self._hidden:
            for event in events:
                if secret in event.raw:
                    event.raw = event.raw.replace(secret, b"[key]")
                    event.data = event.data.replace(secret, b"[key]")
        return events

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces, decompressed, without a limit of the whole.

        Secrets are not masked. The reply is closed at the end, also if the reader stops early.

        Raises:
            ProviderError: the connection breaks or is silent for too long, or the body is
                compressed in an unknown way.
        """
        try:
            while not self._is_over:
                if part := await self._piece():
                    yield part
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Release the connection: to its pool if the body has ended, else close it."""
        if not self._is_over:
            self._is_over = True
            if not self._ends:
                await self._answer.release()

    async def _give_up(self) -> None:
        self._is_over = True
        await self._answer.aclose()

    async def _piece(self, pass_on: Callable[[bytes], bool] | None = None) -> bytes:
        """Return the next bytes; empty at the end. Sets ``_is_over`` after the last ones."""
        if self._is_over:  # Another request may use the connection now.
            return b""
        if self._first is not None:
            first, self._first, self._is_over = self._first, None, self._ends
            return first
        answer = self._answer
        try:
            if self._inflate is None:
                piece = await self._next(pass_on)
                ends = answer.at_end
            else:
                piece = await self._decompressed(self._inflate)
                ends = not piece
        except _BROKEN as error:
            failure = self._broken(error)
            let_go(error)  # The connection refers to the error.
        except BaseException:
            await self._give_up()
            raise
        else:
            if ends:
                self._is_over = True
                await answer.release()
            return piece
        await self._give_up()
        raise failure

    async def _next(self, pass_on: Callable[[bytes], bool] | None = None) -> bytes:
        piece = await self._answer.piece(self._idle_s, pass_on)
        self.received += len(piece)
        return piece

    async def _decompressed(self, pieces: AsyncIterator[bytes]) -> bytes:
        encoding = self.headers.get("content-encoding", "").strip().lower()
        if encoding not in ("gzip", "x-gzip", "deflate"):
            said = f"the answer uses an unrequested compression ({encoding[:40]})"
            raise ProviderError("SERVER_ERROR", said, maybe_billed=True, status=self.status)
        return await anext(pieces, b"")

    def _broken(self, error: BaseException) -> ProviderError:
        if isinstance(error, TimeoutError):
            code, said = "TIMEOUT", f"the stream sent no data for {self._idle_s:g} s"
        else:
            code = "SERVER_ERROR"
            said = f"the connection broke while answering ({str(error) or type(error).__name__})"
        return ProviderError(code, said, True, maybe_billed=True, status=self.status)


def _begins_events(text: bytes) -> bool | None:
    """Return True if a text begins an event stream, None if only more of it can tell."""
    found = _BEFORE_DATA.match(text)
    line: bytes = text[found.end() :] if found else text
    known: tuple[bytes, ...] = _FIELDS
    if line.startswith(b"data:"):
        line, known = line[5:].lstrip(b" "), _DATA
        if line.startswith(_DATA):
            return True
    may = any(each.startswith(line) for each in known) or _UNFINISHED.fullmatch(line)
    return None if may and len(text) < _SNIFFED_BYTES else False


_PIECE_BYTES = 256 * 1024
_MAX_MEMBERS = 100
"""Largest number of members of a gzip body."""


async def inflated(read: Callable[[], Awaitable[bytes]]) -> AsyncIterator[bytes]:
    """Yield a body in gzip or deflate, decompressed, in pieces of at most 256 KiB.

    The first byte shows the format: gzip, zlib or raw deflate. An empty body yields nothing.

    Args:
        read: returns the next compressed bytes; empty at the end.

    Raises:
        zlib.error: the bytes are not valid, or gzip holds more than 100 members.
        EOFError: the compressed data is cut off.
    """
    stream: Any = None
    window, members = 0, 1
    while data := await read():
        if stream is None:
            is_wrapped = data[0] & 0x0F == zlib.DEFLATED or data[:1] == b"\x1f"
            window = zlib.MAX_WBITS | 32 if is_wrapped else -zlib.MAX_WBITS
            stream = zlib.decompressobj(window)
        is_full = False
        while data or is_full:
            if stream.eof:  # A gzip body may have several members.
                members += 1
                if members > _MAX_MEMBERS:
                    raise zlib.error
                stream = zlib.decompressobj(window)
            piece: bytes = stream.decompress(data, _PIECE_BYTES)
            data = stream.unconsumed_tail or stream.unused_data
            # zlib may hold more output than one piece, without further input.
            is_full = len(piece) == _PIECE_BYTES and not stream.eof
            if piece:
                yield piece
    if stream is not None and not stream.eof:
        raise EOFError
