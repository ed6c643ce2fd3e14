"""``python -m benchmarks.gateways.workers``: Remit with one worker and with two, on both stores.

The gateway may run on every core here, beside the upstream, the load and the database: what a
second worker gains on a machine of two cores is less than it gains where those are elsewhere.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from benchmarks.gateways import peers, rig
from benchmarks.gateways.environments import UnavailableError
from benchmarks.gateways.load import Measured
from benchmarks.gateways.options import numbers, parser_of, run_of
from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import ratios, spread, table
from benchmarks.postgres import PostgresServer
from benchmarks.rounds import new_directory

STORES = ("sqlite", "postgres")
DATABASE_VARIABLE = "REMIT_DATABASE_URL"
Runs = dict[tuple[str, int], list[Measured]]


@contextmanager
def _variables(server: PostgresServer | None) -> Iterator[dict[str, str]]:
    """What tells Remit where its ledger is; a new database where that is PostgreSQL."""
    if server is None:
        yield {}
        return
    with server.database() as url:
        yield {DATABASE_VARIABLE: url}


def measure(scratch: Path, given: argparse.Namespace) -> Runs:
    """All rounds, by store and workers."""
    runs: Runs = defaultdict(list)
    with ExitStack() as stack:
        server = None
        if "postgres" in given.stores:
            server = stack.enter_context(PostgresServer(scratch / "postgres"))
        for index in range(given.rounds):
            for store in given.stores:
                for workers in given.workers:
                    tell(f"Round {index + 1}: {store}, {workers} workers")
                    measured = _turn(
                        new_directory(scratch),
                        server if store == "postgres" else None,
                        workers,
                        given,
                    )
                    runs[store, workers].append(measured)
    return runs


def _turn(
    directory: Path, server: PostgresServer | None, workers: int, given: argparse.Namespace
) -> Measured:
    with _variables(server) as variables, rig.upstream(None) as upstream:
        launch = peers.remit(upstream.url, directory, workers=workers, environment=variables)
        with peers.running(launch, directory, None) as gateway:
            return rig.measure(
                gateway.target,
                given.concurrency,
                core=None,
                seconds=given.seconds,
                pid=gateway.pid,
            )


def tables(runs: Runs) -> str:
    """What is printed."""
    lines = [
        (
            store,
            str(workers),
            spread([run.rate for run in many]),
            spread([run.p50_ms for run in many]),
            spread([run.p99_ms for run in many]),
            spread([run.cpu_us for run in many]),
            str(sum(run.errors for run in many)),
        )
        for (store, workers), many in runs.items()
    ]
    titles = ("Store", "Workers", "Requests/s", "p50 ms", "p99 ms", "CPU µs/request", "Errors")
    parts = [table(titles, lines)]
    for (store, workers), many in runs.items():
        if workers != 1 and (store, 1) in runs:
            gain = ratios([run.rate for run in many], [run.rate for run in runs[store, 1]])
            parts.append(f"{store}: {workers} workers / 1: {spread(gain)}")
    return "\n\n".join(parts)


def main() -> None:
    """Run and print."""
    parser = parser_of("benchmarks.gateways.workers")
    parser.add_argument("--workers", type=numbers, default=[1, 2])
    parser.add_argument("--stores", type=lambda text: text.split(","), default=list(STORES))
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if unknown := set(given.stores) - set(STORES):
        parser.error(f"no store is called {', '.join(sorted(unknown))}")
    with run_of(given) as (scratch, document):
        try:
            runs = measure(scratch, given)
        except UnavailableError as error:
            raise SystemExit(f"Remit cannot be measured: {error}") from error
        print(f"\n{tables(runs)}")
        document["runs"] = {
            f"{store}, {workers} workers": [asdict(run) | {"rate": run.rate} for run in many]
            for (store, workers), many in runs.items()
        }


if __name__ == "__main__":
    main()
