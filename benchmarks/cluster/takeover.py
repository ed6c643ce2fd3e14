"""Who holds the lock of a log, or a lease, is gone: how long until another goes on."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.appends import entry
from benchmarks.cluster.programs import Program, programs
from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import number, table
from benchmarks.postgres import PostgresServer, run_sql
from remit.gateway.leases import LeaseManager
from remit.kernel.settings import default_settings
from remit.ledger import LedgerClient

AIM_S = 5.0
SHORT_S = 4.0
NAME = "session:SES-BENCH001"
_WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
_MOST_WAIT_S = 90.0


class Takeover:
    """A run.

    Args:
        given: the command line.
        server: holds the ledger.
    """

    def __init__(self, _: Path, given: argparse.Namespace, server: PostgresServer) -> None:
        self._kills = given.kills
        self._server = server
        self._took: dict[tuple[str, str], list[float]] = {}

    def run(self) -> None:
        """Each kind, several times where it is quick."""
        default = default_settings()
        lock_s, lease_s = default.ledger.lock_timeout_s, default.leases.lasts_s
        with self._server.database() as url:
            LedgerClient(url).close()
            for seconds, stands, times in (
                (lock_s, False, self._kills), (lock_s, True, 1),
            ):  # fmt: skip
                done = "stands still, or its machine is gone" if stands else "killed"
                self._note(
                    f"batch: its writer {done}", f"lock_timeout_s = {seconds:g}", times,
                    partial(_batch, url, seconds, stands),
                )  # fmt: skip
            for where, seconds, times in (
                ("here", lease_s, self._kills), ("elsewhere", lease_s, 1),
                ("elsewhere", SHORT_S, 1),
            ):  # fmt: skip
                seen = "on this machine" if where == "here" else "on another machine"
                self._note(
                    f"lease: its holder killed {seen}", f"lasts_s = {seconds:g}", times,
                    partial(_lease, url, where, seconds),
                )  # fmt: skip
            with LedgerClient(url, create=False) as ledger:
                assert ledger.verify(deep=False).verified

    def _note(self, what: str, setting: str, times: int, measure: Callable[[], float]) -> None:
        took = [measure() for _ in range(times)]
        self._took[what, setting] = took
        tell(f"Takeover: {what}, {setting}: {number(max(took))} s")

    def tables(self) -> str:
        """What is printed."""
        lines = [
            (
                what, setting, f"{len(took)}", number(statistics.median(took)), number(max(took)),
                "met" if max(took) <= AIM_S else "**missed**",
            )
            for (what, setting), took in self._took.items()
        ]  # fmt: skip
        titles = ("What", "Setting", "Times", "Median s", "Most s", f"Aim <= {AIM_S:g} s")
        return table(titles, lines)

    def figures(self) -> dict[str, object]:
        """Every time, for a file."""
        return {f"{what}, {setting}": took for (what, setting), took in self._took.items()}


def _batch(url: str, timeout_s: float, stands: bool) -> float:
    """Seconds from the end of the holder, in the middle of its batch, to another's commit."""
    settings = default_settings().ledger.model_copy(update={"lock_timeout_s": _MOST_WAIT_S})
    committed: list[float] = []
    with (
        LedgerClient(url, settings=settings, create=False) as ledger,
        programs([("holder", "batch", url, timeout_s)]) as (holder,),
    ):

        def write() -> None:
            ledger.write(entry(time.time_ns() % 1_000_000_000))
            committed.append(time.monotonic())

        other = threading.Thread(target=write)
        other.start()
        while run_sql(url, _WAITING)[0][0] == 0:
            time.sleep(0.01)
        gone = _end(holder, stands)
        other.join(_MOST_WAIT_S)
        return committed[0] - gone


def _lease(url: str, where: str, lasts_s: float) -> float:
    """Seconds from the end of the holder, just after it took the lease, to another's having it."""
    settings = default_settings().leases.model_copy(update={"lasts_s": lasts_s})

    async def take(ledger: LedgerClient) -> float:
        async with LeaseManager(ledger, settings).hold(NAME, wait_s=_MOST_WAIT_S):
            return time.monotonic()

    with (
        LedgerClient(url, create=False) as ledger,
        programs([("holder", where, url, lasts_s)]) as (holder,),
    ):
        gone = _end(holder, stands=False)
        return asyncio.run(take(ledger)) - gone


def _end(holder: Program, stands: bool) -> float:
    """Kill it, or have it stand still; when that was."""
    now = time.monotonic()
    if stands:
        os.kill(holder.process.pid, signal.SIGSTOP)
    else:
        holder.kill()
    return now
