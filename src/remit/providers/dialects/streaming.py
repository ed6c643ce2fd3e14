"""Parts that the readers and writers of streams share, and the repair of their texts.

Some servers cut an emoji between two events, or send half of one. Two halves that follow each
other are joined; a half that stays alone becomes U+FFFD.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson
from msgspec.structs import replace as replace_fields

from remit.kernel import exchange
from remit.kernel.exchange import StreamEvent
from remit.kernel.json_text import is_finite, sound, sound_text
from remit.providers.dialects.errors import DialectError, unreadable
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.tool_calls import ToolNames, arguments_text, json_text
from remit.providers.protocol import ProviderResponse
from remit.providers.wire.delta_sums import Cursor, Pieces

_PIECE = {
    exchange.TextDelta: "text",
    exchange.ThinkingDelta: "text",
    exchange.RefusalDelta: "text",
    exchange.ToolInputDelta: "partial_json",
}
"""The field that holds the text of an event that continues one."""

_Text = tuple[type, int | None]


class StreamWriter(ABC):
    """The writer of one answer as server-sent events: ``start``, ``event``…, then ``end`` or
    ``error``.

    A dialect writes a piece of a ``text`` or ``refusal``, a piece of thinking (``raw`` unless it is
    a summary), and the beginning, input and end of a call, whose input has at least one piece.

    Args:
        call: the client's request.
    """

    def __init__(self, call: ModelCall) -> None:
        self._names = ToolNames(call)
        self._has_input: dict[int, bool] = {}  # keyed by index of the open calls

    @property
    def arguments(self) -> dict[str, str]:
        """Arguments of the calls as the client received them, keyed by call id; empty unless the
        dialect stores its answers.
        """
        return {}

    @abstractmethod
    def start(self) -> bytes:
        """Return the events before any content."""

    def event(self, event: StreamEvent) -> bytes:
        """Return the events of one neutral event; may be empty.

        The end of a call also writes its input, if no piece of it came before.

        Raises:
            DialectError: the event belongs to a call that has not begun.
        """
        if isinstance(event, exchange.TextDelta):
            return self._text("text", event.text)
        if isinstance(event, exchange.RefusalDelta):
            return self._text("refusal", event.text)
        if isinstance(event, exchange.ThinkingDelta):
            return self._thought(event.text, raw=event.raw) if event.text else b""
        if isinstance(event, exchange.ToolUseStart):
            self._has_input[event.index] = False
            return self._begin_call(event)
        if isinstance(event, exchange.ToolInputDelta):
            index, text, block = event.index, event.partial_json, None
        elif event.index is None:
            return self._end_block(event.block)
        else:
            index, block = event.index, event.block
            text = "" if self._has_input.get(index) else arguments_text(block["input"])
        if index not in self._has_input:
            raise unreadable("a part of a tool's call that has not begun")
        wire = self._input(index, text) if text else b""
        self._has_input[index] |= text != ""
        if block is None:
            return wire
        del self._has_input[index]
        return wire + self._end_call(index, block)

    @abstractmethod
    def end(self, answer: ProviderResponse) -> bytes:
        """Return the last events, with the finish reason and usage of ``answer``."""

    @abstractmethod
    def error(self, status: int, code: str, message: str) -> bytes:
        """Return an error that ends the stream."""

    @abstractmethod
    def _text(self, kind: str, text: str) -> bytes: ...

    @abstractmethod
    def _thought(self, text: str, *, raw: bool) -> bytes: ...

    def _begin_call(self, event: exchange.ToolUseStart) -> bytes:
        return b""

    def _input(self, index: int, text: str) -> bytes:
        return b""

    @abstractmethod
    def _end_call(self, index: int, block: dict[str, Any]) -> bytes: ...

    @abstractmethod
    def _end_block(self, block: dict[str, Any]) -> bytes: ...


def sse(name: str, data: Mapping[str, Any]) -> bytes:
    """Return one server-sent event; ``name`` is also the ``type`` in its data."""
    return event_bytes({"type": name, **data}, name)


def event_bytes(data: Mapping[str, Any], name: str = "") -> bytes:
    """Return one server-sent event; without a line for the name if that is empty."""
    named = f"event: {name}\n" if name else ""
    return f"{named}data: {json_text(data)}\n\n".encode()


def _piece(kind: str, text: str, *, raw: bool) -> StreamEvent:
    """Return the event of a piece of a text, a refusal or a thought."""
    if kind == "text":
        return exchange.TextDelta(text)
    return (
        exchange.RefusalDelta(text) if kind == "refusal" else exchange.ThinkingDelta(text, raw=raw)
    )


def stream_events(answer: ProviderResponse) -> list[StreamEvent]:
    """Return a whole answer as neutral events: of each block, its start or text, then its end.

    The content of an answer without blocks is one text. A call has its whole input in one piece.
    """
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
        if kind in ("text", "refusal", "thinking") and block[kind]:
            events.append(_piece(kind, block[kind], raw=block.get("raw") is True))
        events.append(exchange.BlockEnd(block))
    return events


class StreamReader(ABC):
    """Translates a provider's stream to neutral events, read from the sum of the stream.

    At most one text, refusal or thought is open. Calls may grow at the same time.

    Args:
        total: the sum that the gateway records, to which each event is added before it is fed.
    """

    def __init__(self, total: Any) -> None:
        self._sum = total
        self._texts = SoundStream()
        self._cursors: defaultdict[Any, Cursor] = defaultdict(Cursor)
        self._kind = ""  # At most one text, refusal or thought is open; this is its kind.
        self._pieces: list[str] = []
        self._events: list[StreamEvent] = []
        self._with_input: set[int] = set()
        self._ids: dict[int, str] = {}  # keyed by index of all calls that have begun
        self._ended: set[int] = set()  # indexes of the calls that have ended

    def feed(self, data: Mapping[str, Any] | None) -> list[StreamEvent]:
        """Return the neutral events of one event of the provider; there may be none or several.

        The caller examines whether the event reports an error, which may stand next to content.

        Args:
            data: the event's parsed data; None for ``[DONE]``.

        Raises:
            DialectError: the event does not have the API's form.
        """
        if data is None:
            return []
        if not isinstance(data, Mapping):
            raise unreadable("an event")
        return self._read(self._feed, data)

    def finish(self) -> list[StreamEvent]:
        """Return the ends of all open blocks, once the stream has ended.

        Raises:
            DialectError: a part of the answer does not have the API's form.
        """
        return self._read(self._finish)

    def _read(self, read: Callable[..., None], *data: Any) -> list[StreamEvent]:
        try:
            read(*data)
        except DialectError as error:
            if error.param is None:
                raise
            # The reader of requests found the part, so the error speaks of a request.
            raise unreadable(error.param) from error
        events, self._events = self._events, []
        return self._texts.repaired(events)

    @abstractmethod
    def _feed(self, data: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def _finish(self) -> None: ...

    def _new(self, key: Any, value: Any, where: str, kinds: tuple[type, ...] = (str, list)) -> str:
        """Return the text added to a member of the sum since the last call with this key.

        Args:
            key: names the text in this reader.
            value: the text so far.
            where: its place, for errors.
            kinds: the types that it may have next to :class:`Pieces`.

        Raises:
            DialectError: the text is of another type.
        """
        if type(value) is not Pieces and type(value) not in kinds:
            raise unreadable(where)
        return self._cursors[key].new(value)

    def _piece(self, kind: str, text: str, *, raw: bool = False) -> None:
        """Add a piece of a text, a refusal or a thought, which becomes the open block.

        The caller closes an open block of another kind before.

        Args:
            kind: ``text``, ``refusal`` or ``thinking``.
            text: the piece; nothing is added if it is empty.
            raw: True if the piece of a thought is not a summary.
        """
        if text:
            self._kind = kind
            self._pieces.append(text)
            self._events.append(_piece(kind, text, raw=raw))

    def _close(self) -> str:
        """Return the text of the open block, after which no block is open. No event is added."""
        text, self._kind = "".join(self._pieces), ""
        self._pieces.clear()
        return text

    def _end_block(self, block: dict[str, Any]) -> None:
        """Add the end of a block that is no call."""
        self._events.append(exchange.BlockEnd(block))

    def _begin_call(self, index: int, identity: str, name: str) -> None:
        """Add the start of a call. An id that an earlier call has gets a number."""
        unique, number = identity, 1
        while unique in self._ids.values():
            number += 1
            unique = f"{identity}_{number}"
        self._ids[index] = unique
        self._events.append(exchange.ToolUseStart(index, unique, name))

    def _input(self, index: int, text: str) -> None:
        """Add a piece of a call's input; nothing if it is empty."""
        if text:
            self._with_input.add(index)
            self._events.append(exchange.ToolInputDelta(index, text))

    def _end_call(self, index: int, block: dict[str, Any]) -> None:
        """Add the end of a call, and its input if no piece of it was added.

        Raises:
            DialectError: the input holds a number that JSON text cannot repeat: over 4,300 digits
                or, with a fraction or exponent, beyond a double.
        """
        if not is_finite(block["input"]):
            raise DialectError("The provider's answer holds a number that cannot be kept.")
        if block["input"] and index not in self._with_input:
            self._input(index, arguments_text(block["input"]))
        self._ended.add(index)
        self._events.append(exchange.BlockEnd({**block, "id": self._ids[index]}, index))


