"""A real server before strict providers of both dialects, and the official SDK as its client."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.server.conftest import QUICK
from tests.server.running import Served, serving
from tests.server.strict import Strict, client_of
from tests.support.postgres import PostgresServer


@pytest.fixture(scope="module")
def backend(strict: Strict) -> Strict:
    """The provider of each module's server."""
    return strict


@pytest.fixture(scope="module")
def on_postgres(
    strict: Strict, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """The same with its ledger in PostgreSQL."""
    root = tmp_path_factory.mktemp("responses") / "root"
    with serving(root, strict.url, toml=QUICK, database=postgres.database()) as running:
        yield running


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[openai.OpenAI]:
    """The SDK's client of that server."""
    with client_of(served) as made:
        yield made
