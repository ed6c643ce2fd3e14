"""``python -m benchmarks.gateways``: see the package."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from benchmarks.gateways import barriers, environments, peers, processes, rig
from benchmarks.gateways.environments import UnavailableError
from benchmarks.gateways.load import Measured
from benchmarks.gateways.options import numbers, parser_of, peer_names, run_of
from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import number, ratios, spread, table
from benchmarks.gateways.wire import CHAT_PATH
from benchmarks.rounds import new_directory

BARRIERS_AT = 16
DIRECT, BARRIERS = "direct", "two barriers"


@dataclass
class Turns:
    """What all rounds measured of one peer.

    Attributes:
        runs: by concurrency, one of each round.
        start_s: to the first good answer.
        pss_mb, rss_mb: after the last run of a turn; the first counts shared pages once.
    """

    runs: dict[int, list[Measured]] = field(default_factory=lambda: defaultdict(list))
    start_s: list[float] = field(default_factory=list)
    pss_mb: list[float] = field(default_factory=list)
    rss_mb: list[float] = field(default_factory=list)


class Bench:
    """A run over several rounds.

    Args:
        scratch: a directory for roots, logs and configurations.
        given: the command line.
    """

    def __init__(self, scratch: Path, given: argparse.Namespace) -> None:
        self._scratch = scratch
        self._given = given
        self._ours, self._others = processes.cores()
        self.turns: dict[str, Turns] = defaultdict(Turns)
        self.barriers: list[float] = []
        self.skipped: dict[str, str] = {}

    def run(self) -> None:
        """All rounds."""
        for name in self._given.peers:  # made before anything is measured
            if name in environments.PYTHON_PACKAGES or name in environments.NODE_PACKAGES:
                with self._skipping(name):
                    environments.prepare(name)
        for index in range(self._given.rounds):
            for name in (DIRECT, *self._given.peers):
                if name not in self.skipped:
                    tell(f"Round {index + 1}: {name}")
                    with self._skipping(name):
                        self._turn(name)
            with self._skipping(BARRIERS):
                self._barriers()

    @contextmanager
    def _skipping(self, name: str) -> Iterator[None]:
        try:
            yield
        except UnavailableError as error:
            self.skipped[name] = str(error)
            tell(f"{name} is left out from here on: {error}")

    def _turn(self, name: str) -> None:
        directory = new_directory(self._scratch)
        nginx = directory if self._given.upstream == "nginx" else None
        with rig.upstream(self._others, nginx=nginx) as upstream:
            if name == DIRECT:
                for concurrency in self._given.concurrency:
                    self._measure(name, concurrency, upstream, None)
                return
            launch = peers.PEERS[name](upstream.url, directory)
            with peers.running(launch, directory, self._ours) as gateway:
                self.turns[name].start_s.append(gateway.start_s)
                for concurrency in self._given.concurrency:
                    self._measure(name, concurrency, upstream, gateway)
                self.turns[name].pss_mb.append(processes.tree_pss_mb(gateway.pid))
                self.turns[name].rss_mb.append(processes.tree_rss_mb(gateway.pid))

    def _measure(
        self,
        name: str,
        concurrency: int,
        upstream: rig.FakeUpstream,
        gateway: peers.Gateway | None,
    ) -> None:
        before = upstream.requests() if upstream.counts else 0
        target = gateway.target if gateway else upstream.target
        measured = rig.measure(
            replace(target, payload=self._given.payload),
            concurrency,
            core=self._others,
            seconds=self._given.seconds,
            pid=gateway.pid if gateway else None,
        )
        if upstream.counts and (came := upstream.requests() - before) < measured.requests:
            measured.errors += measured.requests - came
            measured.error = f"only {came} of {measured.requests} reached the upstream"
        self.turns[name].runs[concurrency].append(measured)
        tell(f"  {concurrency} at once: {number(measured.rate)}/s, {measured.errors} errors")

    def _barriers(self) -> None:
        """The floor of a durable gateway, in the gateway's place."""
        directory = new_directory(self._scratch)
        python = environments.python_environment("floor") / "python"
        with rig.upstream(self._others) as upstream:
            command: list[str | Path] = [python, barriers.__file__, f"{upstream.url}{CHAT_PATH}"]
            command += [directory / "log", str(BARRIERS_AT), str(self._given.seconds)]
            process = processes.spawn(command, core=self._ours)
            output, _ = process.communicate()
            if process.returncode:
                raise UnavailableError(f"It ended with {process.returncode}.")
            self.barriers.append(float(output))

    def figures(self) -> dict[str, object]:
        """Every figure of every round, for a file."""
        return {
            "peers": {
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
                for name, turns in self.turns.items()
            },
            "two_barriers_at_16": self.barriers,
            "skipped": self.skipped,
        }

    def tables(self) -> str:
        """What is printed."""
        parts = [self._rates(), self._memories()]
        if lines := self._ratios():
            parts.append(table(("Ratio", "Median (range)"), lines))
        parts += [
            f"{name} was left out when this happened: {reason}"
            for name, reason in self.skipped.items()
        ]
        return "\n\n".join(parts)

    def _rates(self) -> str:
        titles = ("Peer", "At once", "Requests/s", "p50 ms", "p99 ms", "Added p50", "Added p99")
        lines = []
        for concurrency in self._given.concurrency:
            bare = self.turns[DIRECT].runs[concurrency]
            for name, turns in self.turns.items():
                runs = turns.runs[concurrency]
                pairs = list(zip(runs, bare, strict=False))
                lines.append(
                    (
                        name,
                        str(concurrency),
                        spread([run.rate for run in runs]),
                        spread([run.p50_ms for run in runs]),
                        spread([run.p99_ms for run in runs]),
                        "" if name == DIRECT else spread([a.p50_ms - b.p50_ms for a, b in pairs]),
                        "" if name == DIRECT else spread([a.p99_ms - b.p99_ms for a, b in pairs]),
                        "" if name == DIRECT else spread([run.cpu_us for run in runs]),
                        "" if name == DIRECT else spread([100 * run.foreign for run in runs]),
                        str(sum(run.errors for run in runs)),
                    )
                )
        return table((*titles, "CPU µs/request", "Foreign %", "Errors"), lines)

    def _memories(self) -> str:
        lines = [
            (
                name,
                spread(turns.start_s),
                spread(turns.rss_mb),
                spread(turns.pss_mb),
                environments.versions(name),
            )
            for name, turns in self.turns.items()
            if name != DIRECT
        ]
        return table(("Peer", "Start s", "RSS MB", "PSS MB", "Packages"), lines)

    def _ratios(self) -> list[tuple[str, str]]:
        lines = []
        if self.barriers:
            name = f"bare loop with two barriers at {BARRIERS_AT}, requests/s"
            lines.append((name, spread(self.barriers)))
        ours = self.turns.get("remit")
        if ours is None:
            return lines
        for other in ("floor", "litellm", "portkey", "mlflow"):
            theirs = self.turns.get(other)
            if theirs is None:
                continue
            for what in ("rate", "cpu_us"):
                for concurrency in self._given.concurrency:
                    of = ratios(
                        [getattr(run, what) for run in ours.runs[concurrency]],
                        [getattr(run, what) for run in theirs.runs[concurrency]],
                    )
                    title = "requests/s" if what == "rate" else "CPU per request"
                    lines.append((f"remit / {other}, {title}, {concurrency} at once", spread(of)))
        if self.barriers and BARRIERS_AT in self._given.concurrency:
            rates = [run.rate for run in ours.runs[BARRIERS_AT]]
            of = ratios(rates, self.barriers)
            lines.append((f"remit / two barriers, requests/s, {BARRIERS_AT} at once", spread(of)))
        return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print, and write the file that was asked for."""
    parser = parser_of("benchmarks.gateways")
    parser.add_argument("--peers", type=peer_names, default=list(peers.PEERS))
    parser.add_argument("--concurrency", type=numbers, default=[1, 16, 64])
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--payload", type=int, default=1024, help="bytes of a prompt")
    parser.add_argument("--upstream", choices=("own", "nginx"), default="own")
    given = parser.parse_args(arguments)
    with run_of(given) as (scratch, document):
        bench = Bench(scratch, given)
        bench.run()
        print(f"\n{bench.tables()}")
        document.update(bench.figures())


if __name__ == "__main__":
    main()
