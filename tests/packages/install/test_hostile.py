"""What is refused is refused completely: one clear error, and nothing changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packages.hostile import CASES, Case, Stage, play


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_refused_and_nothing_changed(case: Case, untouched: Stage, tmp_path: Path) -> None:
    stage = untouched.copy(tmp_path) if case.own_root else untouched
    told = play(case, stage)
    assert (told.code, told.exit) == (case.code, 1), told
    assert case.word in told.message, told
    assert told.next_step.strip(), told
    assert not told.changed
    assert told.entries == 0
    assert not [*stage.root.joinpath("HOT/installed/.journal").iterdir()]
