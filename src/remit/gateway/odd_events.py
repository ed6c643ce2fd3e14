"""Answers in another form than was asked for, and errors in forms that no client reads.

A server may send a whole answer in place of a stream, or a stream in place of a whole answer; as
events, as lines of JSON, or as Gemini's list.
"""

from __future__ import annotations

import re
from typing import Any

from remit.kernel.json_text import JsonTextError, dump, load_with_constants, without_constants
from remit.providers import ProviderError, error_of_event
from remit.providers.sse import SseEvent, SseParser
from remit.providers.wire import Endpoint, counted_once, is_other_form, stream_sum

_NAMED = ("anthropic.messages", "bedrock.converse")
"""Endpoints whose clients know an error by the event's name alone."""
_UNNAMED = ("openai.chat", "openai.completions", "gemini.generate")
"""Endpoints whose clients know an error by the member ``error`` of an event alone."""

DONE = b"[DONE]"
"""The data of the last event of OpenAI's streams, which some servers send in any dialect."""

CHUNK = "chat.completion.chunk"
"""The ``object`` of an event of Chat Completions, which some servers send as a whole body."""
_BEFORE_JSON = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s|(?::|id:|retry:)[^\r\n]*)*")
_JSON = re.compile(rb"\{|\[\s*\{")


class Opening:
    """The text before the first readable event of a stream: perhaps an answer that is no stream.

    Comments are no part of the text; nor, before JSON, are a byte order mark and the fields ``id``
    and ``retry``.

    Attributes:
        size: bytes of the text.
    """

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[bytes] = []
        self._is_json = self._has_data = False

    def holds_back(self, event: SseEvent) -> bool:
        """Add an event; return True if the client must not get it, because it is part of JSON.

        Args:
            event: the event; one without the end of an event may be the end of JSON.
        """
        raw = event.raw
        if not self._is_json:
            text = _BEFORE_JSON.sub(b"", raw, count=1)
            if not self._parts and _JSON.match(text):
                self._is_json, raw = True, text
            elif not text or raw.startswith(b":"):
                return False
        self._has_data = self._has_data or (event.complete and event.data != b"")
        self._parts.append(raw)
        self.size += len(raw)
        return self._is_json

    def answer(self) -> bytes | None:
        """Return the answer after the end of a stream without a readable event; None if there is
        none.

        The answer is a JSON object, Gemini's list of one error, or the text if that has data.
        """
        text = b"".join(self._parts)
        if not self._is_json:
            return text if self._has_data else None
        text = text.strip()
        if text.startswith(b"["):
            return text if error_of_event(text) is not None else None
        return text if text.endswith(b"}") else None


def broken_off() -> ProviderError:
    """Return the error of a stream without its end, which the provider may charge."""
    said = "the stream ended before the answer did"
    return ProviderError("SERVER_ERROR", said, True, maybe_billed=True)


def read_odd_form(endpoint: Endpoint, raw: bytes, value: Any) -> tuple[bytes, Any]:
    """Return the JSON text and the value of a model's whole answer that has another form.

    A byte order mark and comments before JSON are left out; NaN and infinities become null. Events,
    a chunk of Chat Completions alone, lines of JSON and Gemini's list become the answer that they
    add up to. The arguments are returned themselves unless the result is an answer or error of the
    endpoint.

    Args:
        endpoint: the endpoint of the answer.
        raw: the complete body.
        value: the parsed body; None if it is not JSON.

    Raises:
        ProviderError: the body is a stream that ended before its answer did, or ``[DONE]`` alone.
    """
    raw_text = _BEFORE_JSON.sub(b"", raw, count=1)
    text, answer = without_constants(raw_text), read_constants(raw_text)
    events: list[Any]
    if type(answer) is dict:
        is_chunk = answer.get("object") == CHUNK and error_of_event(answer) is None
        events = [answer] if is_chunk else []
    else:
        events = answer if type(answer) is list else _events_in(text)
        if {event.data.strip() for event in events if type(event) is SseEvent} - {b""} == {DONE}:
            raise broken_off()
    if type(answer) is not dict or events:
        total = stream_sum(endpoint.name)
        for event in events:
            if type(event) is not SseEvent:
                total.add("", b"", event)
                continue
            stated = total.add(event.name, event.data)
            if event.name == "error" and type(stated) is not dict:
                total.error = stated or event.data.decode("utf-8", "replace")
        answer = total.answer()
        if total.error is not None:
            answer.setdefault("error", total.error)
        elif total.pieces and not total.ended:
            raise broken_off()
        text = dump(answer)
    is_answer = not is_other_form(endpoint.name, answer) or error_of_event(answer) is not None
    return (text, answer) if is_answer else (raw, value)


def read_constants(text: bytes) -> Any:
    """Return the value of a JSON text, with NaN and infinities as floats; None if it is not JSON.

    Args:
        text: the text, such as the data of an event.
    """
    try:
        return counted_once(text, load_with_constants(text))
    except JsonTextError:
        return None


def _events_in(text: bytes) -> list[SseEvent]:
    """Return the events of a text, or its lines, each of which is the data of one."""
    if text.lstrip().startswith(b"{"):
        return [SseEvent(line, "", line) for line in text.splitlines()]
    parser = SseParser()
    events, last = parser.feed(text), parser.end()
    return events if last is None else [*events, last]


def named_error(event: SseEvent, value: Any) -> ProviderError | None:
    """Return the error of an event that is named ``error``, whatever its data.

    Args:
        event: the event.
        value: its parsed data; None if it is not JSON.
    """
    stated = event.data.decode("utf-8", "replace") if value is None else value
    return error_of_event({"type": "error", "error": stated})


def shows_error(endpoint: str, event: SseEvent, value: Any) -> bool:
    """Return True if clients of the endpoint see that an event states an error.

    Args:
        endpoint: the endpoint of the stream, such as ``openai.chat``.
        event: an event that states one.
        value: its parsed data.
    """
    if event.is_field:
        return False
    if endpoint in _NAMED:
        return event.name == "error"
    if type(value) is not dict:
        return False
    is_typed = endpoint not in _UNNAMED and value.get("type") in ("error", "response.failed")
    return is_typed or bool(value.get("error"))
