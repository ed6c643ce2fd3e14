"""Servers that tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.mcp.running import Served, serving
from tests.support.roots import new_root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root for a module's tests."""
    return new_root(tmp_path_factory.mktemp("mcp") / "root")


@pytest.fixture(scope="module")
def served(root: Path) -> Iterator[Served]:
    """A server that listens, for a module's tests."""
    with serving(root) as running:
        yield running
