"""Processes of a measurement: each says that it is ready, is told to go, and gives its figures."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_TOP = Path(__file__).parents[2]
_END_S = 60


class Program:
    """One that runs.

    Args:
        module: of this package.
        arguments: of its command line.
    """

    def __init__(self, module: str, *arguments: object) -> None:
        self._module = module
        command = [sys.executable, "-m", f"benchmarks.cluster.{module}", *map(str, arguments)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_TOP
        )

    def ready(self) -> None:
        """Wait until it is."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line != "ready\n":
            raise RuntimeError(f"{self._module} did not start: {line}")

    def tell(self) -> None:
        """Say go; the second time, stop."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def figures(self) -> Any:
        """What it prints when it ends, as JSON."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.process.wait(_END_S)
        return json.loads(line)

    def kill(self) -> None:
        """``kill -9``."""
        self.process.kill()
        self.close()

    def close(self) -> None:
        """Leave nothing of it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


@contextmanager
def programs(lines: Sequence[Sequence[object]]) -> Iterator[list[Program]]:
    """Several, all ready; each of ``lines`` is a module and its arguments."""
    running: list[Program] = []
    try:
        for module, *arguments in lines:
            running.append(Program(str(module), *arguments))
        for one in running:
            one.ready()
        yield running
    finally:
        for one in running:
            one.close()


def wait_to_go() -> float:
    """In such a process: ready; the processor time that it has used when it is told to go."""
    print("ready", flush=True)
    sys.stdin.readline()
    return time.process_time()


def give(figures: object) -> None:
    """In such a process: all figures."""
    print(json.dumps(figures), flush=True)
