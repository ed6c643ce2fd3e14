"""A gateway that can be started, and one that runs."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gateways import processes
from benchmarks.gateways.environments import UnavailableError
from benchmarks.gateways.target import Bodies, Target
from benchmarks.gateways.wire import CHAT_PATH, MARKER

START_S = 120
POLL_S = 0.01
LOG_LINES = 5


@dataclass(frozen=True)
class Launch:
    """A gateway that can be started.

    Attributes:
        command: program and arguments.
        target: where its chat endpoint will be.
        environment: variables added to ours.
    """

    command: list[str | Path]
    target: Target
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Gateway:
    """A gateway that runs.

    Attributes:
        target: its chat endpoint.
        pid: of its first process; all others are below it.
        start_s: from starting the process to the first connection that it takes.
        answer_s: to its first good answer.
    """

    target: Target
    pid: int
    start_s: float
    answer_s: float


@contextmanager
def running(launch: Launch, directory: Path, core: set[int] | None) -> Iterator[Gateway]:
    """Start a gateway, wait for its first good answer, and stop it at the end of the block.

    Args:
        launch: what to start.
        directory: gets what it prints.
        core: where it may run; None for anywhere.

    Raises:
        UnavailableError: it ended, or did not answer in time.
    """
    log = directory / "gateway.log"
    started, listening = time.perf_counter(), 0.0
    process = processes.spawn(
        launch.command, core=core, environment=launch.environment, log=log, directory=directory
    )
    try:
        while True:
            now = time.perf_counter()
            if listening or processes.listens(launch.target.url):
                listening = listening or now
                if not (said := _answer(launch.target)):
                    break
            else:
                said = "it does not listen"
            late = now - started > START_S
            if late or process.poll() is not None:
                lines = log.read_text(errors="replace").strip().splitlines()[-LOG_LINES:]
                how = f"did not answer in {START_S} s" if late else "ended"
                raise UnavailableError(f"It {how}; last: {said}; it printed: {' | '.join(lines)}")
            time.sleep(POLL_S)
        answered = time.perf_counter()
        yield Gateway(launch.target, process.pid, listening - started, answered - started)
    finally:
        processes.stop(process)


def _answer(target: Target) -> str:
    """Ask once; what was wrong with the answer, or nothing."""
    request = urllib.request.Request(
        target.url,
        data=Bodies(target).next().partition(b"\r\n\r\n")[2],
        headers={**target.headers, "content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=START_S) as response:
            content: bytes = response.read()
            return "" if MARKER in content else content.decode(errors="replace")[:300]
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode(errors='replace')[:300]}"
    except OSError as error:
        return str(error)


def chat_url(port: int) -> str:
    """The chat endpoint on this machine."""
    return f"http://127.0.0.1:{port}{CHAT_PATH}"


def bearer(key: str) -> dict[str, str]:
    """The header that names a key."""
    return {"authorization": f"Bearer {key}"}
