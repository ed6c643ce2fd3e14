"""``python -m benchmarks.gateways``: see the package."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.gateways import environments, peers, workers
from benchmarks.gateways.calls import Calls
from benchmarks.gateways.environments import Skipped
from benchmarks.gateways.memory import Memory
from benchmarks.gateways.options import names, numbers, parser_of, run_of
from benchmarks.gateways.progress import tell
from benchmarks.gateways.streaming import Streams
from benchmarks.gateways.workers import Workers
from benchmarks.rounds import new_directory

QUICK = {
    "peers": ["remit", "recording", "proxy"],
    "concurrency": [1, 64],
    "seconds": 1.0,
    "rounds": 1,
    "calls": 2_000,
    "stores": ["sqlite"],
    "workers": [1, 2],
}


class Part(Protocol):
    """A table of the report."""

    def run(self) -> None:
        """Measure; how far it is goes to standard error."""

    def tables(self) -> str:
        """What is printed."""

    def figures(self) -> dict[str, object]:
        """Every figure, for a file."""


PARTS: dict[str, Callable[[Path, argparse.Namespace], Part]] = {
    "calls": Calls,
    "streams": Streams,
    "memory": Memory,
    "workers": Workers,
}


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of("benchmarks.gateways")
    parser.add_argument("--parts", type=names, default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument(
        "--peers", type=names, default=list(peers.PEERS), help=", ".join(peers.PEERS)
    )
    parser.add_argument("--concurrency", type=numbers, default=[1, 16, 64, 256], help="of calls")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--payload", type=int, default=1024, help="bytes of a prompt")
    parser.add_argument("--calls", type=int, default=50_000, help="of the part memory")
    parser.add_argument("--stores", type=names, default=list(workers.STORES))
    parser.add_argument("--workers", type=numbers, default=[1, 2, 4])
    parser.add_argument("--quick", action="store_true", help="a minute that shows that it works")
    given = parser.parse_args(arguments)
    if given.quick:
        for name, value in QUICK.items():
            if getattr(given, name) == parser.get_default(name):
                setattr(given, name, value)
    known = ((given.parts, PARTS), (given.peers, peers.PEERS), (given.stores, workers.STORES))
    for named, there in known:
        if unknown := set(named) - set(there):
            parser.error(f"{', '.join(sorted(unknown))}: only {', '.join(there)} are known")
    return given


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print each part when it is done, and write the file that was asked for."""
    given = _arguments(arguments)
    skipped = Skipped()
    for name in given.peers:  # made before anything is measured
        with skipped.at(name):
            environments.prepare(name)
    given.peers = [name for name in given.peers if name not in skipped]
    with run_of(given) as (scratch, document):
        for line in skipped.lines():
            print(f"\n{line}")
        for part in given.parts:
            begun = time.monotonic()
            run = PARTS[part](new_directory(scratch), given)
            with skipped.at(part):
                run.run()
                print(f"\n### {part.capitalize()}\n\n{run.tables()}", flush=True)
                document[part] = run.figures()
            tell(f"{part}: {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
