"""The queue of orders: what is on record and what is in its table are one, on both stores."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from remit.agents.queue import ORDERS, Row, Submission, row_matches_ledger
from remit.kernel.errors import ConflictError, InvalidInputError, NotFoundError, RemitError
from remit.kernel.loops import run_blocking
from remit.ledger import LedgerClient, LedgerEntry, check_tables
from tests.agents.queue.bench import Bench, settings
from tests.support.postgres import PostgresServer
from tests.support.stores import empty, outside


def test_an_order_is_submitted_done_and_gone_from_the_table(ledger: LedgerClient) -> None:
    bench = Bench(ledger)
    order_id = bench.submit("Find it.", subject_id="ann", user_id="u-1", tokens=500, usd=0.5)
    status = bench.queue.get(order_id)
    assert (status.state, status.agent_id, status.attempts) == ("ready", "clerk", 0)
    said = bench.queue.submission(order_id)
    assert said.metadata["task"] == "Find it."
    assert said.metadata["session_id"] == status.session_id
    columns = ledger.select("SELECT * FROM orders")
    assert "Find it." not in str(columns), "the table holds no content"
    assert bench.queue.stats() == {"default": {"ready": 1}}
    (claim,) = bench.claim(bench.worker())
    assert bench.state(order_id) == "running"
    assert not bench.claim(bench.worker())
    bench.check()
    assert bench.end(claim, "completed", "LED-00000007")
    assert not bench.end(claim), "it is done already"
    status = run_blocking(bench.queue.ended(order_id))
    assert (status.state, status.attempts, status.turn_entry_id) == ("completed", 1, "LED-00000007")
    assert [one.order_id for one in bench.queue.list(state="completed")] == [order_id]
    assert (list(bench.queue.list()), bench.queue.stats()) == ([], {})
    assert [entry.event_type for entry in ledger.query(submission_id=order_id)] == [
        "ORDER_SUBMITTED", "ORDER_ENDED",
    ]  # fmt: skip
    ledger.erase(subject_id="ann", reason="asked")
    with pytest.raises(ConflictError, match="erased"):
        bench.queue.fork(order_id, by="t")
    bench.check()
    with pytest.raises(NotFoundError):
        bench.queue.get("ORD-NOSUCHORDER")


def test_what_a_failed_transaction_submits_is_not_submitted(ledger: LedgerClient) -> None:
    bench = Bench(ledger)
    order_id, put = bench.queue.prepare(Submission(agent_id="a", task="x"), by="t")

    def work(tx: Any) -> None:
        put(tx)
        raise ValueError("the caller's own")

    with pytest.raises(ValueError, match="own"):
        ledger.transact(work)
    assert (ledger.count(), ledger.select("SELECT 1 FROM orders")) == (0, [])
    own = LedgerEntry("OWN", "S", "D", "r")
    ledger.transact(lambda tx: (tx.append(own), put(tx)))
    assert bench.state(order_id) == "ready"
    assert ledger.count() == 2


def test_the_same_key_is_one_order_however_often_it_is_submitted(ledger: LedgerClient) -> None:
    bench = Bench(ledger)
    first = bench.submit("One.", key="invoice-7")
    assert bench.submit("One.", key="invoice-7") == first != bench.submit("One.")
    (claim,) = bench.claim(bench.worker())
    bench.end(claim)
    assert bench.submit("One.", key="invoice-7") == first
    with pytest.raises(InvalidInputError, match="used for other work"):
        bench.submit("Two.", key="invoice-7")
    assert bench.state(first) == "completed"
    assert len(list(ledger.query(event_type="ORDER_SUBMITTED"))) == 2
    ledger.erase(session_id=claim.session_id, reason="asked")
    assert bench.submit("Two.", key="invoice-7") == first, "an erased task is not compared"
    with pytest.raises(InvalidInputError, match="used for other work"):
        bench.submit("Two.", key="invoice-7", user_id="ann")
    bench.check()


def test_a_key_is_not_used_for_another_person(ledger: LedgerClient) -> None:
    """Otherwise the second person's order would be recorded, and erased, as the first one's."""
    bench = Bench(ledger)
    first = bench.submit("One.", key="k", subject_id="ann")
    assert bench.submit("One.", key="k", subject_id="ann") == first
    assert bench.submit("One.", key="k") == first
    with pytest.raises(InvalidInputError, match="used for other work"):
        bench.submit("One.", key="k", subject_id="bob")
    nobody = bench.submit("One.", key="n")
    with pytest.raises(InvalidInputError, match="used for other work"):
        bench.submit("One.", key="n", subject_id="bob")
    ledger.erase(subject_id="ann", reason="asked")
    assert bench.submit("Two.", key="k", subject_id="bob") == first, "an erased name is not known"
    assert bench.state(nobody) == "ready"
    bench.check()


def test_orders_begin_by_queue_priority_and_age_once_due(ledger: LedgerClient) -> None:
    bench = Bench(ledger)
    soon = datetime.now(UTC) + timedelta(hours=1)
    later = bench.submit("later", due=soon, priority=-900)
    names = [bench.submit(str(n), priority=p) for n, p in enumerate((0, 5, -5, 0))]
    other = bench.submit("other", queue="slow")
    worker = bench.worker()
    taken = [row.order_id for row in bench.claim(worker, 3)]
    assert taken == [names[2], names[0], names[3]]
    assert [row.order_id for row in bench.claim(worker, 9, "slow", "default")] == [other, names[1]]
    status = bench.queue.get(later)
    assert status.state == "delayed"
    assert abs(datetime.fromisoformat(status.due) - soon) < timedelta(seconds=1)
    ledger.transact(lambda tx: tx.execute_many("UPDATE orders SET due_ms = ?", [(tx.now_ms,)]))
    assert [row.order_id for row in bench.claim(worker)] == [later]
    bench.check()


def test_a_poison_order_is_set_aside_and_blocks_nobody(ledger: LedgerClient) -> None:
    bench = Bench(ledger)
    poison = bench.submit("poison", max_attempts=3, priority=-10)
    sound = bench.submit("sound")
    for _ in range(3):  # it ends each of its workers
        worker = bench.worker()
        assert [row.order_id for row in bench.claim(worker)] == [poison]
        bench.leave(worker)
        assert bench.take_over() == 1
    status = bench.queue.get(poison)
    assert (status.state, status.error_code, status.attempts) == ("failed", "worker_lost", 3)
    assert [row.order_id for row in bench.claim(bench.worker())] == [sound]
    assert bench.queue.stats() == {"default": {"failed": 1, "running": 1}}
    assert [one.order_id for one in bench.queue.list(state="failed")] == [poison]
    assert bench.queue.retry(poison, by="Joe").state == "ready"
    (claim,) = bench.claim(bench.worker())
    assert (claim.order_id, claim.attempts) == (poison, 1)
    assert bench.fail(claim, again=False)
    assert bench.queue.cancel(poison, by="Joe").state == "cancelled"
    with pytest.raises(ConflictError, match="cancelled"):
        bench.queue.retry(poison, by="Joe")
    bench.check()


def test_an_order_can_be_paused_resumed_and_cancelled(ledger: LedgerClient) -> None:
    bench = Bench(ledger)
    first, second, third = (bench.submit(str(n)) for n in range(3))
    assert bench.queue.pause(first, by="Joe").state == "paused"
    bench.check()
    worker = bench.worker()
    (claim,) = bench.claim(worker)
    assert claim.order_id == second
    with pytest.raises(ConflictError, match="running"):
        bench.queue.pause(second, by="Joe")
    assert bench.queue.cancel(third, by="Joe").state == "cancelled"
    assert bench.queue.resume(first, by="Joe").state == "ready"
    status = bench.queue.cancel(second, by="Joe")
    assert (status.state, status.stopping) == ("running", True)
    assert bench.seats.stop_requests(worker) == [second]
    bench.check()
    assert bench.end(claim, "cancelled")
    assert bench.state(second) == "cancelled"
    assert [row.order_id for row in bench.claim(worker, 9)] == [first]
    with pytest.raises(ConflictError):
        bench.queue.cancel(third, by="Joe")
    bench.check()


def test_what_a_limit_holds_back_lets_others_pass_and_comes_back(ledger: LedgerClient) -> None:
    limits = {"at_once": 4, "key_at_once": 1, "model_at_once": 2}
    bench = Bench(ledger, settings(default=limits))
    mine = [bench.submit(str(n), key_id="k-1", model_id="p/m") for n in range(3)]
    yours = [bench.submit(str(n), key_id="k-2", model_id="p/m") for n in range(2)]
    free = [bench.submit(str(n)) for n in range(3)]
    worker = bench.worker()
    taken = bench.claim(worker, 99)
    assert [row.order_id for row in taken] == [mine[0], yours[0], free[0], free[1]]
    assert bench.queue.get(mine[1]).held_by == "default/key_at_once/k-1"
    bench.check()
    assert not bench.claim(worker, 99)
    bench.end(taken[0])
    assert [row.order_id for row in bench.claim(worker, 99)] == [mine[1]]
    for claim in (taken[2], taken[3]):
        bench.end(claim)
    assert [row.order_id for row in bench.claim(worker, 99)] == [free[2]]
    bench.end(taken[1])
    assert [row.order_id for row in bench.claim(worker, 99)] == [yours[1]]
    bench.check()


def test_starts_of_a_key_are_spread_over_the_minute(ledger: LedgerClient) -> None:
    bench = Bench(ledger, settings(default={"key_per_minute": 60}))
    orders = [bench.submit(str(n), key_id="k-1") for n in range(3)]
    worker = bench.worker()
    assert [row.order_id for row in bench.claim(worker, 9)] == orders[:1]
    assert bench.queue.get(orders[1]).held_by == "default/key_per_minute/k-1"
    past = [(ledger.now_ms - 1,)]
    ledger.transact(lambda tx: tx.execute_many("UPDATE order_starts SET next_ms = ?", past))
    assert [row.order_id for row in bench.claim(worker, 9)] == orders[1:2]
    assert not bench.claim(worker, 9)
    bench.check()


@pytest.mark.parametrize(
    "wrong",
    [
        {"task": " "}, {"agent_id": ""}, {"queue": "a/b"}, {"queue": ""}, {"kind": "x y"},
        {"priority": 1001}, {"priority": True}, {"max_attempts": 0}, {"due": datetime(2030, 1, 1)},
        {"due": datetime.max.replace(tzinfo=UTC)}, {"tokens": -1}, {"tokens": 1.5}, {"usd": -0.5},
        {"usd": float("nan")}, {"usd": float("inf")},
    ],
)  # fmt: skip
def test_what_is_no_order_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Submission(**{"agent_id": "a", "task": "b", **wrong})


def test_an_edited_row_is_found(ledger: LedgerClient, target: str) -> None:
    bench = Bench(ledger)
    for number in range(4):
        bench.submit(str(number), key_id="k-1", model_id="p/m")
    worker = bench.worker()
    (claim, _) = bench.claim(worker, 2)
    bench.fail(claim, again=False)
    bench.check()
    order_id = claim.order_id
    rows = outside(target, "SELECT * FROM orders ORDER BY seq")
    assert len(rows) == 4
    for edit in (
        f"UPDATE orders SET state = 'ready' WHERE order_id = '{order_id}'",
        "UPDATE orders SET state = 'failed' WHERE state = 'ready'",
        "UPDATE orders SET session_id = 'SES-OTHER000' WHERE state = 'ready'",
        "UPDATE orders SET priority = -1", "UPDATE orders SET agent_id = 'other'",
        "UPDATE orders SET key_id = ''", "UPDATE orders SET worker = '' WHERE state = 'running'",
        "UPDATE orders SET stop = 1", "UPDATE orders SET max_attempts = 99",
        f"DELETE FROM orders WHERE order_id = '{order_id}'",
        f"UPDATE orders SET order_id = 'ORD-OTHER000' WHERE order_id = '{order_id}'",
    ):  # fmt: skip
        outside(target, "CREATE TABLE kept AS SELECT * FROM orders", edit)
        assert list(check_tables(ledger, (ORDERS,))), edit
        outside(target, "DELETE FROM orders", "INSERT INTO orders SELECT * FROM kept",
                "DROP TABLE kept")  # fmt: skip
    bench.check()
    (ready, *_) = bench.queue.list(state="ready")
    outside(target, "DELETE FROM orders")
    with pytest.raises(RemitError, match="has no row"):
        bench.queue.get(ready.order_id)


@pytest.mark.parametrize("column", ["agent_id", "session_id"])
def test_a_row_that_was_edited_stays_found_when_a_worker_has_taken_it(
    ledger: LedgerClient, target: str, column: str
) -> None:
    bench = Bench(ledger)
    bench.submit()
    outside(target, f"UPDATE orders SET {column} = 'SES-OTHER000'")
    (claim,) = bench.claim(bench.worker())
    assert not row_matches_ledger(ledger, claim)
    bench.end(claim)
    ((seq, problem),) = check_tables(ledger, (ORDERS,))
    assert (seq, "'SES-OTHER000'" in problem) == (1, True)
    order_id = bench.submit()
    (claim,) = bench.claim(bench.worker())
    assert row_matches_ledger(ledger, claim)
    bench.fail(claim, again=True, new_session=True)
    (row,) = bench.claim(bench.worker())
    assert (row.order_id, row_matches_ledger(ledger, row)) == (order_id, True)
    assert len(list(check_tables(ledger, (ORDERS,)))) == 1


# Whatever workers, people and ends of processes do to orders in whatever order: each is done
# once at most, none is lost, and limits hold.


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
