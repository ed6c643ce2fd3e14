"""One log with many writers: taking turns by its lock, or a sequencer behind them."""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from benchmarks.cluster.inside import Held, Serial
from benchmarks.cluster.latency import away
from benchmarks.cluster.programs import programs
from benchmarks.cluster.writers import PENDING
from benchmarks.gateways.processes import tree_cpu_s
from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import number, spread, table
from benchmarks.postgres import PostgresServer, run_sql
from remit.ledger import LedgerClient

LOCK, SEQUENCER = "lock", "pending"
NAMES = {LOCK: "taking turns", SEQUENCER: "sequencer"}


class Case(NamedTuple):
    """What is measured: ``rate`` entries a second; as many as go at 0."""

    added_ms: int
    writers: int
    callers: int
    rate: int
    design: str

    @property
    def cells(self) -> list[str]:
        """For a table."""
        offered = number(self.rate) if self.rate else "most"
        return [
            f"{self.added_ms}",
            f"{self.writers}",
            f"{self.callers}",
            offered,
            NAMES[self.design],
        ]


@dataclass(frozen=True, slots=True)
class Cell:
    """One design with so many writers.

    Attributes:
        acknowledged, placed: entries a second that were durable, that had their place in the log.
        p50_ms, p99_ms: to the acknowledgement; ``late_…`` to the place in the log.
        left: pending when the last writer had ended.
        sizes: entries of a writer's commit, the mean.
        client_us, sequencer_us, server_us, proxy_us: processor time of an entry.
    """

    acknowledged: float
    placed: float
    p50_ms: float
    p99_ms: float
    late_p50_ms: float
    late_p99_ms: float
    left: int
    sizes: float
    client_us: float
    sequencer_us: float
    server_us: float
    proxy_us: float
    serial: Serial | None


