"""The console by itself, asked without a server around it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from remit.ledger import LedgerClient
from remit.runtime import Runtime
from remit.server.authentication import open_keys
from remit.server.console import Console
from remit.server.extending import Authenticator
from tests.server.asgi import AsgiRequest
from tests.server.console.client import Answered
from tests.support.roots import new_root


@dataclass
class Inside:
    """A console in this process, whose visitor is the developer, and what it reads."""

    ledger: LedgerClient
    console: Console

    def get(self, path: str) -> Answered:
        """A page."""
        path, _, query = path.partition("?")
        answer = asyncio.run(AsgiRequest([]).to(self.console, "GET", path, query=query, headers=()))
        return Answered(answer.status, answer.body.decode(), answer.headers)


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """One for a module's tests."""
    root = new_root(tmp_path_factory.mktemp("inside") / "root")
    with (
        Runtime.open(root) as runtime,
        closing(open_keys(runtime)) as keys,
        closing(Console(runtime, keys, Authenticator(None, ""))) as console,
    ):
        yield Inside(runtime.ledger, console)
