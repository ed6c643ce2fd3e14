"""A streamed answer, read event by event as it comes."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.server.running import Served, prompt

__all__ = ["PATHS", "Events", "ended_well", "failed", "said", "streaming"]

PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}


class Events:
    """The blocks of a stream of server-sent events, each as its lines."""

    def __init__(self, reply: http.client.HTTPResponse) -> None:
        self.status = reply.status
        self.headers = {name.lower(): value for name, value in reply.getheaders()}
        self.comments: dict[str, str] = {}
        self._reply = reply

    def __iter__(self) -> Iterator[str]:
        """The data of each event; comments are kept in ``comments``."""
        data: list[str] = []
        while line := self._reply.readline():
            text = line.decode("utf-8", "surrogateescape").rstrip("\n")
            if text.startswith(": "):
                self.comments |= dict(part.split("=", 1) for part in text[2:].split())
            elif text.startswith("data: "):
                data.append(text[6:])
            elif not text and data:
                yield "\n".join(data)
                data = []
        assert not data, "the stream ended within an event"

    def values(self) -> list[Any]:
        """All of them, read; ``[DONE]`` stays text."""
        return [data if data == "[DONE]" else json.loads(data) for data in self]


@contextmanager
def streaming(
    served: Served, dialect: str, text: str, *, session: str = "", model: str = "gpt-4o-mini",
    token: str | None = None, headers: Mapping[str, str] | None = None, **more: Any,
) -> Iterator[Events]:  # fmt: skip
    """One streamed call; leaving the block hangs up."""
    connection = http.client.HTTPConnection(*served.address, timeout=60)
    body = prompt(text, **{"model": model, "max_tokens": 50, "stream": True, **more})
    sent = {"authorization": f"Bearer {token or served.token}", **(headers or {})}
    if session:
        sent["x-remit-session"] = session
    try:
        connection.request("POST", PATHS[dialect], json.dumps(body).encode(), sent)
        reply = connection.getresponse()
        with reply:
            yield Events(reply)
    finally:
        connection.close()


def said(values: list[Any]) -> str:
    """The text of an answer in either dialect."""
    parts = []
    for value in values:
        if isinstance(value, dict):
            for choice in value.get("choices", ()):
                parts.append(choice["delta"].get("content") or "")
            if value.get("type") == "content_block_delta":
                parts.append(value["delta"].get("text", ""))
    return "".join(parts)


def ended_well(values: list[Any]) -> bool:
    """Whether the last event is the dialect's own end."""
    last = values[-1]
    return last == "[DONE]" or (isinstance(last, dict) and last.get("type") == "message_stop")


def failed(values: list[Any]) -> bool:
    """Whether an error was told in the stream."""
    return any(isinstance(value, dict) and "error" in value for value in values)
