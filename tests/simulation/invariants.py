"""What must hold after each event, and at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from remit.agents.queue import ORDERS
from remit.gateway.budget import audit_budgets
from remit.gateway.leases import Lease, LeaseLostError
from remit.ledger import LedgerClient, check_tables, entry_id, parse_entry_id
from tests.simulation.database import Database
from tests.simulation.world import Process, World

__all__ = ["Watch"]

_OVER = (
    "SELECT scope, spent_tokens, reserved_tokens, token_limit FROM budgets "
    "WHERE spent_tokens + reserved_tokens > token_limit OR reserved_tokens < 0"
)


class Watch:
    """Sees all, at true time."""

    def __init__(self, world: World, database: Database) -> None:
        self._world, self._database = world, database
        self._holding: dict[str, list[tuple[Process, Lease]]] = {}
        self._upstream: list[str] = []
        self._used = 0
        self.refusals = 0
        self._orders: set[str] = set()
        self._kept: list[Any] = []
        self.busy: set[Process] = set()
        database.on_commit = self._look_at_budgets
        world.on_event = self._look_at_leases

    def keep(self, process: Process, task: asyncio.Task[Any]) -> None:
        """Hold on to a task, as asyncio does not."""
        self._kept.append(task)

    def finished(self, process: Process) -> None:
        """A process has done what it was to do."""
        self.busy.discard(process)

    def sent_upstream(self, dispatch_id: str, tokens: int) -> None:
        """Note a call that goes out, and the tokens that the provider will bill for it.

        The intent of the call must be durable by now.
        """
        self._upstream.append(dispatch_id)
        self._used += tokens
        seq = parse_entry_id(dispatch_id)
        rows = self._database.store._reader.execute(
            "SELECT event_type FROM entries WHERE seq = ?", (seq,)
        ).fetchall()
        if rows != [("DISPATCH",)]:
            self._world.violated(f"{dispatch_id} was sent, and is not on record: {rows}")

    def submitted(self, order_id: str) -> None:
        """An order was accepted."""
        self._orders.add(order_id)

    @contextlib.contextmanager
    def holding(self, process: Process, lease: Lease) -> Iterator[None]:
        """A process goes by a lease."""
        pair = (process, lease)
        self._holding.setdefault(lease.name, []).append(pair)
        try:
            yield
        finally:
            self._holding[lease.name].remove(pair)

    def _look_at_budgets(self) -> None:
        for row in self._database.connection.execute(_OVER).fetchall():
            self._world.violated(f"budget {row[0]}: spent {row[1]}, reserved {row[2]} of {row[3]}")

    def _look_at_leases(self) -> None:
        for name, pairs in self._holding.items():
            if len(pairs) < 2:
                continue
            believe = [process.pid for process, lease in pairs if self._believes(process, lease)]
            if len(believe) > 1:
                self._world.violated(f"{name} is held by the processes {believe} at once")

    def _believes(self, process: Process, lease: Lease) -> bool:
        if not process.is_running:
            return False
        self._world.current = process
        try:
            lease.check()
        except LeaseLostError:
            return False
        finally:
            self._world.current = None
        return True

    def is_quiet(self) -> bool:
        """Whether all that was begun has come to its end."""
        if any(not process.dead for process in self.busy):
            return False
        read = self._database.store._reader.execute
        open_ = read("SELECT (SELECT count(*) FROM orders WHERE state <> 'failed') + "
                     "(SELECT count(*) FROM in_flight)").fetchone()  # fmt: skip
        return open_ == (0,)

    def check_end(self, path: Path) -> None:
        """Go through the whole record, by the product's own checks and by counting."""
        violated = self._world.violated
        with LedgerClient(path, create=False) as ledger:
            report = ledger.verify(deep=False)
            if not report.verified:
                violated(f"the ledger does not verify: {[*map(str, report.problems)][:3]}")
            for _, message in check_tables(ledger, (ORDERS,)):
                violated(str(message))
            audit = audit_budgets(ledger)
            for one in [*audit.differences, *audit.calls]:
                violated(f"budgets: {one}")
            self._count(ledger)

    def _count(self, ledger: LedgerClient) -> None:
        violated = self._world.violated
        rows = ledger.select("SELECT seq, event_type, submission_id, record FROM entries")
        dispatches = {entry_id(seq): 0 for seq, kind, *_ in rows if kind == "DISPATCH"}
        ended: Counter[str] = Counter()
        for _, kind, subject, record in rows:
            said = orjson.loads(record)
            if kind in ("EXCHANGE", "EXCHANGE_ORPHANED"):
                name = said["metadata"]["dispatch_entry_id"]
                dispatches[name] = dispatches.get(name, 10) + 1
            elif kind == "ORDER_ENDED":
                ended[subject] += said["decision"] == "COMPLETED"
        if wrong := {name: found for name, found in dispatches.items() if found != 1}:
            violated(f"calls with another number of ends than one: {wrong}")
        if len(self._upstream) > len(dispatches):
            violated(f"{len(self._upstream)} calls were sent, {len(dispatches)} are on record")
        failed = {name for (name,) in ledger.select("SELECT order_id FROM orders")}
        for name in sorted(self._orders):
            if ended[name] != (name not in failed):
                violated(f"order {name} was completed {ended[name]} times")
        if held := ledger.select("SELECT reservation_id FROM holds"):
            violated(f"held for ever: {held}")
        (spent, limit) = ledger.select("SELECT spent_tokens, token_limit FROM budgets")[0]
        if not self._used <= spent <= limit:
            violated(f"{self._used} tokens were billed, {spent} charged, of at most {limit}")
        if left := ledger.select("SELECT scope FROM budgets WHERE reserved_tokens <> 0"):
            violated(f"reserved for ever: {left}")
