"""What is refused is refused whole: one clear error, and nothing changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.kernel.root import Root
from remit.runtime import make_root
from tests.packages.hostile import CASES, Case, Stage, play


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """One root for all cases that leave it as it was, which each of them proves."""
    top = tmp_path_factory.mktemp("hostile")
    make_root(Root(top / "root"))
    return Stage(top / "root", top / "scratch")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_refused_and_nothing_changed(case: Case, shared: Stage, tmp_path: Path) -> None:
    stage = shared.copy(tmp_path) if case.own_root else shared
    told = play(case, stage)
    assert (told.code, told.exit) == (case.code, 1), told
    assert case.word in told.message, told
    assert told.next_step.strip(), told
    assert not told.changed
    assert told.entries == 0
    assert not [*stage.root.joinpath("HOT/installed/.journal").iterdir()]
