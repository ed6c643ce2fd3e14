"""One server in front of one provider, for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.cases import fuzzing, others_are_answered
from tests.server.running import Served
from tests.support.raw_provider import RawProvider


@pytest.fixture(scope="module")
def fuzzed(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Served, RawProvider]]:
    with fuzzing(tmp_path_factory.mktemp("fuzzed") / "root") as running:
        yield running


@pytest.fixture
def provider(fuzzed: tuple[Served, RawProvider]) -> RawProvider:
    return fuzzed[1]


@pytest.fixture
def served(fuzzed: tuple[Served, RawProvider]) -> Iterator[Served]:
    yield fuzzed[0]
    others_are_answered(fuzzed[0])
