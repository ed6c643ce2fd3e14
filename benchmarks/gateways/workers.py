"""Remit with one worker and with more, on both stores.

The gateway may run on every core here, beside the upstream, the load and the database: what a
second worker gains on a machine of two cores is less than it gains where those are elsewhere.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from benchmarks.gateways import ours, processes, rig
from benchmarks.gateways.environments import Skipped
from benchmarks.gateways.launch import running
from benchmarks.gateways.load import Measured
from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import number, ratios, spread, table
from benchmarks.postgres import PostgresServer
from benchmarks.rounds import new_directory

STORES = ("sqlite", "postgresql")
DATABASE_VARIABLE = "REMIT_DATABASE_URL"
CONCURRENCY = 64


class Workers:
    """A run over several rounds.

    Args:
        scratch: a directory for roots and the server's data.
        given: the command line.
    """

    def __init__(self, scratch: Path, given: argparse.Namespace) -> None:
        self._scratch = scratch
        self._given = given
        self._runs: dict[tuple[str, int], list[Measured]] = defaultdict(list)
        self._skipped = Skipped()

    def run(self) -> None:
        """All rounds."""
        with ExitStack() as stack:
            server = None
            if "postgresql" in self._given.stores:
                server = stack.enter_context(PostgresServer(self._scratch / "postgres"))
            for index in range(self._given.rounds):
                for store in self._given.stores:
                    for workers in self._given.workers:
                        name = f"{store}, {workers} workers"
                        if name not in self._skipped:
                            tell(f"Workers, round {index + 1}: {name}")
                            with self._skipped.at(name):
                                self._turn(server if store != "sqlite" else None, store, workers)

    def _turn(self, server: PostgresServer | None, store: str, workers: int) -> None:
        directory = new_directory(self._scratch)
        with ExitStack() as stack:
            variables = {}
            if server:
                variables[DATABASE_VARIABLE] = stack.enter_context(server.database())
            upstream = stack.enter_context(rig.upstream(None))
            launch = ours.remit(upstream.url, directory, workers=workers, environment=variables)
            gateway = stack.enter_context(running(launch, directory, None))
            processes.wait_until_idle(gateway.pid)  # the first answer is that of the first worker
            measured = rig.measure(
                gateway.target,
                CONCURRENCY,
                core=None,
                seconds=self._given.seconds,
                pid=gateway.pid,
            )
            self._runs[store, workers].append(measured)
            tell(f"  {number(measured.rate)}/s, {measured.errors} errors {measured.error[:200]}")

    def tables(self) -> str:
        """What is printed."""
        lines = []
        for (store, workers), many in self._runs.items():
            one = [run.rate for run in self._runs.get((store, 1), [])]
            rates = [run.rate for run in many]
            lines.append(
                (
                    store,
                    str(workers),
                    spread(rates),
                    spread(ratios(rates, one)),
                    spread([run.p50_ms for run in many]),
                    spread([run.p99_ms for run in many]),
                    spread([run.cpu_us for run in many]),
                    str(sum(run.errors for run in many)),
                )
            )
        titles = ("Store", "Workers", "Calls/s", "To one", "p50 ms", "p99 ms", "CPU µs/call")
        return "\n\n".join([table((*titles, "Errors"), lines), *self._skipped.lines()])

    def figures(self) -> dict[str, object]:
        """All, for a file."""
        return {
            f"{store}, {workers} workers": [asdict(run) | {"rate": run.rate} for run in many]
            for (store, workers), many in self._runs.items()
        }
