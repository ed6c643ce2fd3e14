"""Many processes on one database, everything broken that can break: nothing lost, nothing twice."""

from __future__ import annotations

import inspect
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.simulation import run, scratch
from tests.simulation.world import Process, World
from tests.support.soak import sample

_SEEDS = 100  # within which each planted fault must be found


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    made = scratch()
    logging.disable(logging.ERROR)  # of databases that are away there is much to say
    yield made
    logging.disable(logging.NOTSET)
    shutil.rmtree(made)


@pytest.mark.parametrize("first", [0, 10])
def test_nothing_is_lost_or_done_twice(first: int, folder: Path) -> None:
    for seed in range(first, first + 5):
        assert run(seed, 6, folder).violations == []


@pytest.mark.soak
@pytest.mark.parametrize("name", sample(MUTANTS, 3))
def test_a_planted_fault_is_found(name: str, folder: Path) -> None:
    plant, known = MUTANTS[name]
    with plant():
        found = next(
            (one for seed in (known, *range(_SEEDS)) if (one := run(seed, 10, folder)).violations),
            None,
        )
    assert found is not None


def test_a_seed_replays_exactly(folder: Path) -> None:
    plant, known = MUTANTS["a lease that is taken from its holder"]
    with plant():
        first, again = run(known, 10, folder), run(known, 10, folder)
    assert first == again
    assert first.violations


def test_a_process_that_is_killed_before_it_begins_leaves_nothing() -> None:
    async def main() -> None: ...

    process = Process(World(1), 0)
    begun = main()
    process.run(begun)
    process.kill()
    assert inspect.getcoroutinestate(begun) == inspect.CORO_CLOSED
