"""The interfaces are as the snapshots say: a change of one is meant, and is reviewed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.snapshots.declared import declared
from tests.snapshots.observed import observed
from tests.snapshots.refresh import kept


def test_the_snapshots_are_what_the_code_declares_and_a_run_shows(tmp_path: Path) -> None:
    difference = _difference(kept(), {**declared(tmp_path), **observed(tmp_path)})
    if difference:
        pytest.fail(
            "An interface changed. If that is intended, run `.venv/bin/python -m "
            f"tests.snapshots.refresh` and commit the diff:\n{difference}",
            pytrace=False,
        )


def test_a_difference_names_the_file_and_shows_the_lines() -> None:
    was = {"help/a.txt": "one\ntwo\n", "same.txt": "same\n", "gone.txt": "old\n"}
    now = {"help/a.txt": "one\n2\n", "same.txt": "same\n", "new.txt": "new\n"}
    lines = _difference(was, now).splitlines()
    assert [line for line in lines if line[:1] in "+-"] == [
        "--- gone.txt", "+++ gone.txt", "-old", "--- help/a.txt", "+++ help/a.txt", "-two", "+2",
        "--- new.txt", "+++ new.txt", "+new",
    ]  # fmt: skip


def _difference(was: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the diff of all files; empty if there is none."""
    return "".join(
        "".join(
            difflib.unified_diff(
                was.get(name, "").splitlines(keepends=True),
                now.get(name, "").splitlines(keepends=True),
                name,
                name,
            )
        )
        for name in sorted({*was, *now})
    )
