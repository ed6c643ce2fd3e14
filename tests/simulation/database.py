"""The one database, a connection that can break, and a process's ledger over it.

Behind it is a real SQLite ledger. A process reaches it by :class:`PostgresStore` itself, with its
retries and its question whether a commit that was not answered took place; only the connection is
simulated: it takes time, breaks, and loses answers.
"""

from __future__ import annotations

import re
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import greenlet
import psycopg
from typing_extensions import override

from remit.ledger import LedgerClosedError, LedgerConnectionError
from remit.ledger.client_queries import LedgerQueries
from remit.ledger.client_writes import LedgerWrites
from remit.ledger.group_commit import _resolve, _Write
from remit.ledger.postgres.schema import begin
from remit.ledger.postgres.store import FROZEN_S, PostgresStore
from remit.ledger.sqlite.store import SqliteStore
from remit.ledger.sqlite.transaction import RECORD_SQL, SqliteBatch
from remit.ledger.store import Store, Unit
from remit.ledger.store_outage import Outage
from tests.simulation.world import Process, World

__all__ = ["Database", "Faults", "SimulatedLedger"]

_MARK = re.compile(r"\$(\d+)")
_SKIP = " FOR UPDATE SKIP LOCKED"  # the one lock of writers is enough here
_EPOCH_MS = 1_800_000_000_000


@dataclass(slots=True)
class Faults:
    """How often what goes wrong, and how long things take, in seconds."""

    latency_s: float = 0.002
    batch_s: float = 0.003
    unit_s: float = 0.0001
    lose_request: float = 0.0
    lose_answer: float = 0.0
    late_commit: float = 0.0
    stop: float = 0.0
    lock_timeout_s: float = 30.0


class _Clock:
    def __init__(self, world: World) -> None:
        self._world = world

    def now_ms(self) -> int:
        return _EPOCH_MS + int(self._world.now * 1000)

    def settle(self, connection: sqlite3.Connection, *, write: bool) -> None:
        pass


class Database:
    """One writer at a time; readers see what is committed."""

    def __init__(self, world: World, path: Path, faults: Faults) -> None:
        self.world, self.faults = world, faults
        self.store = SqliteStore(
            path, content_keys=frozenset(), compress_above=1 << 30, lock_timeout_s=5, create=True
        )
        self.connection = self.store._writer
        for connection in (self.connection, self.store._reader):
            connection.execute("PRAGMA synchronous=OFF")
        self.clock = _Clock(world)
        self.holder: _Session | None = None
        self.waiting: deque[tuple[_Session, Callable[[], None]]] = deque()
        self.on_commit: Callable[[], None] = lambda: None
        self.on_stop: Callable[[Process], None] = lambda process: None
        self.commits = 0
        self.waits_s: list[float] = []

    def take(self, session: _Session, granted: Callable[[], None]) -> None:
        """Give a session the writers' lock when its turn has come."""
        if self.holder is None:
            self._grant(session, granted)
        else:
            self.waiting.append((session, granted))

    def _grant(self, session: _Session, granted: Callable[[], None]) -> None:
        self.holder = session
        self.connection.execute("BEGIN IMMEDIATE")
        # idle_in_transaction_session_timeout: a client that is paused does not stop all others.
        idle_s = min(self.faults.lock_timeout_s, FROZEN_S)
        self.world.after(idle_s, lambda: self._expire(session, session.number))
        granted()

    def _expire(self, session: _Session, number: int) -> None:
        if self.holder is session and session.number == number:
            session.closed = True
            self.end(session, commit=False)

    def end(self, session: _Session, *, commit: bool) -> None:
        """Commit or roll back, and let the next one in."""
        assert self.holder is session
        self.connection.execute("COMMIT" if commit else "ROLLBACK")
        session.number += 1
        self.holder = None
        if commit:
            self.commits += 1
            self.on_commit()
        while self.waiting and self.holder is None:
            following, granted = self.waiting.popleft()
            if not following.closed:
                self._grant(following, granted)


