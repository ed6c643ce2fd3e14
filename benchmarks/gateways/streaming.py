"""``python -m benchmarks.gateways.streaming``: what a gateway adds to a stream.

Each streamed text carries the time at which it left the upstream, so the load knows how long each
took. The processor time of a chunk is the slope between short streams and long ones: what a
stream costs at its start and end falls out.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.gateways import peers, processes, rig
from benchmarks.gateways.environments import UnavailableError
from benchmarks.gateways.load import Measured
from benchmarks.gateways.options import numbers, parser_of, peer_names, run_of
from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import ratios, spread, table
from benchmarks.gateways.target import Target
from benchmarks.rounds import new_directory

DIRECT = "direct"
Runs = dict[str, dict[int, list[Measured]]]


def measure(scratch: Path, given: argparse.Namespace) -> tuple[Runs, dict[str, str]]:
    """All rounds: by peer and chunks of a stream; and who was left out, and why."""
    runs: Runs = defaultdict(lambda: defaultdict(list))
    skipped: dict[str, str] = {}
    ours, others = processes.cores()
    for index in range(given.rounds):
        for name in (DIRECT, *given.peers):
            if name in skipped:
                continue
            tell(f"Round {index + 1}: {name}")
            directory = new_directory(scratch)
            try:
                with rig.upstream(others) as upstream:
                    launch = None if name == DIRECT else peers.PEERS[name](upstream.url, directory)
                    with peers.running(launch, directory, ours) if launch else nullcontext() as up:
                        target: Target = up.target if up else upstream.target
                        for chunks in given.chunks:
                            measured = rig.measure(
                                replace(target, stream=(chunks, given.delay_ms)),
                                given.concurrency,
                                core=others,
                                seconds=given.seconds,
                                pid=up.pid if up else None,
                            )
                            runs[name][chunks].append(measured)
            except UnavailableError as error:
                skipped[name] = str(error)
                tell(f"{name} is left out from here on: {error}")
    return runs, skipped


def chunk_cpu_us(short: Measured, long: Measured, chunks: tuple[int, int]) -> float:
    """Processor time of one more chunk, in µs."""
    return (long.cpu_us - short.cpu_us) / (chunks[1] - chunks[0])


def tables(runs: Runs, chunks: tuple[int, int]) -> str:
    """What is printed; the times are those of the long streams."""
    direct = runs[DIRECT][chunks[1]]
    lines, costs = [], {}
    for name, of in runs.items():
        long = of[chunks[1]]
        pairs = list(zip(of[chunks[0]], long, strict=False))
        costs[name] = [chunk_cpu_us(short, more, chunks) for short, more in pairs]
        bare = name == DIRECT
        lines.append(
            (
                name,
                spread([run.chunks / run.seconds for run in long]),
                spread([run.first_p50_ms for run in long]),
                "" if bare else spread(_added("first_p50_ms", long, direct)),
                "" if bare else spread(_added("first_p99_ms", long, direct)),
                "" if bare else spread(_added("chunk_p50_ms", long, direct)),
                "" if bare else spread(_added("chunk_p99_ms", long, direct)),
                "" if bare else spread(costs[name]),
                "" if bare else spread([100 * run.foreign for run in long]),
                str(sum(run.errors for run in (*of[chunks[0]], *long))),
            )
        )
    titles = ("Peer", "Chunks/s", "First text p50 ms", "Added p50", "Added p99")
    more = ("Chunk added p50 ms", "Added p99 ms", "CPU µs/chunk", "Foreign %", "Errors")
    parts = [table((*titles, *more), lines)]
    for other in ("floor", "litellm"):
        if "remit" in costs and other in costs:
            of_rounds = ratios(costs["remit"], costs[other])
            parts.append(f"remit / {other}, CPU of a chunk: {spread(of_rounds)}")
    return "\n\n".join(parts)


def _added(what: str, runs: Sequence[Measured], direct: Sequence[Measured]) -> list[float]:
    """Over the median of the direct ones."""
    if not direct:
        return []
    bare = statistics.median(getattr(run, what) for run in direct)
    return [getattr(run, what) - bare for run in runs]


def main() -> None:
    """Run and print."""
    parser = parser_of("benchmarks.gateways.streaming")
    parser.add_argument("--peers", type=peer_names, default=["remit", "floor", "litellm"])
    parser.add_argument("--concurrency", type=int, default=8, help="streams at once")
    parser.add_argument("--chunks", type=numbers, default=[10, 100], help="of short, long streams")
    parser.add_argument("--delay-ms", type=int, default=10, help="between chunks")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if len(given.chunks) != 2 or given.chunks[0] >= given.chunks[1]:
        parser.error("--chunks takes two numbers, the smaller first")
    with run_of(given) as (scratch, document):
        runs, skipped = measure(scratch, given)
        print(f"\n{tables(runs, (given.chunks[0], given.chunks[1]))}")
        for name, reason in skipped.items():
            print(f"\n{name} was left out when this happened: {reason}")
        document["skipped"] = skipped
        document["runs"] = {
            name: {chunks: [asdict(run) for run in many] for chunks, many in of.items()}
            for name, of in runs.items()
        }


if __name__ == "__main__":
    main()
