"""Other agent runtimes and Remit, doing the same loop on the same fake upstream."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.agents.runners.script import STEPS, TOOLS
from benchmarks.gateways import environments, processes
from benchmarks.gateways.environments import UnavailableError
from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import number, ratios, spread, table
from benchmarks.rounds import new_directory

AIM = 1.0  # with everything recorded, beside runtimes that keep nothing
LOG_LINES = 3
# The client of the peers' choice is httpx; the SDK's own extra for aiohttp is quicker with many
# calls at once, so both are measured.
environments.PYTHON_PACKAGES |= {
    "pydantic-ai": (
        "pydantic-ai-slim[openai]==2.68.0", "openai[aiohttp]==3.54.0", "uvloop==0.23.0",
    ),
    "openai-agents": ("openai-agents==0.24.0", "openai[aiohttp]==3.54.0", "uvloop==0.23.0"),
}  # fmt: skip
_TOP = Path(__file__).parents[2]


@dataclass(frozen=True)
class Peer:
    """How a peer is run.

    Attributes:
        runner: the module below ``runners``.
        environment: of :mod:`benchmarks.gateways.environments`; empty for the one that runs this.
        options: given to the script.
        about: for the report, where the environment does not say it.
    """

    runner: str
    environment: str = ""
    options: tuple[str, ...] = ()
    about: str = ""


REMIT, REMIT_KEPT = "remit", "remit-kept"
PEERS = {
    REMIT: Peer("remit_loop", about="a new session each loop"),
    REMIT_KEPT: Peer("remit_loop", options=("kept",), about="a session each caller, history"),
    "pydantic-ai": Peer("pydantic_loop", "pydantic-ai"),
    "pydantic-ai-aiohttp": Peer("pydantic_loop", "pydantic-ai", ("aiohttp",)),
    "openai-agents": Peer("openai_loop", "openai-agents"),
    "openai-agents-aiohttp": Peer("openai_loop", "openai-agents", ("aiohttp",)),
}
Run = dict[str, Any]
"""What a runner prints of one run, see ``runners/loops.py``."""


@contextmanager
def upstream(core: set[int] | None) -> Iterator[str]:
    """The fake upstream in a process of its own; gives its base URL without ``/v1``."""
    module = "benchmarks.agents.upstream"
    process = processes.spawn([sys.executable, "-m", module], core=core, directory=_TOP)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        processes.stop(process)


def counts(url: str) -> dict[str, Any]:
    """What came to an upstream: :class:`benchmarks.agents.upstream.Counts`."""
    with urllib.request.urlopen(f"{url}/count") as response:
        counted: dict[str, Any] = json.load(response)
        return counted


class Bench:
    """A run over several rounds; each peer is started anew in each.

    Args:
        scratch: for roots and logs.
        given: the command line.
    """

    def __init__(self, scratch: Path, given: argparse.Namespace) -> None:
        self._scratch = scratch
        self._given = given
        self._ours, self._others = processes.cores()
        self.runs: dict[str, dict[int, list[Run]]] = defaultdict(lambda: defaultdict(list))
        self.skipped: dict[str, str] = {}

    def run(self) -> None:
        """All rounds; the order turns round from one to the next."""
        for name in self._given.peers:
            if environment := PEERS[name].environment:
                with self._skipping(name):
                    environments.prepare(environment)
        for index in range(self._given.rounds):
            names = self._given.peers[:: -1 if index % 2 else 1]
            for name in names:
                if name not in self.skipped:
                    with self._skipping(name):
                        self._turn(name)
                    tell(f"Round {index + 1}: {name}")

    @contextmanager
    def _skipping(self, name: str) -> Iterator[None]:
        try:
            yield
        except UnavailableError as error:
            self.skipped[name] = str(error)
            tell(f"{name} is left out from here on: {error}")

    def _turn(self, name: str) -> None:
        peer, directory = PEERS[name], new_directory(self._scratch)
        python: str | Path = sys.executable
        if peer.environment:
            python = environments.python_environment(peer.environment) / "python"
        with upstream(self._others) as url:
            module = f"benchmarks.agents.runners.{peer.runner}"
            command: list[str | Path] = [python, "-m", module, url]
            command += [",".join(map(str, self._given.callers)), str(self._given.seconds)]
            command += [directory / "root", *peer.options]
            log = directory / "log"
            process = processes.spawn(command, core=self._ours, log=log, directory=_TOP)
            try:
                process.wait()
            finally:
                processes.stop(process)
            lines = log.read_text(errors="replace").strip().splitlines() or [""]
            if process.returncode:
                why = " | ".join(lines[-LOG_LINES:])
                raise UnavailableError(f"it ended with {process.returncode}: {why}")
            runs: list[Run] = json.loads(lines[-1])
            _check(runs, counts(url))
        for run in runs:
            self.runs[name][run["callers"]].append(run)

    def figures(self) -> dict[str, Any]:
        """Every figure of every round, for a file."""
        return {
            "peers": {
                name: {
                    "packages": environments.versions(PEERS[name].environment),
                    "runs": dict(runs),
                }
                for name, runs in self.runs.items()
            },
            "skipped": self.skipped,
        }

    def tables(self) -> str:
        """What is printed."""
        parts = [self._times(), self._ratios()]
        parts += [
            f"{name}: {environments.versions(PEERS[name].environment) or PEERS[name].about}"
            for name in self.runs
        ]
        parts += [f"{name} was left out: {reason}" for name, reason in self.skipped.items()]
        return "\n\n".join(part for part in parts if part)

    def _times(self) -> str:
        fields = ("wall_ms", "p50_ms", "p99_ms", "cpu_ms")
        lines = [
            (
                name,
                str(callers),
                *(spread([run[field] for run in runs]) for field in fields),
                spread([100 * run["foreign"] for run in runs]),
            )
            for callers in self._given.callers
            for name, by_callers in self.runs.items()
            if (runs := by_callers[callers])
        ]
        titles = ("Peer", "At once", "ms a loop", "p50 ms", "p99 ms", "CPU ms a loop", "Foreign %")
        return table(titles, lines)

    def _ratios(self) -> str:
        lines: list[tuple[str, ...]] = []
        for ours in (REMIT, REMIT_KEPT):
            for theirs in self.runs:
                if ours in self.runs and theirs not in (REMIT, REMIT_KEPT):
                    lines += self._compared(ours, theirs)
        titles = ("Ratio", "At once", "Time of a loop", f"Aim: <= {number(AIM)}", "CPU of a loop")
        return table(titles, lines) if lines else ""

    def _compared(self, ours: str, theirs: str) -> Iterator[tuple[str, ...]]:
        for callers in self._given.callers:
            time, cpu = (
                ratios(
                    [run[field] for run in self.runs[ours][callers]],
                    [run[field] for run in self.runs[theirs][callers]],
                )
                for field in ("wall_ms", "cpu_ms")
            )
            if time:
                said = "met" if statistics.median(time) <= AIM else "MISSED"
                yield f"{ours} / {theirs}", str(callers), spread(time), said, spread(cpu)


def _check(runs: list[Run], counted: dict[str, Any]) -> None:
    """Whether every loop was the whole loop: by what came upstream and by which tools ran.

    Raises:
        UnavailableError: not so.
    """
    loops = sum(run["all_loops"] for run in runs)
    each = dict.fromkeys(TOOLS, loops * STEPS // len(TOOLS))
    came = (counted["calls"], counted["asked"], counted["finished"], counted["wrong"])
    if came != (loops * (STEPS + 1), each, loops, 0):
        raise UnavailableError(f"{loops} loops were not the loop that was asked for: {counted}")
    if (ran := sum(run["tools"] for run in runs)) != loops * STEPS:
        raise UnavailableError(f"{ran} tools ran in {loops} loops")


def names(text: str) -> list[str]:
    """Names of peers between commas."""
    wanted = text.split(",")
    if unknown := set(wanted) - set(PEERS):
        raise argparse.ArgumentTypeError(f"no peer is called {', '.join(sorted(unknown))}")
    return wanted


def add_options(parser: argparse.ArgumentParser) -> None:
    """What of the command line is of this benchmark."""
    parser.add_argument("--peers", type=names, default=list(PEERS))
    parser.add_argument("--callers", type=_numbers, default=[1, 16], help="loops at once")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each run of peers")


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def measure(scratch: Path, given: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Run all; the tables and every figure."""
    try:
        bench = Bench(scratch, given)
        bench.run()
    except subprocess.SubprocessError as error:
        raise SystemExit(f"The peers cannot be measured: {error}") from error
    return bench.tables(), bench.figures()
