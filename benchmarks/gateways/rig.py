"""The fixed parts around a gateway: the upstream, and loads in processes of their own."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gateways import processes
from benchmarks.gateways.environments import UnavailableError
from benchmarks.gateways.load import Measured
from benchmarks.gateways.progress import tell
from benchmarks.gateways.target import Target
from benchmarks.gateways.wire import CHAT_PATH

WARM_S = 1.0
_TOP = Path(__file__).parents[2]


@dataclass(frozen=True)
class FakeUpstream:
    """An upstream that runs.

    Attributes:
        url: without ``/v1``.
        pid: of its process.
    """

    url: str
    pid: int

    @property
    def target(self) -> Target:
        """To ask it directly."""
        return Target(f"{self.url}{CHAT_PATH}", {"authorization": "Bearer x"})

    def requests(self) -> int:
        """Chat requests that came since it started."""
        try:
            with urllib.request.urlopen(f"{self.url}/count") as response:
                counted: int = json.load(response)["requests"]
                return counted
        except OSError as error:
            raise UnavailableError(f"The upstream is gone: {error}") from error


@contextmanager
def upstream(core: set[int] | None) -> Iterator[FakeUpstream]:
    """Our upstream, while the block runs.

    Args:
        core: where it may run.
    """
    module = "benchmarks.gateways.upstream"
    process = processes.spawn([sys.executable, "-m", module], core=core, directory=_TOP)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    try:
        yield FakeUpstream(f"http://127.0.0.1:{port}", process.pid)
    finally:
        if (ended := process.poll()) is not None:
            tell(f"The upstream had ended by itself: {ended}")
        processes.stop(process)


def measure(
    target: Target,
    concurrency: int,
    *,
    core: set[int] | None,
    seconds: float | None = None,
    requests: int | None = None,
    warm_s: float | None = None,
    pid: int | None = None,
    rate: float | None = None,
) -> Measured:
    """Run a load in a process of its own; see :class:`~benchmarks.gateways.load.Load`.

    Args:
        warm_s: seconds that do not count; left out, 1, or half of ``seconds`` where that is less.

    Raises:
        UnavailableError: it could not be carried on, as when the gateway was gone.
    """
    if warm_s is None:
        warm_s = min(WARM_S, seconds / 2) if seconds else WARM_S
    command = [sys.executable, "-m", "benchmarks.gateways.load", "--url", target.url]
    command += ["--model", target.model, "--payload", str(target.payload)]
    command += ["--concurrency", str(concurrency), "--warm", str(warm_s)]
    for name, value in target.headers.items():
        command += ["--header", f"{name}: {value}"]
    for option, given in (("--seconds", seconds), ("--requests", requests), ("--pid", pid),
                          ("--rate", rate)):  # fmt: skip
        if given is not None:
            command += [option, str(given)]
    if target.stream:
        command += ["--stream", "{},{}".format(*target.stream)]
    process = processes.spawn(command, core=core, directory=_TOP)
    output, _ = process.communicate()
    if process.returncode:
        raise UnavailableError(f"The load on it ended with {process.returncode}.")
    return Measured(**json.loads(output))
