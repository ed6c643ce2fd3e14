"""What is done to the fleet: one event after the other, chosen by the seed."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.postgres import PostgresServer
from benchmarks.torture.clients import HOSTILE_CLIENTS, Clients, hostile_client
from benchmarks.torture.fleet import LEASE_S, Member
from benchmarks.torture.interposed import FAULTS
from benchmarks.torture.provider import HOSTILE

_EVENTS = ("kills", "faults", "clocks", "upstream", "clients", "database")
SCENARIOS = (*_EVENTS, "older")
"""The last is no event: an older copy of the database, at the end."""

_HOUR, _YEAR = 3600, 365 * 86_400
_CALM_S = 120.0  # a server answers again within it, on a slow machine too
_MOST_BYTES = 400 << 20

Event = Callable[[random.Random], Awaitable[str]]


@dataclass
class Events:
    """See the module.

    Args:
        members: of the fleet; the last is never killed, so that its memory can be watched.
        database: the server of PostgreSQL, where the ledger is there.
        short: for a run of few events: nothing that takes long.

    Attributes:
        done: how often what was done.
        problems: what did not recover.
    """

    members: list[Member]
    clients: Clients
    only: Sequence[str]
    database: PostgresServer | None = None
    clocks: bool = True
    short: bool = False
    done: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    async def run(self, source: random.Random, count: int) -> None:
        """Have so many events happen, one after the other, and each kind as often as others."""
        kinds = [kind for kind in _EVENTS if kind in self.only
                 and (kind != "database" or self.database is not None)]  # fmt: skip
        for number in range(count if kinds else 0):
            place = number % len(kinds)
            if place == 0:
                source.shuffle(kinds)
            event: Event = getattr(self, f"_{kinds[place]}")
            done = f"{kinds[place]}: {await event(source)}"
            self.done[done] += 1
            await self._calm(done)
            for member in self.members:
                member.measure()

    async def _calm(self, about: str) -> None:
        """Wait until every server is ready, and clients are answered."""
        begun, answered = time.monotonic(), len(self.clients.answers)
        while time.monotonic() - begun < _CALM_S:
            new = self.clients.answers[answered:]
            if any(answer.whole for answer in new) and all(
                [await asyncio.to_thread(member.is_ready) for member in self.members]
            ):
                return
            await asyncio.sleep(0.1)
        self.problems.append(f"after {about} somebody is not ready for {_CALM_S:.0f} s")

    async def _kills(self, source: random.Random) -> str:
        member = source.choice(self.members[:-1])
        await asyncio.sleep(source.uniform(0, 0.5))
        if member.workers > 1 and source.random() < 0.5:
            member.kill_worker(source.randrange(9))
            return "kill -9 of a worker"
        await asyncio.to_thread(member.kill)
        if self.clocks and "clocks" in self.only:
            member.below.shift(source.choice([0, 0, _HOUR, -_HOUR, 10 * _YEAR]))
        await asyncio.to_thread(member.start)
        return "kill -9 of a server"

    async def _faults(self, source: random.Random) -> str:
        name = source.choice(list(FAULTS))
        some = source.sample(self.members, source.randint(1, len(self.members)))
        for member in some:
            member.below.spoil(FAULTS[name], member.pids())
        await asyncio.sleep(source.uniform(0.3, 1.5))
        for member in some:
            member.below.spoil(0, member.pids())
        return name

    async def _clocks(self, source: random.Random) -> str:
        member = source.choice(self.members)
        name = source.choice(["an hour", "ten years", "back and forth", "stopped"])
        if name == "stopped" or not self.clocks:
            await asyncio.to_thread(member.pause, 1.5 * LEASE_S)
            return "stopped longer than a lease"
        jumps = {
            "an hour": [source.choice([1, -1]) * _HOUR],
            "ten years": [source.choice([1, -1]) * 10 * _YEAR],
            "back and forth": [_HOUR, -_HOUR, 10 * _YEAR, -5, 5],
        }[name]
        for jump in jumps:
            member.below.shift(jump)
            await asyncio.sleep(source.uniform(0.3, 1.5) / len(jumps))
        member.below.shift(0)
        return name

    async def _upstream(self, source: random.Random) -> str:
        kind = source.choice(HOSTILE)
        number, big = 8, 1 << 20
        if kind in ("huge", "endless") and not self.short:
            number, big = 2, source.choice([100 << 20, _MOST_BYTES])
        await self.clients.hostile_calls(source, kind, number, big)
        return kind

    async def _clients(self, source: random.Random) -> str:
        kind = source.choice(HOSTILE_CLIENTS)
        some = []
        for _ in range(20):
            order = self.clients.draw(source, f"w{source.randrange(10**12)}")
            order.words = order.max_tokens = 2000
            order.stream, order.stays = True, False
            some.append(hostile_client(kind, source.choice(self.members), order, source))
        await asyncio.gather(*some)
        return kind

    async def _database(self, source: random.Random) -> str:
        assert self.database is not None
        killed = source.random() < 0.6
        await asyncio.to_thread(self.database.kill if killed else self.database.shut_down)
        await asyncio.sleep(source.uniform(0, 1.0))
        await asyncio.to_thread(self.database.start)
        return "kill -9 of PostgreSQL" if killed else "restart of PostgreSQL"
