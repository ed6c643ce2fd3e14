"""One misbehaving upstream for a module's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.upstream import Upstream, upstream as run_upstream


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """A process of its own that speaks both dialects."""
    with run_upstream() as running:
        yield running
