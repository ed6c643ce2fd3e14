"""One request and its answer, as exact bytes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["WireExchange", "chunks", "events"]

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class WireExchange:
    """What a client might send, and what a provider might answer.

    Attributes:
        name: unique in the corpus.
        endpoint: ``openai.chat``, ``openai.responses`` or ``anthropic.messages``.
        request: the body, legal JSON in odd text.
        answer: a whole body, or of a streamed call an event stream.
        headers: what the client sends beside the usual.
        asks_usage: whether the answer reports usage without anything being added to the request.
    """

    name: str
    endpoint: str
    request: bytes
    answer: bytes
    streamed: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    asks_usage: bool = True

    @property
    def content_type(self) -> str:
        """Of the answer."""
        return "text/event-stream; charset=utf-8" if self.streamed else "application/json"


def chunks(*data: bytes) -> bytes:
    """An event stream without names, one event for each text, ended as Chat Completions ends."""
    return b"".join(b"data: " + text + b"\n\n" for text in data) + DONE


def events(*data: bytes) -> bytes:
    """An event stream whose events are named by their text's ``type``, which stands first."""
    return b"".join(
        b"event: " + text.split(b'"', 4)[3] + b"\ndata: " + text + b"\n\n" for text in data
    )