class _Session:
    """A connection, as the server knows it."""

    def __init__(self) -> None:
        self.closed = False  # by the server, or the client is gone
        self.number = 0  # of its transaction
        self.commits_late = False


class _Writer:
    """Stands for :class:`remit.ledger.postgres.connection.Writer`."""

    def __init__(self, database: Database, process: Process) -> None:
        self._database, self._process = database, process
        self._session: _Session | None = None

    def connect(self) -> bool:
        if self._session is not None:
            return False
        self._travel()
        self._session = _Session()
        return True

    def drop(self) -> None:
        session, self._session = self._session, None
        if session is not None and not session.closed and not session.commits_late:
            session.closed = True
            if self._database.holder is session:
                self._database.end(session, commit=False)

    def _travel(self) -> None:
        """One way of a message; what was cut off shows as a timeout."""
        world, faults = self._process.world, self._database.faults
        self._step()
        world.sleep(faults.latency_s * world.random.uniform(0.5, 2.0))
        if world.now < self._process.cut_off_until or world.random.random() < faults.lose_request:
            world.sleep(min(1.0, max(0.1, self._process.cut_off_until - world.now)))
            raise OSError("the connection was lost")

    def _step(self) -> None:
        """A place between two messages, where a process may be stopped or killed."""
        world = self._process.world
        if world.random.random() < self._database.faults.stop:
            world.after(0, lambda: self._database.on_stop(self._process))

    def put(self, sql: str, *rows: Sequence[Any]) -> None:
        if "pg_advisory_xact_lock" in sql:
            self._lock()
        elif not sql.startswith("BEGIN"):
            self._open()
            self._database.connection.executemany(_MARK.sub(r"?\1", sql), rows)

    def _open(self) -> _Session:
        session = self._session
        if session is None or session.closed:
            raise psycopg.InterfaceError("the connection is closed")
        return session

    def _lock(self) -> None:
        session, world, thread = self._open(), self._process.world, greenlet.getcurrent()
        began, process = world.now, self._process
        self._travel()

        # The server's part ends here; the answer reaches the client when that can take it.
        def granted() -> None:
            world.after(0, lambda: process.resume(thread), process)

        self._database.take(session, granted)
        world.block()
        self._database.waits_s.append(world.now - began)
        self._step()
        self._open()

    def fetch(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        session = self._open()
        if sql == "COMMIT":
            self._commit(session)
            return []
        if sql == "ROLLBACK":
            self._database.end(session, commit=False)
            return []
        found = self._database.connection.execute(_MARK.sub(r"?\1", sql), parameters)
        return found.fetchall()

    def _commit(self, session: _Session) -> None:
        database, world = self._database, self._process.world
        faults, chance = database.faults, self._process.world.random.random
        self._travel()
        self._open()
        if chance() < faults.late_commit:
            # The client gives up first; the server has the commit, and does it in a while.
            session.commits_late = True
            world.after(
                world.random.uniform(0.05, 3.0),
                lambda: None if session.closed else database.end(session, commit=True),
            )
            self._cut_off()
            raise OSError("no answer came")
        database.end(session, commit=True)
        self._step()
        world.sleep(faults.latency_s * world.random.uniform(0.5, 2.0))
        if chance() < faults.lose_answer or world.now < self._process.cut_off_until:
            self._cut_off()
            raise OSError("the answer was lost")

    def _cut_off(self) -> None:
        """An answer is lost as the network goes, now and then for longer than a store retries."""
        world = self._process.world
        until = world.now + world.random.choice((0.0, 0.0, 5.0))
        self._process.cut_off_until = max(self._process.cut_off_until, until)


class _Batch(SqliteBatch):
    """A :class:`SqliteBatch` in a transaction that begins over a simulated connection."""

    def __init__(self, store: _ProcessStore, units: Sequence[Unit], seen: int) -> None:
        database = store.database
        begin(store._writer)
        world, faults = store.process.world, database.faults
        world.sleep(faults.batch_s + faults.unit_s * len(units))
        store._writer._open()
        super().__init__(database.connection, frozenset(), 1 << 30, database.clock, seen, 0)  # type: ignore[arg-type]
        self.open(units)

    @override
    def _read(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        return super()._read(sql.removesuffix(_SKIP), parameters)


def batch_of(
    writer: _Writer, location: str, units: Sequence[Unit], content_keys: object, seen: int
) -> _Batch:
    """Stands for ``PostgresBatch``."""
    return _Batch(writer.store, units, seen)  # type: ignore[attr-defined]


class _ProcessStore(PostgresStore):
    """The server store of one process, over a simulated connection."""

    record_sql = RECORD_SQL

    def __init__(self, database: Database, process: Process) -> None:
        self.database, self.process = database, process
        self.location = "postgresql://simulated"
        self._content_keys = frozenset()
        self._timeout = database.faults.lock_timeout_s
        self._closed = False
        self.outage = Outage()
        self._name = f"writer {process.pid}"
        self._has_mark = False
        self._writer: Any = _Writer(database, process)
        self._writer.store = self

    @override
    def select(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        self._reach()
        return self.database.store._reader.execute(sql, parameters).fetchall()

    def _reach(self) -> None:
        world = self.process.world
        if self.process.dead:
            raise LedgerClosedError
        if greenlet.getcurrent() is not world.hub:
            world.sleep(self.database.faults.latency_s * world.random.uniform(1.0, 3.0))
        if world.now < self.process.cut_off_until:
            raise LedgerConnectionError("The simulated database cannot be reached.")

    @property
    @override
    def now_ms(self) -> int:
        self._reach()
        return self.database.clock.now_ms()

    @override
    def back_for_ms(self) -> int:
        return min(int(self.process.world.now * 1000) + 3_600_000, Store.back_for_ms(self))


class _Waiter:
    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.result: Any = None


class _Committer:
    """Stands for :class:`GroupCommitter`: what comes in while a batch is out shares the next."""

    def __init__(self, store: _ProcessStore, process: Process) -> None:
        self._store, self._process = store, process
        self._items: list[tuple[Unit, Any]] = []
        self._is_busy = False

    def run(self, unit: Unit) -> Any:
        world, thread, process = self._process.world, greenlet.getcurrent(), self._process
        waiter = _Waiter(lambda: world.after(0, lambda: process.resume(thread), process))
        self._put((unit, waiter))
        world.block()
        if isinstance(waiter.result, BaseException):
            raise waiter.result
        return unit.finish(waiter.result)

    def submit(self, unit: Unit) -> Any:
        future = _Write(loop=self._process.loop)
        self._put((unit, future))
        return future

    def _put(self, *items: tuple[Unit, Any]) -> None:
        if self._process.dead:
            raise LedgerClosedError
        self._items.extend(items)
        if not self._is_busy:
            self._is_busy = True
            self._process.spawn(self._work)

    def _work(self) -> None:
        while self._items:
            batch, self._items = self._items, []
            try:
                results = self._store.run([unit for unit, _ in batch])
            except Exception as error:
                results = [error] * len(batch)
            for (unit, waiter), result in zip(batch, results, strict=True):
                if isinstance(waiter, _Waiter):
                    waiter.result = result
                    waiter.wake()
                else:
                    self._process.loop.call_soon(_resolve, [(unit, waiter, result)])
        self._is_busy = False


class SimulatedLedger(LedgerWrites, LedgerQueries):
    """The ledger as one process has it open."""

    def __init__(self, database: Database, process: Process) -> None:
        self._store = _ProcessStore(database, process)
        self._committer = _Committer(self._store, process)  # type: ignore[assignment]
        self._content_keys = frozenset()
        self._segments = []
