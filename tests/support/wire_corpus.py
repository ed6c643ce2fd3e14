"""Calls as they might be on the wire, in three dialects: odd but legal text, and exact answers.

`wire_corpus.json` holds them: each text is one string, or a list of strings that follow each other.
What a provider is sent must be what the client sent, and what the client gets what the provider
sent, byte for byte.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["CORPUS", "WireExchange"]


@dataclass(frozen=True, slots=True)
class WireExchange:
    """A request that a client might send, and what a provider might answer.

    Attributes:
        name: unique in the corpus.
        endpoint: ``openai.chat``, ``openai.responses`` or ``anthropic.messages``.
        request: the body, legal JSON in odd text.
        answer: a whole body, or of a streamed call an event stream.
        headers: names and values that the client sends beside the usual.
    """

    name: str
    endpoint: str
    request: bytes
    answer: bytes
    streamed: bool = False
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def content_type(self) -> str:
        return "text/event-stream; charset=utf-8" if self.streamed else "application/json"


def _exchange(row: dict[str, Any]) -> WireExchange:
    texts = {name: "".join(row[name]).encode() for name in ("request", "answer")}
    headers = tuple((name, value) for name, value in row.get("headers", ()))
    return WireExchange(**{**row, **texts, "headers": headers})


CORPUS = tuple(
    _exchange(row) for row in json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
)
