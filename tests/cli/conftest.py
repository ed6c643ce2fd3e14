"""The command line, run in this process or as a user runs it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import run_remit

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The directory in which commands run."""
    work = tmp_path / "work"
    work.mkdir()
    return work


@pytest.fixture
def remit(work: Path) -> Run:
    """Runs ``remit ARGUMENTS`` in this process; keyword ``stdin``, others are the environment."""

    def run(
        *arguments: str | Path, stdin: str = "", **env: str
    ) -> subprocess.CompletedProcess[str]:
        return run_remit(*arguments, cwd=work, stdin=stdin, environment=env)

    return run


@pytest.fixture
def remit_process(work: Path) -> Run:
    """As :func:`remit`, in a process of its own."""

    def run(
        *arguments: str | Path, stdin: str = "", **env: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "remit", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=work,
            env={**os.environ, **env},
            timeout=300,
            check=False,
        )

    return run
