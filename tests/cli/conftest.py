"""The command as a user runs it: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def remit(tmp_path: Path) -> Run:
    """Runs ``remit ARGUMENTS`` in a directory of its own; keyword ``stdin``, ``env``."""
    work = tmp_path / "work"
    work.mkdir()

    def run(*arguments: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "remit", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=work,
            env={**os.environ, **env},
            timeout=120,
            check=False,
        )

    return run
