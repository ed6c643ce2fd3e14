"""A strict provider of both dialects in a thread, and the official SDK before it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import openai

from tests.server.running import Served
from tests.support.listening import listening
from tests.support.strict.server import StrictProvider

CLAUDE = "claude-sonnet-4-5"
GPT = "gpt-4o-mini"


@dataclass
class Strict:
    """A strict provider of both dialects: its URL, and what came to it."""

    url: str
    notes: list[dict[str, Any]]

    def seen(self, path: str = "") -> list[dict[str, Any]]:
        """Every body that came to a path, oldest first."""
        return [
            json.loads(base64.b64decode(note["body"]))
            for note in self.notes
            if note["method"] == "POST" and note["path"].endswith(path)
        ]

    def headers(self) -> dict[str, str]:
        """Headers of the latest ``POST``, names in lower case."""
        *_, last = (note for note in self.notes if note["method"] == "POST")
        return {name.lower(): value for name, value in dict(last["headers"]).items()}

    def query(self) -> str:
        """The query of the latest ``POST``."""
        *_, last = (note for note in self.notes if note["method"] == "POST")
        return str(last["query"])

    def has(self, method: str, path: str) -> bool:
        """Whether such a request came."""
        return any((note["method"], note["path"]) == (method, path) for note in self.notes)


@contextmanager
def strict_provider() -> Iterator[Strict]:
    """One until the block ends."""
    provider = StrictProvider()
    with listening(provider.app()) as url:
        yield Strict(url, provider.seen)


def client_of(served: Served, token: str | None = None) -> openai.OpenAI:
    """The SDK, with only base URL and key changed; errors are not tried again."""
    key = token or served.token
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key=key, max_retries=0)
