"""Each role of a cluster is killed in turn while clients call: what was promised is held."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.support.upstream import upstream

from benchmarks.cluster.checking import checked, settled
from benchmarks.cluster.fleet import TOP
from benchmarks.cluster.retrying import Clients
from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import number, table
from benchmarks.overspend import Installation, Server
from benchmarks.postgres import PostgresServer
from benchmarks.torture.fleet import Key, new_keys
from benchmarks.torture.judge import Verdict
from remit.gateway.auth import KeyStore
from remit.ledger import LedgerClient

GATEWAYS, WORKERS = 3, 2
CALLERS, ORDERS_PER_S = 16, 2.0
LEASE_S = 4.0
_SETTINGS = {
    "REMIT_GATEWAY__LEASE_MARGIN_MS": "1000",
    "REMIT_GATEWAY__TIMEOUT_MS": "5000",
    "REMIT_GATEWAY__RECOVERY_TIMEOUT_MS": "500",
    "REMIT_LEASES__LASTS_S": f"{LEASE_S:g}",
    "REMIT_LEDGER__LOCK_TIMEOUT_S": f"{LEASE_S:g}",
    "REMIT_WORKER__ORDERS__RETRY_BASE_S": "0.2",
    "REMIT_WORKER__ORDERS__RETRY_MAX_S": "1",
}
_CALM_S = 120.0


@dataclass
class Place:
    """Where a gateway or a worker runs, again after each kill.

    Attributes:
        installation: a root of its own, as on a machine of its own.
    """

    installation: Installation
    gateway: bool
    server: Server | None = None

    def start(self) -> None:
        """Start it; it answers, or takes orders, when this returns."""
        environment = {**_SETTINGS, "PYTHONPATH": str(TOP)}
        if self.gateway:
            self.server = self.installation.serve(environment=environment)
        else:
            app = ("--app", "benchmarks.cluster.clerk:agents")
            self.server = self.installation.work(*app, environment=environment)

    def kill(self) -> None:
        """``kill -9``, and a new one."""
        assert self.server is not None
        self.server.kill()
        self.start()

    def pause(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT so much later."""
        assert self.server is not None
        self.server.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.server.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """SIGTERM, and wait."""
        if self.server is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.server.process.pid, signal.SIGCONT)
            self.server.end()


class Kills:
    """A run.

    Args:
        scratch: a directory for the roots.
        given: the command line.
        server: holds the ledger, and is killed too.
    """

    def __init__(self, scratch: Path, given: argparse.Namespace, server: PostgresServer) -> None:
        self._scratch = scratch
        self._times = given.times
        self._source = random.Random(given.seed)
        self._seed = given.seed
        self._server = server
        self._took: dict[str, list[float]] = defaultdict(list)
        self._settled_s = 0.0
        self._verdict = Verdict()

    @property
    def problems(self) -> list[str]:
        """What was lost."""
        return [f"{promise}: {seen}" for promise, held, seen in self._verdict.rows if not held]

    def run(self) -> None:
        """All kills, then the verdict."""
        with ExitStack() as stack:
            provider = stack.enter_context(upstream(self._scratch / "calls.jsonl"))
            url = stack.enter_context(self._server.database())
            first = Installation(self._scratch / "root0", provider.url, 1.0, url)
            keys = new_keys(url)
            with LedgerClient(url, create=False) as ledger, KeyStore(ledger) as store:
                operator = store.create("operator", role="operator", models=()).key
            copies = [first.copied(self._scratch / f"root{number}")
                      for number in range(1, GATEWAYS + WORKERS)]  # fmt: skip
            roots = [first, *copies]
            places = [Place(root, number < GATEWAYS) for number, root in enumerate(roots)]
            with ExitStack() as running:
                for place in places:
                    running.callback(place.end)
                    place.start()
                clients = asyncio.run(self._attack(places, keys, operator))
                self._settled_s = settled(url)
            self._verdict = checked(roots, clients, keys, provider)
        tell(f"Kills: {self.problems or 'all holds'}")

    async def _attack(self, places: list[Place], keys: list[Key], operator: str) -> Clients:
        gateways = [place for place in places if place.gateway]
        workers = [place for place in places if not place.gateway]
        clients = Clients(
            lambda: [place.server.url for place in gateways if place.server],
            [key.key for key in keys], operator, self._seed,
        )  # fmt: skip
        running = asyncio.create_task(clients.run(CALLERS, ORDERS_PER_S))
        try:
            for turn in range(self._times):
                await self._event(
                    clients, "gateway, kill -9", self._in_thread(gateways[turn % GATEWAYS].kill)
                )
                await self._event(
                    clients, "worker, kill -9", self._in_thread(workers[turn % WORKERS].kill)
                )
                how = "kill -9" if turn % 2 else "stopped at once"
                await self._event(clients, f"PostgreSQL, {how}", self._database(turn % 2 == 1))
                paused = (gateways if turn % 2 else workers)[turn // 2 % WORKERS]
                seconds = self._source.uniform(0.2, 1.6 * LEASE_S)
                kind = "gateway" if paused.gateway else "worker"
                stand = self._in_thread(partial(paused.pause, seconds))
                await self._event(clients, f"{kind}, SIGSTOP", stand)
                tell(f"Kills: {turn + 1} of each, {len(clients.calls)} calls, "
                     f"{len(clients.orders)} orders")  # fmt: skip
        finally:
            clients.over.set()
            await running
        return clients

    async def _event(self, clients: Clients, what: str, do: Callable[[], Awaitable[None]]) -> None:
        """At a moment that nobody chose; then wait until it is done, and until a call that was
        begun afterwards was answered."""
        await asyncio.sleep(self._source.uniform(0.1, 0.8))
        began, known = time.monotonic(), len(clients.calls)
        doing = asyncio.ensure_future(do())
        answered = 0.0
        while time.monotonic() - began < _CALM_S and not (doing.done() and answered):
            await asyncio.sleep(0.01)
            ends = [call.ended for call in clients.calls[known:]
                    if call.exchange_id and call.begun > began]  # fmt: skip
            answered = answered or (ends[0] - began if ends else 0.0)
        await doing
        if not answered:
            clients.problems.append(f"{_CALM_S:.0f} s after {what} nobody was answered")
        self._took[what].append(answered)

    def _in_thread(self, work: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        return lambda: asyncio.to_thread(work)

    def _database(self, killed: bool) -> Callable[[], Awaitable[None]]:
        def restart() -> None:
            (self._server.kill if killed else self._server.crash)()
            self._server.start()

        return self._in_thread(restart)

    def tables(self) -> str:
        """What is printed."""
        lines = [
            (what, f"{len(took)}", number(statistics.median(took)), number(max(took)))
            for what, took in sorted(self._took.items())
        ]
        titles = ("What", "Times", "Until a call begun then was answered: median s", "Most s")
        promises = [
            (promise, "held" if held else "**lost**", seen)
            for promise, held, seen in self._verdict.rows
        ]
        return (
            f"{table(titles, lines)}\n\n{number(self._settled_s)} s until nothing was held.\n\n"
            f"{table(('Promise', 'Was', 'Seen'), promises)}"
        )

    def figures(self) -> dict[str, object]:
        """All, for a file."""
        return {"answered_s": self._took, "settled_s": self._settled_s,
                "promises": self._verdict.rows}  # fmt: skip
