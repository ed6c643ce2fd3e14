"""The command line, run in this process or as a user runs it, in a process of its own."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import run_remit
from tests.support.processes import run_program


def parsed(done: subprocess.CompletedProcess[str]) -> Any:
    """The JSON that a command printed, which must have succeeded."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def at_terminal(*arguments: str | Path, output: int | None = None) -> tuple[str, str]:
    """Run ``remit ARGUMENTS`` at a terminal: what a piped ``output`` got, and what was shown."""
    near, far = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "remit", *arguments],
        stdin=subprocess.DEVNULL, stdout=far if output is None else output, stderr=far,
    ) as process:  # fmt: skip
        os.close(far)
        parts: list[bytes] = []
        with suppress(OSError):  # nobody holds the other end any more
            while data := os.read(near, 65536):
                parts.append(data)
        printed = process.stdout.read() if process.stdout else b""
    os.close(near)
    return printed.decode(), b"".join(parts).decode().replace("\r\n", "\n")


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
        line = map(str, ("-m", "remit", *arguments))
        return run_program(*line, environment={**os.environ, **env}, cwd=work, stdin=stdin)

    return run
