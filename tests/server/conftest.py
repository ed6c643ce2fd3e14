"""A real server process in front of a real, misbehaving upstream process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.server.running import Served, new_session, serving
from tests.server.sdks import opened
from tests.server.strict import Strict, strict_provider
from tests.support import wire
from tests.support.keeping import Keeper, keeping
from tests.support.object_store import ObjectStore, object_store
from tests.support.postgres import PostgresServer
from tests.support.raw_provider import RawProvider, raw_provider
from tests.support.upstream import Upstream, upstream as run_upstream

QUICK = """
[gateway]
retry_base_ms = 5
retry_max_ms = 50
"""
"""Retries that do not make tests wait."""


class Serve(Protocol):
    """:func:`tests.server.running.serving` with root and upstream given."""

    def __call__(
        self, *arguments: str, toml: str = ..., checked: bool = ..., root: Path | None = ...,
        environment: Mapping[str, str] | None = ...,
    ) -> AbstractContextManager[Served]: ...  # fmt: skip


@pytest.fixture(autouse=True)
def _closed_clients() -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """One upstream for a module's tests."""
    with run_upstream() as running:
        yield running


@pytest.fixture(scope="module")
def behind() -> Iterator[wire.WireServer]:
    """An upstream that shows the bodies it gets."""
    with wire.serve({}) as server:
        yield server


@pytest.fixture(scope="module")
def strict() -> Iterator[Strict]:
    """A provider that refuses what the real ones refuse."""
    with strict_provider() as running:
        yield running


@pytest.fixture(scope="module")
def keeper() -> Iterator[Keeper]:
    """A provider that keeps files and batches."""
    with keeping() as running:
        yield running


@pytest.fixture(scope="module")
def provider(request: pytest.FixtureRequest) -> Iterator[RawProvider]:
    """A provider that answers with the bytes that a test names, or as its module's ``ANSWER``."""
    with raw_provider() as running:
        running.answer = getattr(request.module, "ANSWER", running.answer)
        yield running


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    """A provider that keeps objects of any kind."""
    with object_store() as running:
        yield running


@pytest.fixture(scope="module")
def toml(request: pytest.FixtureRequest) -> str:
    """The settings of a module's server: its ``TOML``, with ``{url}`` for the provider's."""
    return getattr(request.module, "TOML", QUICK)


@pytest.fixture(scope="module")
def backend(request: pytest.FixtureRequest) -> Any:
    """The provider of a module's server: the fixture that its ``BEFORE`` names."""
    return request.getfixturevalue(getattr(request.module, "BEFORE", "upstream"))


@pytest.fixture(scope="module")
def served(backend: Any, toml: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for a module's tests, on SQLite."""
    root = tmp_path_factory.mktemp("served") / "root"
    with serving(root, backend.url, toml=toml.replace("{url}", backend.url)) as running:
        yield running


def database_of(request: pytest.FixtureRequest) -> str:
    """A new database on PostgreSQL, if the fixture's parameter names it; nothing for SQLite."""
    if request.param == "sqlite":
        return ""
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.database()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """The address of a test's own database, on either store."""
    return database_of(request)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def anywhere(
    request: pytest.FixtureRequest, backend: Any, toml: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:  # fmt: skip
    """One server for a module's tests, on either store."""
    root = tmp_path_factory.mktemp("anywhere") / "root"
    with serving(root, backend.url, toml=toml, database=database_of(request)) as running:
        yield running


@pytest.fixture
def serve(upstream: Upstream, tmp_path: Path) -> Serve:
    """Starts a server of the test's own."""

    def start(
        *arguments: str, toml: str = QUICK, checked: bool = True, root: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> AbstractContextManager[Served]:  # fmt: skip
        return serving(
            root or tmp_path / "root", upstream.url, *arguments,
            toml=toml, checked=checked, environment=environment,
        )  # fmt: skip

    return start


@pytest.fixture
def session() -> str:
    """A session of the test's own."""
    return new_session()