def sound_answer(answer: ProviderResponse) -> ProviderResponse:
    """Return an answer whose texts are valid Unicode; the same object if they are.

    Halves of a character are joined or become U+FFFD. ``more_than_text`` is then set if the content
    changed.
    """
    said = [answer.content, answer.model, answer.finish_reason, answer.request_id]
    try:
        orjson.dumps([*said, answer.content_blocks])
        return answer
    except TypeError:  # an unpaired surrogate; or an integer of more than 64 bits
        pass
    content, model, finish_reason, request_id = map(sound_text, said)
    return replace_fields(
        answer,
        content=content,
        model=model,
        finish_reason=finish_reason,
        request_id=request_id,
        content_blocks=sound(answer.content_blocks),
        more_than_text=answer.more_than_text or content != answer.content,
    )


class SoundStream:
    """Repairs the texts of one stream. A first half of a character is held until the text
    continues.
    """

    def __init__(self) -> None:
        self._halves: dict[_Text, str] = {}

    def repaired(self, events: Iterable[StreamEvent]) -> list[StreamEvent]:
        """Return the events with valid texts; their number may differ.

        A half of a character that ends a piece begins the next piece of its text. If none comes, a
        piece with U+FFFD precedes the end of the block. Any other half becomes U+FFFD.
        """
        found: list[StreamEvent] = []
        for event in events:
            field = _PIECE.get(type(event))
            if field is not None:
                self._continue(event, field, found)
            elif type(event) is exchange.BlockEnd:
                self._end(event.index, found)
                found.append(replace(event, block=sound(event.block)))
            elif type(event) is exchange.ToolUseStart:
                name, identity = sound_text(event.name), sound_text(event.id)
                found.append(replace(event, id=identity, name=name))
            else:
                found.append(event)
        return found

    def _continue(self, event: Any, field: str, found: list[StreamEvent]) -> None:
        piece: str = getattr(event, field)
        if piece.isascii() and not self._halves:
            found.append(event)
            return
        of = (type(event), getattr(event, "index", None))
        text = self._halves.pop(of, "") + piece
        if "\ud800" <= text[-1:] <= "\udbff":
            self._halves[of] = text[-1]
            text = text[:-1]
        if text or not piece:
            found.append(replace(event, **{field: sound_text(text)}))

    def _end(self, index: int | None, found: list[StreamEvent]) -> None:
        """Replace the pending halves of texts that end with a block."""
        for of in [one for one in self._halves if one[1] == index]:
            del self._halves[of]
            kind, _ = of
            found.append(
                exchange.ToolInputDelta(index or 0, "\ufffd")
                if kind is exchange.ToolInputDelta
                else kind("\ufffd")
            )
