"""Calls answered whole: rates, times and processor time of each peer, at several concurrencies."""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from benchmarks.gateways import environments, peers, processes, rig
from benchmarks.gateways.environments import Skipped
from benchmarks.gateways.launch import Gateway, running
from benchmarks.gateways.load import Measured
from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import number, ratios, spread, table
from benchmarks.rounds import new_directory

DIRECT = "direct"


@dataclass
class Turns:
    """What all rounds measured of one peer.

    Attributes:
        runs: by concurrency, one of each round.
        start_s: to the first connection that it takes.
        pss_mb, rss_mb: after the last run of a turn; the first counts shared pages once.
    """

    runs: dict[int, list[Measured]] = field(default_factory=lambda: defaultdict(list))
    start_s: list[float] = field(default_factory=list)
    pss_mb: list[float] = field(default_factory=list)
    rss_mb: list[float] = field(default_factory=list)


class Calls:
    """A run over several rounds.

    Args:
        scratch: a directory for roots, logs and configurations.
        given: the command line.
    """

    def __init__(self, scratch: Path, given: argparse.Namespace) -> None:
        self._scratch = scratch
        self._given = given
        self._ours, self._others = processes.cores()
        self._turns: dict[str, Turns] = defaultdict(Turns)
        self._skipped = Skipped()

    def run(self) -> None:
        """All rounds."""
        for index in range(self._given.rounds):
            for name in (DIRECT, *self._given.peers):
                if name not in self._skipped:
                    tell(f"Calls, round {index + 1}: {name}")
                    with self._skipped.at(name):
                        self._turn(name)

    def _turn(self, name: str) -> None:
        directory = new_directory(self._scratch)
        with rig.upstream(self._others) as upstream:
            if name == DIRECT:
                for concurrency in self._given.concurrency:
                    self._measure(name, concurrency, upstream, None)
                return
            launch = peers.PEERS[name](upstream.url, directory)
            with running(launch, directory, self._ours) as gateway:
                turns = self._turns[name]
                turns.start_s.append(gateway.start_s)
                for concurrency in self._given.concurrency:
                    self._measure(name, concurrency, upstream, gateway)
                turns.pss_mb.append(processes.tree_pss_mb(gateway.pid))
                turns.rss_mb.append(processes.tree_rss_mb(gateway.pid))

    def _measure(
        self, name: str, concurrency: int, upstream: rig.FakeUpstream, gateway: Gateway | None
    ) -> None:
        before = upstream.requests()
        target = gateway.target if gateway else upstream.target
        measured = rig.measure(
            replace(target, payload=self._given.payload),
            concurrency,
            core=self._others,
            seconds=self._given.seconds,
            pid=gateway.pid if gateway else None,
        )
        if (came := upstream.requests() - before) < measured.requests:
            measured.errors += measured.requests - came
            measured.error = f"only {came} of {measured.requests} reached the upstream"
        self._turns[name].runs[concurrency].append(measured)
        tell(
            f"  {concurrency} at once: {number(measured.rate)}/s, "
            f"{number(measured.cpu_us)} µs, {measured.errors} errors {measured.error[:200]}"
        )

    def figures(self) -> dict[str, object]:
        """Every figure of every round, for a file."""
        return {
            name: {
                "packages": environments.versions(name),
                "start_s": turns.start_s,
                "pss_mb": turns.pss_mb,
                "rss_mb": turns.rss_mb,
                "runs": {
                    concurrency: [
                        asdict(run) | {"rate": run.rate, "cpu_us": run.cpu_us} for run in runs
                    ]
                    for concurrency, runs in turns.runs.items()
                },
            }
            for name, turns in self._turns.items()
        }

    def tables(self) -> str:
        """What is printed."""
        parts = [self._rates(), self._processes()]
        if lines := self._ratios():
            titles = [
                f"{what} at {n}" for what in ("Calls/s", "CPU") for n in self._given.concurrency
            ]
            parts.append(table(("Ratio", *titles), lines))
        return "\n\n".join([*parts, *self._skipped.lines()])

    def _rates(self) -> str:
        titles = ("Peer", "At once", "Calls/s", "p50 ms", "p99 ms", "Added p50", "Added p99")
        lines = []
        for concurrency in self._given.concurrency:
            bare = self._turns[DIRECT].runs[concurrency]
            for name, turns in self._turns.items():
                runs = turns.runs[concurrency]
                pairs = list(zip(runs, bare, strict=False))
                line = [name, str(concurrency), spread([run.rate for run in runs])]
                line += [spread([run.p50_ms for run in runs]), spread([run.p99_ms for run in runs])]
                if name == DIRECT:
                    line += ["", "", "", ""]
                else:
                    line += [
                        spread([ours.p50_ms - direct.p50_ms for ours, direct in pairs]),
                        spread([ours.p99_ms - direct.p99_ms for ours, direct in pairs]),
                        spread([run.cpu_us for run in runs]),
                        spread([100 * run.foreign for run in runs]),
                    ]
                lines.append([*line, str(sum(run.errors for run in runs))])
        return table((*titles, "CPU µs/call", "Foreign %", "Errors"), lines)

    def _processes(self) -> str:
        lines = [
            (
                name,
                spread(turns.start_s),
                spread(turns.rss_mb),
                spread(turns.pss_mb),
                environments.versions(name),
            )
            for name, turns in self._turns.items()
            if name != DIRECT
        ]
        return table(("Peer", "Start s", "RSS MB", "PSS MB", "Packages"), lines)

    def _ratios(self) -> list[tuple[str, ...]]:
        pairs = [("remit", other) for other in (*peers.FLOORS, *peers.OTHERS)]
        pairs += [(ours, "remit") for ours in peers.OURS if ours != "remit"]
        return [
            (
                f"{one} / {other}",
                *(
                    self._ratio(one, other, concurrency, what)
                    for what in ("rate", "cpu_us")
                    for concurrency in self._given.concurrency
                ),
            )
            for one, other in pairs
            if {one, other} <= self._turns.keys()
        ]

    def _ratio(self, ours: str, other: str, concurrency: int, what: str) -> str:
        """Round by round; a turn that failed leaves the two lists unequal at their end."""
        return spread(
            ratios(
                [getattr(run, what) for run in self._turns[ours].runs[concurrency]],
                [getattr(run, what) for run in self._turns[other].runs[concurrency]],
            )
        )
