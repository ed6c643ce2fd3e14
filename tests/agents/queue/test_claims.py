"""Whatever workers, people and ends of processes do to orders in whatever order: each is done once
at most, none is lost, and limits hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from remit.agents.queue import Row
from remit.kernel.errors import ConflictError
from remit.ledger import LedgerClient
from tests.agents.queue.bench import Bench, settings
from tests.support.postgres import PostgresServer
from tests.support.stores import empty

_EXAMPLES = {"sqlite": 8, "postgresql": 2}
LIMITS = {"at_once": 5, "key_at_once": 2, "model_at_once": 3}


class Orders(RuleBasedStateMachine):
    """A queue, and what a test knows of it."""

    new_database: Callable[[], str]

    def __init__(self) -> None:
        super().__init__()
        self.target = self.new_database()
        self.ledger = LedgerClient(self.target)
        self.bench = Bench(self.ledger, settings(orders={"max_attempts": 3}, default=LIMITS))
        self.workers: list[str] = []
        self.gone: list[Row] = []  # claims of workers that are gone
        self.claims: list[Row] = []
        self.submitted: list[str] = []
        self.ended: dict[str, str] = {}

    def teardown(self) -> None:
        while self._open():  # what is left can be done
            self._settle_all()
        self.bench.check()
        ends = [
            entry
            for entry in self.ledger.query(event_type="ORDER_ENDED")
            if entry.decision == "COMPLETED"
        ]
        assert len({entry.submission_id for entry in ends}) == len(ends), "done twice"
        assert {one for one, how in self.ended.items() if how == "completed"} == {
            entry.submission_id for entry in ends
        }
        self.ledger.close()
        empty(self.target)

    def _open(self) -> list[str]:
        return [one for one in self.submitted if one not in self.ended]

    def _settle_all(self) -> None:
        self.bench.take_over()
        for order_id in self._open():
            status = self.bench.queue.get(order_id)
            if status.state == "paused":
                self.bench.queue.resume(order_id, by="t")
            elif status.state == "failed":
                self.ended[order_id] = "failed"
            elif status.state == "waiting":
                self.bench.queue.cancel(order_id, by="t")
        for claim in [*self.claims, *self.bench.claim(self._worker(), 99)]:
            self._end(claim, "completed")
        self.claims.clear()

    def _worker(self) -> str:
        if not self.workers:
            self.workers.append(self.bench.worker())
        return self.workers[-1]

    def _end(self, claim: Row, how: str) -> None:
        if self.bench.end(claim, how):
            assert claim.order_id not in self.ended
            self.ended[claim.order_id] = how

    @initialize()
    def begin(self) -> None:
        for number in range(8):
            self.submit(key=("", "a", "b")[number % 3], model=("", "p/m")[number % 2], priority=0)
        self.workers += [self.bench.worker(), self.bench.worker()]

    @rule(key=st.sampled_from(["", "a", "b"]), model=st.sampled_from(["", "p/m"]),
          priority=st.integers(-2, 2))  # fmt: skip
    def submit(self, key: str, model: str, priority: int) -> None:
        self.submitted.append(self.bench.submit(key_id=key, model_id=model, priority=priority))

    @rule()
    def arrive(self) -> None:
        self.workers.append(self.bench.worker())

    @precondition(lambda self: self.workers)
    @rule(most=st.integers(1, 4), data=st.data())
    def claim(self, most: int, data: Any) -> None:
        worker = data.draw(st.sampled_from(self.workers))
        taken = self.bench.claim(worker, most)
        held = {claim.order_id for claim in self.claims}
        assert held.isdisjoint(row.order_id for row in taken), "two workers have one order"
        self.claims += taken

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def die(self, data: Any) -> None:
        worker = data.draw(st.sampled_from(self.workers))
        self.workers.remove(worker)
        self.bench.leave(worker)
        self.gone += [claim for claim in self.claims if claim.worker == worker]
        self.claims = [claim for claim in self.claims if claim.worker != worker]
        self.bench.take_over()

    @precondition(lambda self: self.gone)
    @rule()
    def wake_late(self) -> None:
        """A worker that was taken for gone, and was not."""
        assert not self.bench.end(self.gone.pop())

    @precondition(lambda self: self.claims)
    @rule(how=st.sampled_from(["completed", "fail", "waiting"]), data=st.data())
    def finish(self, how: str, data: Any) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        self.claims.remove(claim)
        if how == "completed":
            self._end(claim, how)
        elif how == "fail":
            assert self.bench.fail(claim, new_session=True)
        else:
            assert self.bench.end(claim, how, ["LED-0000ffff"])

    @precondition(lambda self: self._open())
    @rule(verb=st.sampled_from(["cancel", "pause", "resume", "retry"]), data=st.data())
    def person(self, verb: str, data: Any) -> None:
        order_id = data.draw(st.sampled_from(self._open()))
        try:
            status = getattr(self.bench.queue, verb)(order_id, by="Joe")
        except ConflictError:
            return
        if status.state == "cancelled":
            self.ended[order_id] = "cancelled"

    @invariant()
    def limits_hold(self) -> None:
        rows = self.ledger.select("SELECT key_id, model_id FROM orders WHERE state = 'running'")
        assert len(rows) == len(self.claims) <= LIMITS["at_once"]
        for key in ("a", "b"):
            assert sum(row[0] == key for row in rows) <= LIMITS["key_at_once"]
        assert sum(row[1] == "p/m" for row in rows) <= LIMITS["model_at_once"]


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_orders_in_any_order(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if store == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        template = request.getfixturevalue("new_ledger")
        new_database = lambda _: server.database(template)  # noqa: E731
    else:
        new_database = lambda _: str(tmp_path / "ledger.db")  # noqa: E731
    run_state_machine_as_test(
        type("Machine", (Orders,), {"new_database": new_database}),
        settings=hypothesis_settings(
            max_examples=_EXAMPLES[store], stateful_step_count=25, derandomize=True
        ),
    )
