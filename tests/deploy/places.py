"""Where the files for operators lie, and programs that run beside Remit in these tests."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
DEPLOY = TOP / "deploy"
PATIENCE_S = 60


def program(name: str) -> str:
    """Its path; the test is skipped where it is not installed."""
    found = shutil.which(name, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    if found is None:
        pytest.skip(f"{name} is not installed (.ci/run installs it where it can)")
    return found


def free_port() -> int:
    """A port that is free on loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running(command: list[str], log: Path, cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program until the block ends; what it says is in ``log``."""
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, cwd=cwd)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
