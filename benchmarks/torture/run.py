"""One run: fleet, clients and events, then the verdict."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.overspend import Installation, wait_until_settled
from benchmarks.postgres import PostgresServer
from benchmarks.torture.clients import Clients
from benchmarks.torture.events import Events
from benchmarks.torture.fleet import CAPS_USD, Member, new_keys
from benchmarks.torture.interposed import Interposed, compiled
from benchmarks.torture.judge import Verdict, judge
from benchmarks.torture.older import OlderCopy
from benchmarks.torture.provider import provider

_MANY = 60  # events: then some may be large


class Torture:
    """See the module.

    Args:
        directory: for everything.
        store: ``sqlite`` or ``postgresql``.
        count: how many events there are: the work is the same on a machine of any speed.
        only: which scenarios.
        seed: chooses what happens and what clients ask.
        clients: how many call at once.

    Attributes:
        done: how often what was done.
        notes: what this machine could not do.
    """

    def __init__(
        self, directory: Path, store: str, count: int, only: Sequence[str], seed: int,
        clients: int,
    ) -> None:  # fmt: skip
        self._directory = directory
        self._store = store
        self._count = count
        self._only = list(only)
        self._seed = seed
        self._clients = clients
        self.done: Counter[str] = Counter()
        self.notes = ""

    def run(self, stack: ExitStack) -> Verdict:
        """All of it."""
        scratch, short = self._directory, self._count < _MANY
        database, address = None, ""
        if self._store == "postgresql":
            database = stack.enter_context(PostgresServer(scratch / "postgres"))
            address = stack.enter_context(database.database())
        library = compiled(scratch)
        self.notes = "faults and clocks by a preloaded library" if library else (
            "no C compiler: limits of the system stand for disk faults; clocks are not shifted"
        )  # fmt: skip
        upstream = stack.enter_context(provider(scratch))
        installation = Installation(scratch / "root", upstream.url, CAPS_USD[0], address)
        keys = new_keys(installation.address)
        workers = (2, 1) if short else (2, 1, 1)
        members = [Member(installation, Interposed(scratch, library), n) for n in workers]
        with ExitStack() as fleet:  # all are stopped, though one cannot be
            for member in members:
                fleet.callback(member.stop)
                member.start()
            older = OlderCopy(installation, scratch, database)
            clients = Clients(members, keys, self._seed, self._clients)
            events = Events(members, clients, self._only, database, library is not None, short)
            asyncio.run(self._attack(clients, events, older))
            settled = wait_until_settled(installation.address)
        self.done = events.done
        self.notes += f"; {settled:.1f} s until nothing was held"
        undisturbed = not {"kills", "faults", "database"} & set(self._only)
        verdict = judge(installation, members, clients, upstream, undisturbed=undisturbed)
        verdict.hold("servers recover", not events.problems, events.problems[:3] or "")
        if "older" in self._only:
            older.put_back(verdict)
        return verdict

    async def _attack(self, clients: Clients, events: Events, older: OlderCopy) -> None:
        """Events, beside the clients."""
        running = asyncio.create_task(clients.run())
        source, first = random.Random(self._seed), self._count // 2
        await events.run(source, first)
        await asyncio.to_thread(older.take)
        await events.run(source, self._count - first)
        clients.over.set()
        await running
