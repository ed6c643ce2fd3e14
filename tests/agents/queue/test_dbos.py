"""DBOS over connections that break: each order is begun once, and none is left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remit.agents.queue import OrderQueue, Row, Submission
from remit.kernel.loops import start_background
from remit.kernel.settings import default_settings
from remit.ledger import LedgerClient
from tests.agents.queue.bench import Bench, settings
from tests.support.cutting import CuttingProxy
from tests.support.postgres import PostgresServer
from tests.support.waiting import until

_RETRY_S = 0.6  # longer than the ledger tries
_QUICK = default_settings().ledger.model_copy(update={"lock_timeout_s": 0.3})


class _Taker:
    """A worker that keeps what it has begun until the test ends it."""

    queues = ("default",)
    at_once = 8
    draining = False

    def __init__(self, seat: str) -> None:
        self.seat = seat
        self.begun: list[Row] = []
        self.may_end = asyncio.Event()

    def room(self) -> int:
        return self.at_once

    def begin(self, claim: Row) -> asyncio.Task[Any]:
        self.begun.append(claim)
        return asyncio.create_task(self.may_end.wait())

    async def nudged(self, timeout_s: float | None) -> None:
        await asyncio.sleep(timeout_s or 0)


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    pytest.importorskip("dbos")
    return postgres.database()


def test_an_order_whose_beginning_was_lost_is_begun_once(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from remit.agents.queue import dbos_engine

    monkeypatch.setattr(dbos_engine, "_RETRY_S", 0.1)
    monkeypatch.setattr(dbos_engine, "_LOSS_CHECK_S", 0.5)
    with (
        CuttingProxy(url, tmp_path / "p") as proxy,
        LedgerClient(proxy.url, settings=_QUICK) as ledger,
    ):
        bench = Bench(ledger)
        # PostgreSQL's other scheme names the same server.
        same = url.replace("postgresql://", "postgres://", 1)
        engine = dbos_engine.DbosEngine(ledger, settings(), same)
        queue = OrderQueue(ledger, settings(), engine)
        breaks = _breaking(ledger, engine, proxy)
        worker = _Taker(bench.worker())
        running = start_background(engine.hand_out(worker))
        until(lambda: ledger.select("SELECT to_regclass('dbos.workflow_input')")[0][0] is not None)
        for number, where in enumerate(("before", "after")):
            breaks.append(where)
            order_id = queue.submit(Submission(agent_id="clerk", task="x"), by="t")
            until(lambda number=number: len(worker.begun) > number)
            assert not breaks
            assert worker.begun[-1].order_id == order_id
        order_id, put = queue.prepare(Submission(agent_id="clerk", task="x"), by="t")

        def taken_and_not_known(tx: Any) -> None:  # as when DBOS's own commit is not answered
            put(tx)
            tx.execute_many(
                "UPDATE dbos.workflow_status SET status = 'PENDING', executor_id = ? "
                "WHERE workflow_uuid = ?", [(worker.seat, f"{order_id}.1")],
            )  # fmt: skip

        ledger.transact(taken_and_not_known)
        until(lambda: len(worker.begun) == 3)
        assert {row.attempts for row in worker.begun} == {1}
        bench.check()
        worker.draining = True
        worker.may_end._loop.call_soon_threadsafe(worker.may_end.set)  # type: ignore[attr-defined]
        running.result(60)
        assert len(worker.begun) == 3
        for claim in worker.begun:
            assert bench.end(claim)
        bench.check()


def test_an_error_of_the_database_while_dbos_runs_does_not_end_the_worker(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from dbos import DBOS, error
    from sqlalchemy.exc import OperationalError

    from remit.agents.queue import dbos_engine

    monkeypatch.setattr(dbos_engine, "_LOSS_CHECK_S", 0.2)
    listed = DBOS.list_workflows
    errors: list[Exception] = [
        OperationalError("SELECT secret", {}, TimeoutError("statement timeout")),
        error.DBOSQueryTimeoutError(30.0),
    ]

    def list_workflows(**asked: Any) -> Any:
        if errors:
            raise errors.pop()
        return listed(**asked)

    monkeypatch.setattr(DBOS, "list_workflows", list_workflows)
    with LedgerClient(url) as ledger:
        bench = Bench(ledger)
        engine = dbos_engine.DbosEngine(ledger, settings(), url)
        worker = _Taker(bench.worker())
        running = start_background(engine.hand_out(worker))
        until(lambda: not errors or running.done())
        assert not running.done()
        OrderQueue(ledger, settings(), engine).submit(
            Submission(agent_id="clerk", task="x"), by="t"
        )
        until(lambda: bool(worker.begun))
        worker.draining = True
        worker.may_end._loop.call_soon_threadsafe(worker.may_end.set)  # type: ignore[attr-defined]
        running.result(60)
        assert bench.end(worker.begun[0])
    assert "orders cannot be announced: OperationalError" in caplog.text
    assert "secret" not in caplog.text


def _breaking(ledger: LedgerClient, engine: Any, proxy: CuttingProxy) -> list[str]:
    """Break the connection at the commit of the next beginnings, before it is sent or after it
    took place, for longer than the ledger tries; the list says where."""
    breaks: list[str] = []
    now: list[str] = []
    begin, writer = engine._begin, ledger._store._writer  # type: ignore[attr-defined]
    fetch = writer.fetch

    def beginning(*arguments: Any) -> Any:
        claim = begin(*arguments)
        if claim is not None and breaks:
            now.append(breaks.pop())
        return claim

    def fetching(sql: str, *arguments: Any) -> Any:
        if sql != "COMMIT" or not now:
            return fetch(sql, *arguments)
        if now.pop() == "after":
            fetch(sql)
        proxy.sever(_RETRY_S)
        return fetch(sql)

    engine._begin, writer.fetch = beginning, fetching
    return breaks
