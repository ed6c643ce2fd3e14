"""A provider of chat completions whose answers a test writes, over real HTTP."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.raw_provider import RawProvider, raw_provider, whole
from tests.support.roots import new_root
from tests.support.wire import completion

__all__ = ["Scripted", "scripted"]


class Scripted:
    """See the module.

    Attributes:
        reply: the answer to a request's body; may be replaced in the middle of a test.
        bodies: the requests, as they came.
    """

    def __init__(self, provider: RawProvider) -> None:
        self.reply: Callable[[dict[str, Any]], str] = lambda _: "ok"
        self.model = ""
        self.bodies: list[dict[str, Any]] = []
        self.url = provider.url
        provider.answer = self._answer

    def _answer(self, connection: socket.socket, path: str, raw: bytes) -> bool:
        if not raw:  # the list of models
            connection.sendall(whole(b'{"object": "list", "data": []}'))
            return True
        body = json.loads(raw)
        self.bodies.append(body)
        text = self.reply(body)
        made = {
            **completion(text, prompt_tokens=100, completion_tokens=10),
            "id": f"chatcmpl-{len(self.bodies)}",
            "model": self.model or body["model"],
        }
        connection.sendall(whole(json.dumps(made).encode()))
        return True

    def root(self, place: Path) -> Path:
        """A root whose model `gpt-4o-mini` this provider answers for."""
        toml = (
            "[gateway]\nmax_retries = 0\n"
            f'[providers.openai]\napi_key = "sk-test"\nbase_url = "{self.url}/v1"\n'
        )
        return new_root(place, toml)


@contextmanager
def scripted() -> Iterator[Scripted]:
    with raw_provider() as provider:
        yield Scripted(provider)