class Log:
    """A run over several rounds.

    Args:
        given: the command line.
        server: holds the ledgers.
    """

    def __init__(self, _: Path, given: argparse.Namespace, server: PostgresServer) -> None:
        self._given = given
        self._server = server
        self._cells: dict[Case, list[Cell]] = defaultdict(list)
        self._round_trips: dict[int, float] = {}

    def run(self) -> None:
        """All rounds, the designs alternating."""
        given = self._given
        for index in range(given.rounds):
            for added in given.round_trips_ms:
                loads = [(writers, given.callers, 0) for writers in given.writers]
                loads.append((most := max(given.writers), most * given.callers, 0))
                loads.append((given.writers[len(given.writers) // 2], given.callers, given.rate))
                for writers, callers, rate in loads:
                    for design in (LOCK, SEQUENCER):
                        case = Case(added, writers, callers, rate, design)
                        with self._server.database() as url, away(url, added) as (far, proxy):
                            self._round_trips[added] = _round_trip_ms(far)
                            cell = self._measure(case, url, far, proxy)
                        self._cells[case].append(cell)
                        what = ", ".join(case.cells)
                        tell(f"Log, round {index + 1}: {what}: {number(cell.placed)}/s")

    def _measure(
        self, case: Case, url: str, far: str, proxy: int | None
    ) -> Cell:  # fmt: skip
        design, writers = case.design, case.writers
        LedgerClient(url).close()  # makes the tables
        run_sql(url, PENDING)
        callers, seconds = max(1, case.callers // writers), self._given.seconds
        lines: list[Sequence[object]] = [
            ("writers", design, far, place, callers, seconds, case.rate / writers)
            for place in range(writers)
        ]
        if design == SEQUENCER:
            lines.append(("sequencer", far))
        with programs(lines) as running:
            pids = [self._server.pid, *([proxy] if proxy else [])]
            before = [tree_cpu_s(pid) for pid in pids]
            for one in running:
                one.tell()
            figures: list[Any] = [one.figures() for one in running[:writers]]
            left = run_sql(url, "SELECT count(*) FROM pending")[0][0]
            behind: Any = None
            if design == SEQUENCER:
                running[-1].tell()
                behind = running[-1].figures()
            used = [tree_cpu_s(pid) - cpu for pid, cpu in zip(pids, before, strict=True)]
        run_sql(url, "DROP TABLE pending")  # which verification does not know
        written = sum(one["all"] for one in figures)
        _hold_against(url, written, is_verified=design == SEQUENCER)
        took = sorted(one for each in figures for one in each["took_ms"])
        begun = statistics.median(one["began"] for one in figures)
        ended = begun + seconds
        held = [Held(**one) for each in [*figures, behind or figures[0]][: writers + bool(behind)]
                for one in each["held"]]  # fmt: skip
        held = [one for one in held if begun <= one.at <= ended]
        late, placed = took, len(took) / seconds
        if behind:
            inside = [one for one in behind["late"] if begun <= one[0] <= ended]
            late, placed = sorted(one[1] for one in inside), len(inside) / seconds
        sizes = [size for each in figures for size in each["sizes"] if size]
        client = 1e6 * sum(one["cpu_s"] for one in figures) / written
        return Cell(
            len(took) / seconds, placed, *_middle_and_tail(took), *_middle_and_tail(late),
            int(left), statistics.mean(sizes), client,
            1e6 * behind["cpu_s"] / written if behind else 0.0, 1e6 * used[0] / written,
            1e6 * used[1] / written if proxy else 0.0, Serial.of(held, seconds),
        )  # fmt: skip

    def tables(self) -> str:
        """What is printed."""
        rates, costs = [], []
        for case, cells in self._cells.items():
            first = case.cells
            serial = [cell.serial for cell in cells if cell.serial]
            rates.append([
                *first,
                *(spread([getattr(cell, name) for cell in cells]) for name in (
                    "acknowledged", "placed", "p50_ms", "p99_ms", "late_p50_ms", "late_p99_ms",
                    "left")),
                spread([one.entries for one in serial]),
                spread([one.most() for one in serial]),
            ])  # fmt: skip
            costs.append([
                *first,
                *(spread([getattr(one, name) for one in serial]) for name in (
                    "wait_ms", "wait_p99_ms", "held_p50_ms", "each_us", "cpu_us")),
                spread([100 * one.busy for one in serial]),
                *(spread([getattr(cell, name) for cell in cells]) for name in (
                    "client_us", "sequencer_us", "server_us", "proxy_us")),
            ])  # fmt: skip
        head = ("RTT + ms", "Writers", "Callers", "Offered/s", "Design")
        trips = ", ".join(f"{n} + ms: {number(ms)} ms" for n, ms in self._round_trips.items())
        return "\n\n".join((
            f"Measured round trips: {trips}.",
            table((*head, "Acknowledged/s", "In the log/s", "Ack p50 ms", "Ack p99 ms",
                   "In the log p50 ms", "p99 ms", "Left pending", "Entries a batch",
                   "Bound of the log/s"), rates),
            table((*head, "Lock wait p50 ms", "p99 ms", "Held p50 ms", "Held µs/entry",
                   "Thread CPU µs/entry", "Lock busy %", "CPU µs/entry: writers",
                   "Sequencer", "PostgreSQL", "Proxy"), costs),
        ))  # fmt: skip

    def figures(self) -> dict[str, object]:
        """Every figure of every round, for a file."""
        return {
            ", ".join(case.cells): [asdict(cell) for cell in cells]
            for case, cells in self._cells.items()
        }


def _hold_against(url: str, written: int, *, is_verified: bool) -> None:
    """Make sure that all that was acknowledged is on record, once; of the prototype, in a chain
    and tree that hold."""
    with LedgerClient(url, create=False) as ledger:
        there = ledger.count()
        problems = ledger.verify(deep=False).problems if is_verified else []
    if there != written or problems:
        raise AssertionError(f"{written} acknowledged, {there} there: {problems[:3]}")


def _round_trip_ms(url: str) -> float:
    with psycopg.connect(url, autocommit=True) as connection:
        took = []
        for _ in range(40):
            begun = time.perf_counter()
            connection.execute("SELECT 1")
            took.append(time.perf_counter() - begun)
        return 1000 * statistics.median(took)


def _middle_and_tail(ordered: Sequence[float]) -> tuple[float, float]:
    if not ordered:
        return 0.0, 0.0
    return ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
