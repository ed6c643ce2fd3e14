"""What a gateway adds to a stream.

Each streamed text carries the time at which it left the upstream, so the load knows how long each
took. The processor time of a chunk is the slope between short streams and long ones: what a
stream costs at its start and end falls out.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.gateways import peers, processes, rig
from benchmarks.gateways.environments import Skipped
from benchmarks.gateways.launch import running
from benchmarks.gateways.load import Measured
from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import number, ratios, spread, table
from benchmarks.rounds import new_directory

DIRECT = "direct"
PEERS = ("remit", *peers.FLOORS, "litellm")
CONCURRENCY = 64
CHUNKS = SHORT, LONG = 10, 100
DELAY_MS = 10


class Streams:
    """A run over several rounds.

    Args:
        scratch: a directory for roots, logs and configurations.
        given: the command line.
    """

    def __init__(self, scratch: Path, given: argparse.Namespace) -> None:
        self._scratch = scratch
        self._given = given
        self._ours, self._others = processes.cores()
        self._runs: dict[str, dict[int, list[Measured]]] = defaultdict(lambda: defaultdict(list))
        self._skipped = Skipped()

    def run(self) -> None:
        """All rounds."""
        names = [name for name in PEERS if name in self._given.peers]
        for index in range(self._given.rounds):
            for name in (DIRECT, *names):
                if name not in self._skipped:
                    tell(f"Streams, round {index + 1}: {name}")
                    with self._skipped.at(name):
                        self._turn(name)

    def _turn(self, name: str) -> None:
        directory = new_directory(self._scratch)
        with ExitStack() as stack:
            upstream = stack.enter_context(rig.upstream(self._others))
            target, pid = upstream.target, None
            if name != DIRECT:
                launch = peers.PEERS[name](upstream.url, directory)
                gateway = stack.enter_context(running(launch, directory, self._ours))
                target, pid = gateway.target, gateway.pid
            for chunks in CHUNKS:
                measured = rig.measure(
                    replace(target, stream=(chunks, DELAY_MS)),
                    CONCURRENCY,
                    core=self._others,
                    seconds=self._given.seconds,
                    pid=pid,
                )
                self._runs[name][chunks].append(measured)
                tell(
                    f"  {chunks} chunks: {number(measured.rate)}/s, {number(measured.cpu_us)} µs, "
                    f"{measured.errors} errors {measured.error[:200]}"
                )

    def tables(self) -> str:
        """What is printed; the times are those of the long streams."""
        direct = self._runs[DIRECT][LONG]
        lines, costs = [], {}
        for name, of in self._runs.items():
            short, long = of[SHORT], of[LONG]
            costs[name] = [
                (more.cpu_us - less.cpu_us) / (LONG - SHORT)
                for less, more in zip(short, long, strict=False)
            ]
            line = [
                name,
                spread([run.chunks / run.seconds for run in long]),
                spread([run.first_p50_ms for run in long]),
            ]
            if name == DIRECT:
                line += [""] * 7
            else:
                line += [
                    spread(_added("first_p50_ms", long, direct)),
                    spread(_added("first_p99_ms", long, direct)),
                    spread(_added("chunk_p50_ms", long, direct)),
                    spread(_added("chunk_p99_ms", long, direct)),
                    spread([run.cpu_us for run in short]),
                    spread(costs[name]),
                    spread([100 * run.foreign for run in long]),
                ]
            lines.append([*line, str(sum(run.errors for run in (*short, *long)))])
        more = ("Chunk added p50 ms", "Added p99 ms", f"CPU µs/stream of {SHORT}")
        titles = ("Peer", "Chunks/s", "First text p50 ms", "Added p50", "Added p99", *more)
        parts = [table((*titles, "CPU µs/chunk", "Foreign %", "Errors"), lines)]
        rows = [
            (f"remit / {other}", spread(ratios(costs["remit"], costs[other])))
            for other in PEERS[1:]
            if {"remit", other} <= costs.keys()
        ]
        if rows:
            parts.append(table(("Ratio", "CPU of a chunk"), rows))
        return "\n\n".join([*parts, *self._skipped.lines()])

    def figures(self) -> dict[str, object]:
        """All, for a file."""
        return {
            name: {chunks: [asdict(run) for run in many] for chunks, many in of.items()}
            for name, of in self._runs.items()
        }


def _added(what: str, runs: Sequence[Measured], direct: Sequence[Measured]) -> list[float]:
    """Over the median of the direct ones."""
    if not direct:
        return []
    bare = statistics.median(getattr(run, what) for run in direct)
    return [getattr(run, what) - bare for run in runs]
