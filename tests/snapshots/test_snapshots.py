"""The interfaces are as the snapshots say: a change of one is meant, and is reviewed."""

from __future__ import annotations

import difflib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.snapshots.refresh import FILES, kept


def test_the_snapshots_are_what_the_code_declares_and_a_run_shows(tmp_path: Path) -> None:
    # In a process of its own: commands and modules keep state that other tests may have changed.
    refresh = [sys.executable, "-m", "tests.snapshots.refresh", str(tmp_path / "now")]
    subprocess.run(refresh, cwd=FILES.parents[2], check=True, timeout=300)
    difference = _difference(kept(), kept(tmp_path / "now"))
    if difference:
        pytest.fail(
            "An interface changed. If that is intended, run `.venv/bin/python -m "
            f"tests.snapshots.refresh` and commit the diff:\n{difference}",
            pytrace=False,
        )


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
