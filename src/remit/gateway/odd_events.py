"""Events of a provider's stream that break its API: errors that clients miss, whole answers.

A server may state an error in a form that no client reads, or send a whole answer in place of a
stream.
"""

from __future__ import annotations

import re
from typing import Any

from remit.providers import ProviderError, error_of_event
from remit.providers.sse import SseEvent

_NAMED = ("anthropic.messages", "bedrock.converse")
"""Endpoints whose clients know an error by the event's name alone."""
_UNNAMED = ("openai.chat", "openai.completions", "gemini.generate")
"""Endpoints whose clients know an error by the member ``error`` of an event alone."""

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
