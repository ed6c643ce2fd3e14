"""Gives the product's modules virtual time, seeded chance, and processes that are simulated."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest import mock

from remit.agents.queue import submission as order_ids, worker_leases
from remit.gateway import inflight
from remit.gateway.budget import wait_queue as waiting
from remit.gateway.leases import manager, process_identity, renewal
from remit.kernel import loops
from remit.ledger import clock, store, store_outage
from remit.ledger.postgres import store as postgres_store
from remit.ledger.sqlite import transaction as sqlite_batch
from tests.simulation.database import batch_of
from tests.simulation.world import Process, World

__all__ = ["in_world"]


def in_world(world: World) -> ExitStack:
    """Until it is closed, the product runs in this world."""

    def current() -> Process:
        assert world.current is not None
        return world.current

    class Time:
        CLOCK_BOOTTIME = 7

        @staticmethod
        def monotonic() -> float:
            return current().monotonic()

        @staticmethod
        def clock_gettime(_: int) -> float:
            return current().boottime()

        @staticmethod
        def time_ns() -> int:
            return current().wall_ns()

        @staticmethod
        def sleep(for_s: float) -> None:
            world.sleep(for_s)

    class Thread:
        def __init__(self, target: Any, name: str, daemon: bool) -> None:
            self.start = lambda: current().spawn(target)

    class Free:
        """A lock that nobody else can want: threads give way only where they wait."""

        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    def here() -> tuple[str, str]:
        return f"boot-{current().machine}", "ns"

    def find(pid: int) -> Process | None:
        machine = current().machine
        return next(
            (one for one in world.processes
             if (one.machine, one.pid, one.dead) == (machine, pid, False)), None,
        )  # fmt: skip

    def start_of(pid: int) -> str | None:
        found = find(pid)
        return None if found is None else found.started

    def this(pid: int) -> tuple[str, str, str, int, str]:
        return f"host-{current().machine}", *here(), pid, current().started

    def token_hex(size: int) -> str:
        return world.random.randbytes(size).hex()

    chance = SimpleNamespace(token_hex=token_hex, token_bytes=world.random.randbytes)
    stack = ExitStack()
    for where, name, new in (
        *((one, "time", Time) for one in (
            loops, manager, renewal, waiting, store_outage, store, postgres_store, sqlite_batch,
            clock,
        )),
        (renewal, "threading", SimpleNamespace(Thread=Thread, Lock=Free)),
        (postgres_store, "PostgresBatch", batch_of),
        (postgres_store, "secrets", chance),
        *((one, "secrets", chance) for one in (process_identity, order_ids, worker_leases)),
        *((one, "random", world.random) for one in (inflight, waiting)),
        (process_identity, "_here", here), (process_identity, "_start_of", start_of),
        (process_identity, "_this_process", this),
        (process_identity, "_exists", lambda pid: find(pid) is not None),
        (process_identity, "os", SimpleNamespace(getpid=lambda: current().pid)),
        (clock.WALL_WATCH, "went_back", lambda before, now: None),
        (renewal, "_of_this_process", _Renewals(current)),
    ):  # fmt: skip
        stack.enter_context(mock.patch.object(where, name, new))
    asyncio._set_running_loop(None)
    return stack


class _Renewals:
    """The renewals that the current process has: each process has a table of its own."""

    def __init__(self, current: Any) -> None:
        self._current = current
        self._tables: dict[tuple[int, str], Any] = {}

    def __setitem__(self, name: str, made: Any) -> None:
        self._tables[self._current().pid, name] = made

    def get(self, name: str) -> Any:
        return self._tables.get((self._current().pid, name))
