"""Streams between dialects, by way of the neutral events."""

from __future__ import annotations

from typing import Any

from remit.providers.dialects.call import DialectError


class StreamReader:
    """Reads the events of one provider's stream."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    def feed(self, data: Any) -> list[Any]:
        """Neutral events of one event's data."""
        return []


def stream_writer(endpoint: str, call: Any, *, answer_id: str, created: int, model: str) -> Any:
    """What writes a stream in the client's dialect."""
    raise DialectError("Streams are not translated yet.")


def stream_events(answer: Any) -> list[Any]:
    """The neutral events of a whole answer."""
    return []
