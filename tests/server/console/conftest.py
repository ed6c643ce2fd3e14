"""The console by itself, asked without a server around it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from remit.ledger import LedgerClient
from remit.runtime import Runtime
from remit.server.authentication import open_keys
from remit.server.console import Console
from remit.server.extensions import Authenticator
from tests.server.asgi import AsgiRequest
from tests.server.console.client import Answered
from tests.support.postgres import PostgresServer
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
    with opened(new_root(tmp_path_factory.mktemp("inside") / "root")) as console:
        yield console


@pytest.fixture(scope="module")
def inside_postgresql(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Inside]:
    """One for a module's tests, with its ledger on PostgreSQL."""
    url = postgres.database()
    root = new_root(tmp_path_factory.mktemp("inside") / "root", database=url)
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("REMIT_DATABASE_URL", url)
        with opened(root) as console:
            yield console


@contextmanager
def opened(root: Path) -> Iterator[Inside]:
    """Open a root and its console."""
    with (
        Runtime.open(root) as runtime,
        closing(open_keys(runtime)) as keys,
        closing(Console(runtime, keys, Authenticator(None, ""))) as console,
    ):
        yield Inside(runtime.ledger, console)
