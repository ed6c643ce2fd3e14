"""Server-sent events, parsed without loss of a byte.

The rules are those of WHATWG HTML ("event stream interpretation"), with four additions. Each event
keeps its exact bytes. Events without data (comments, keep-alives) are returned too. So is an
unfinished event at the end of the stream. A field ``error`` with an object, in which llama.cpp's
server states its errors, is an event of that name, unless the event has data other than ``[DONE]``.
"""

from __future__ import annotations

import re

from msgspec import Struct

from remit.providers.protocol import ProviderError

MAX_EVENT_BYTES = 64 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_LF = 10
# Two line ends in a row. A CR at the end of what has come may be half of a CRLF: it ends a line
# only when more has come, or nothing more will.
_BLANK = re.compile(rb"(?:\r\n|\r(?!\n)|\n)(?:\r\n|\r(?!\n|\Z)|\n)")
_LINE_END = re.compile(rb"\r\n|\r(?!\n|\Z)|\n")
_SEARCH_BYTES = 4096  # A longer unfinished event is not searched again from its start.
_OVERLAP = 3  # Bytes at its end that may be the first part of two line ends.


class SseEvent(Struct):
    """A server-sent event.

    Attributes:
        raw: exact bytes, with the blank line that ends the event.
        name: the ``event`` field; empty if there is none.
        data: the ``data`` fields, joined by line feeds; empty if there are none.
        complete: True if the blank line came before the stream ended.
        is_field: True if the data stand in a field ``error``, which no client reads.
    """

    raw: bytes
    name: str
    data: bytes
    complete: bool = True
    is_field: bool = False


class SseParser:
    """A parser of a stream in pieces of any size.

    The ``raw`` bytes of all events, joined, are the stream byte for byte.

    Args:
        begun: True if the first event is past, so that no byte order mark is expected.

    Attributes:
        waiting: number of bytes of the incomplete event.
    """

    def __init__(self, *, begun: bool = False) -> None:
        self._rest = b""
        self._more: list[bytes] = []
        self.waiting = 0
        self._begun = begun

    def feed(self, piece: bytes) -> list[SseEvent]:
        """Return the events that ``piece`` completes, comments and events without data included.

        An event ends with a blank line; lines end with LF, CR or CRLF. The rest waits for the next
        piece. A byte order mark at the beginning stays in ``raw`` only. Fields other than ``event``
        and ``data`` are kept in ``raw`` and not read.

        Raises:
            ProviderError: an event is longer than 64 MiB; the parser is then not usable any more.
        """
        if not piece:
            return []
        if self.waiting > _SEARCH_BYTES:
            # The piece before may be shorter than two line ends.
            ends = [before[-_OVERLAP:] for before in (self._rest, *self._more[-_OVERLAP:])]
            if _BLANK.search(b"".join(ends)[-_OVERLAP:] + piece) is None:
                self._more.append(piece)
                self._grow(len(piece))
                return []
            piece = b"".join((self._rest, *self._more, piece))
            self._more.clear()
        elif self.waiting:
            piece = self._rest + piece
        events: list[SseEvent] = []
        at, size = 0, len(piece)
        marked = not self._begun and piece.startswith(_BOM)
        if marked and (blank := _LINE_END.match(piece, len(_BOM))) is not None:
            at = blank.end()
            events.append(SseEvent(piece[:at], "", b""))
        if b"\r" not in piece:
            while at < size:
                if piece[at] == _LF:
                    end = at + 1
                else:
                    end = piece.find(b"\n\n", at) + 2
                    if end < 2:
                        break
                raw = piece[at:end]
                at = end
                if raw.startswith(b"data: ") and raw.find(b"\n") == len(raw) - 2:
                    events.append(SseEvent(raw, "", raw[6:-2]))
                else:
                    events.append(_event(raw))
        else:
            while at < size:
                found = _LINE_END.match(piece, at) or _BLANK.search(piece, at)
                if found is None:
                    break
                events.append(_event(piece[at : found.end()]))
                at = found.end()
        if events:
            self._begun = True
            if marked:
                events[0] = _event(events[0].raw, len(_BOM))
            if size > MAX_EVENT_BYTES and max(len(event.raw) for event in events) > MAX_EVENT_BYTES:
                raise _too_long()
            piece = piece[at:]
        self._rest, self.waiting = piece, 0
        if piece:
            self._grow(len(piece))
        return events

    def end(self) -> SseEvent | None:
        """Return the unfinished event at the end of the stream; ``None`` if there is none.

        The event is complete only if its blank line ends with a CR, which might have begun a CRLF.
        The parser is empty afterwards.
        """
        raw = b"".join((self._rest, *self._more))
        self._rest, self.waiting = b"", 0
        self._more.clear()
        if not raw:
            return None
        start = len(_BOM) if not self._begun and raw.startswith(_BOM) else 0
        event = _event(raw, start)
        event.complete = raw.endswith((b"\r\r", b"\n\r")) or raw[start:] == b"\r"
        return event

    def _grow(self, more: int) -> None:
        self.waiting += more
        if self.waiting > MAX_EVENT_BYTES:
            raise _too_long()


def _event(raw: bytes, start: int = 0) -> SseEvent:
    name, data, error = "", None, None
    for line in (raw[start:] if start else raw).splitlines():
        field, _, value = line.partition(b":")
        if field == b"data":
            value = value.removeprefix(b" ")
            data = value if data is None else data + b"\n" + value
        elif field == b"error" and value.lstrip().startswith(b"{"):
            error = value.strip()
        elif field == b"event":
            name = value.removeprefix(b" ").decode("utf-8", "replace")
    if error is not None and data in (None, b"[DONE]"):
        return SseEvent(raw, "error", error, is_field=True)
    return SseEvent(raw, name, data or b"")


def _too_long() -> ProviderError:
    return ProviderError(
        "SERVER_ERROR", f"an event is longer than {MAX_EVENT_BYTES >> 20} MiB", maybe_billed=True
    )
