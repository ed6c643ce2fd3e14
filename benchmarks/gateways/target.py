"""Where requests go, and the requests as bytes, no two of them the same."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from benchmarks.gateways.wire import MODEL

PADDINGS = 256
GROUP = 16


@dataclass(frozen=True)
class Target:
    """Where requests go and what they are.

    Attributes:
        url: of the chat endpoint.
        headers: beside those that HTTP needs; ``{group}`` in a value is a number that sixteen
            requests share.
        model: the name that the gateway knows.
        payload: bytes of the prompt, about.
        stream: the (chunks, ms between them) to ask for; None for a whole answer.
    """

    url: str
    headers: dict[str, str] = field(default_factory=dict)
    model: str = MODEL
    payload: int = 1024
    stream: tuple[int, int] | None = None

    def streaming(self, stream: Sequence[int] | None) -> Target:
        """The same with (chunks, ms between them) for whole answers; with None the same."""
        return replace(self, stream=(stream[0], stream[1])) if stream else self


class Bodies:
    """Requests as bytes, each with a prompt that no other has."""

    def __init__(self, target: Target) -> None:
        parts = urlsplit(target.url)
        chance = random.Random(time.time_ns())
        self._run = f"{time.time_ns():x}"
        self._count = 0
        head = {"host": parts.netloc, "content-type": "application/json", **target.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        self._head = f"POST {parts.path} HTTP/1.1\r\n{lines}content-length: "
        asked = ""
        body: dict[str, object] = {"model": target.model}
        if target.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
            asked = "chunks={} delay_ms={} ".format(*target.stream)
        body["messages"] = [{"role": "user", "content": f"{asked}QUESTION"}]
        self._front, self._back = json.dumps(body).split("QUESTION")
        words = ["".join(chance.choices("abcdefghijklmnop", k=7)) for _ in range(2000)]
        length = max(0, target.payload - 40)
        self._paddings = [
            " ".join(chance.choices(words, k=length // 8 + 1))[:length] for _ in range(PADDINGS)
        ]

    def next(self) -> bytes:
        """One more request."""
        self._count += 1
        question = f"{self._run}-{self._count:09d} {self._paddings[self._count % PADDINGS]}"
        body = f"{self._front}{question}{self._back}"
        head = self._head.replace("{group}", f"{self._run}-{self._count // GROUP}")
        return f"{head}{len(body)}\r\n\r\n{body}".encode()
