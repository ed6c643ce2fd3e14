"""Workers: turns of agents from the queue, over crashes, approvals and people who interfere."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from remit import LedgerClient, Runtime
from remit.agents.queue import ORDERS, Row, Submission
from remit.agents.supervisor import TurnCancelledError
from remit.gateway.auth import KeyStore
from remit.gateway.budget import BudgetLimits, BudgetScope
from remit.kernel.errors import InvalidInputError, NotFoundError
from remit.kernel.loops import start_background
from remit.ledger import check_tables
from remit.packages.gates import check_gates
from remit.runtime import Agent, OrderWorker, load_app
from tests.agents.queue import app
from tests.support.agents import Scripted, tools_only
from tests.support.commands import run_remit
from tests.support.postgres import PostgresServer
from tests.support.processes import Program, run_forked
from tests.support.stores import outside
from tests.support.waiting import until
from tests.support.wire import Raw, message, tool_use

FLAGS = {"gateway.max_retries": 0, "worker.orders.retry_base_s": 0.0}


@pytest.fixture(params=["sqlite", "postgresql", "dbos"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both stores with the table, and DBOS."""
    if request.param != "sqlite":
        server: PostgresServer = request.getfixturevalue("postgres")
        monkeypatch.setenv("REMIT_DATABASE_URL", server.database())
    if request.param == "dbos":
        pytest.importorskip("dbos")
        monkeypatch.setenv("REMIT_WORKER__ORDERS__ENGINE", "dbos")
    return str(request.param)


@contextmanager
def working(
    runtime: Runtime, agents: Sequence[Agent[Any]] = (), **options: Any
) -> Iterator[OrderWorker]:
    """A worker in this process, until the block ends."""
    worker = OrderWorker(runtime, agents, **options)
    loop_of: list[Any] = []

    async def run() -> int:
        loop_of.append(asyncio.get_running_loop())
        return await worker.run()

    running = start_background(run())
    try:
        yield worker
    finally:
        until(lambda: bool(loop_of))
        loop_of[0].call_soon_threadsafe(worker.drain)
        assert running.result(60) == 0


def check(runtime: Runtime) -> None:
    """What holds after orders of any kind."""
    report = runtime.ledger.verify()
    assert report.verified, report.problems
    events = runtime.ledger.count_by_event()
    orphans = events.get("EXCHANGE_ORPHANED", 0)
    assert events.get("DISPATCH", 0) == events.get("EXCHANGE", 0) + orphans
    gates = check_gates(runtime.gate_context(), ["G2"], full=True, by="a test")
    assert gates.passed, gates


def test_submitted_turns_return_results(scripted: Scripted, tmp_path: Path, store: str) -> None:
    root = tmp_path / "root"
    with scripted(message("Done."), flags=FLAGS) as (runtime, server):
        clerk = runtime.agent("clerk", max_retries=0)
        handles = [
            clerk.submit(f"Task {number}.", user="u-1", subject_id="ann", key=f"k{number}")
            for number in range(4)
        ]
        with pytest.raises(TimeoutError):
            handles[0].wait(0.01)
        with working(runtime, [clerk]), Runtime.open(root) as other:
            results = [handle.result(60) for handle in handles]
            again = other.agent("clerk").order(handles[0].order_id)
            assert again.result(60).response == "Done."
            assert clerk.submit("Task 0.", user="u-1", key="k0").order_id == handles[0].order_id
        assert [one.output for one in results] == ["Done."] * 4
        assert len({one.session_id for one in results}) == 4
        assert (len(server.calls), results[0].turn_number) == (4, 1)
        assert results[0].cost_summary["total_tokens"] == 18
        (started, *_) = runtime.ledger.query(event_type="SESSION_START")
        assert started.metadata["order_id"] in {one.order_id for one in handles}
        assert started.metadata["user_id"] == "u-1"
        assert runtime.ledger.count_by_event()["SESSION_END"] == 4
        if store == "dbos":
            _check_dbos(runtime, clerk, [handle.order_id for handle in handles])
        runtime.ledger.erase(subject_id="ann", reason="asked")
        assert handles[0].result(1).response == ""
        check(runtime)


def _check_dbos(runtime: Runtime, clerk: Agent[Any], order_ids: list[str]) -> None:
    """DBOS was given ids in the ledger's own transactions, and gave back sequence numbers."""
    select = runtime.ledger.select
    seqs = [one.metadata and int(one.id[4:], 16)
            for one in runtime.ledger.query(event_type="ORDER_SUBMITTED")]  # fmt: skip
    found = select(
        "SELECT s.workflow_uuid, s.status, s.serialization, o.output, i.inputs "
        "FROM dbos.workflow_status AS s JOIN dbos.workflow_input AS i USING (workflow_uuid) "
        "LEFT JOIN dbos.workflow_output AS o USING (workflow_uuid) ORDER BY s.created_at"
    )
    assert [row[:3] for row in sorted(found)] == sorted(
        (f"{order_id}.1", "SUCCESS", "portable_json") for order_id in order_ids
    )
    assert sorted(int(row[3]) for row in found) == seqs
    assert {json.loads(row[4])["positionalArgs"][0] for row in found} == set(order_ids)
    _, put = runtime.orders.prepare(Submission(agent_id="clerk", task="Never."), by="a test")

    def fails(tx: Any) -> None:
        put(tx)
        raise ValueError("the caller's own")

    with pytest.raises(ValueError, match="own"):
        runtime.ledger.transact(fails)
    kept = clerk.submit("Kept.", due=datetime.now(UTC) + timedelta(hours=1))
    kept.cancel()
    assert len(select("SELECT 1 FROM dbos.workflow_status")) == len(found)
    clerk.submit("Ready.").cancel()
    assert len(select("SELECT 1 FROM dbos.workflow_status")) == len(found) + 1


def test_a_worker_does_nothing_by_a_row_that_was_edited_and_no_order_stays_with_it(
    scripted: Scripted, tmp_path: Path
) -> None:
    async def gives_up(claim: Row) -> Any:
        raise asyncio.CancelledError

    with scripted(flags=FLAGS) as (runtime, server):
        clerk, boss = (runtime.agent(name, max_retries=0) for name in ("clerk", "boss"))
        handle = clerk.submit("Go.")
        outside(str(tmp_path / "root/ledger.db"), "UPDATE orders SET agent_id = 'boss'")
        wanted = Submission(agent_id="clerk", task="x", kind="other", max_attempts=1)
        other = clerk.order(runtime.orders.submit(wanted, by="t"))
        with working(runtime, [clerk, boss], kinds={"other": gives_up}):
            assert handle.wait(60).error_code == "row_edited"
            assert other.wait(60).error_code == "CancelledError"
        assert not server.calls
        assert any("'boss'" in str(said) for said in runtime.ledger.verify().problems)


def test_a_running_order_stops_when_somebody_says_so(scripted: Scripted) -> None:
    slow = Raw(b"{}", delay_s=60.0)
    with scripted(slow, flags=FLAGS) as (runtime, server):
        clerk = runtime.agent("clerk", max_retries=0)
        with working(runtime, [clerk]):
            handle = clerk.submit("Go.")
            until(lambda: bool(server.calls))
            assert handle.cancel(by="Joe").stopping
            with pytest.raises(TurnCancelledError):
                handle.result(60)
        (turn,) = runtime.ledger.query(event_type="TURN_RECORDED")
        assert turn.metadata["outcome"] == "cancelled"
        check(runtime)


def test_a_turn_that_waits_for_a_person_goes_on_on_another_worker(
    scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setenv("PAID", str(tmp_path / "paid"))
    root = tmp_path / "root"
    script = [tools_only(tool_use("pay", {"text": "Ann"})), message("Paid.")]
    with scripted(*script, flags=FLAGS) as (runtime, server):
        _, till, _ = app.agents(runtime)
        assert isinstance(till, Agent)
        handle = till.submit("Pay Ann.")
        with Runtime.open(root, flags=FLAGS) as first, working(first, [*app.agents(first)]):
            until(lambda: handle.status().state == "waiting")
            assert handle.status().attempts == 0
        (request_id,) = handle.status().waits_for
        assert not (tmp_path / "paid").exists()
        assert runtime.ledger.verify().verified
        runtime.approvals.decide(request_id, granted=True, by="Joe")
        with Runtime.open(root, flags=FLAGS) as second, working(second, [*app.agents(second)]):
            assert handle.result(60).response == "Paid."
        assert (tmp_path / "paid").read_text() == "Ann\n"
        assert len(server.calls) == 2
        check(runtime)


def test_what_a_killed_worker_left_is_gone_on_with_and_no_tool_runs_twice(
    scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setenv("PAID", str(tmp_path / "paid"))
    root = tmp_path / "root"
    slow = Raw(b"{}", delay_s=60.0)
    script = [
        tools_only(tool_use("payer", {"task": "Pay Ann."})),
        tools_only(tool_use("pay", {"text": "Ann"})), slow, message("Paid."), message("Done."),
    ]  # fmt: skip
    with scripted(*script, flags=FLAGS) as (runtime, server):
        _, _, boss = app.agents(runtime)
        assert isinstance(boss, Agent)
        key_id = KeyStore(runtime.ledger).create("shop").key_id
        scope = BudgetScope(key_id=key_id)
        runtime.budgeter.allocate(scope)
        handle = boss.submit("Have Ann paid.", for_key="shop")
        line = (
            "-m",
            "remit",
            "worker",
            "--root",
            str(root),
            "--app",
            "tests.agents.queue.app:agents",
        )
        with Program(*line, environment=dict(os.environ)) as program:
            assert "takes orders of default" in program.stdout.readline()
            until(lambda: len(server.calls) == 3)  # its sub-agent's turn is in the middle
            program.kill()
            report = runtime.ledger.verify()  # a call is out that its order's key pays
            assert report.verified, report.problems
        with working(runtime, [boss]):
            assert handle.result(60).response == "Done."
        orphaned = next(runtime.ledger.query(event_type="EXCHANGE_ORPHANED"))
        (status,) = runtime.budgeter.status(scope)
        assert status.spent_tokens == 4 * 18 + orphaned.metadata["settled_tokens"]
        assert (tmp_path / "paid").read_text() == "Ann\n"
        assert len(server.calls) == 5
        assert handle.status().attempts == 2
        events = runtime.ledger.count_by_event()
        assert (events["DISPATCH"], events["EXCHANGE"], events["EXCHANGE_ORPHANED"]) == (5, 4, 1)
        assert (events["SESSION_START"], events["TURN_RECORDED"], events["ORDER_ENDED"]) == (
            2,
            2,
            1,
        )
        check(runtime)


def test_submission_and_the_callers_entry_are_both_there_or_neither(target: str) -> None:
    steps = (1, 4, 5) if "://" not in target else (2, 3)
    for at in steps:  # in the first, or between the fourth and the fifth, and so on
        when = "before" if at % 2 else "after"
        done = run_forked(app.submitting, target, at, when, environment=dict(os.environ))
        assert done.returncode == -signal.SIGKILL, done.stderr
        with LedgerClient(target) as ledger:
            events = ledger.count_by_event()
            rows = ledger.select("SELECT count(*) FROM orders")[0][0]
            assert events.get("OWN", 0) == events.get("ORDER_SUBMITTED", 0) == rows
            assert list(check_tables(ledger, (ORDERS,))) == []
    assert rows == sum(at - at % 2 for at in steps)


def test_the_commands(scripted: Scripted, tmp_path: Path) -> None:
    root = tmp_path / "root"
    with scripted(message("Done."), flags=FLAGS) as (runtime, server):

        def remit(*arguments: object, code: int = 0) -> Any:
            done = run_remit(*arguments, "--root", root)
            assert done.returncode == code, done.stderr
            return json.loads(done.stdout) if "--json" in arguments else done.stdout + done.stderr

        first = remit("order", "submit", "clerk", "Find it.", "--priority", 5, "--json")["order_id"]
        second = remit("order", "submit", "clerk", "Later.", "--after", "2h").split()[0]
        (one, two) = remit("order", "list", "--json")["orders"]
        assert (one["order_id"], one["state"]) == (second, "delayed")
        assert (two["order_id"], two["priority"]) == (first, 5)
        assert "paused" in remit("order", "pause", first)
        assert first in remit("order", "list", "--state", "paused")
        remit("order", "resume", first)
        assert "cancelled" in remit("order", "cancel", second, "--by", "Joe")
        assert "cancelled already" in remit("order", "retry", second, code=1)
        assert "is not one of" in remit("order", "list", "--state", "odd", code=2)
        assert "There is no order" in remit("order", "show", "ORD-2222222222222222", code=1)
        idle = "No worker is running for 1 ready order; `remit worker` starts one."
        for command in (("worker", "list"), ("order", "list")):
            assert remit(*command).splitlines()[-1] == idle
        clerk = runtime.agent("clerk", max_retries=0)
        with working(runtime, [clerk], queues=("urgent", "default")):
            assert remit("order", "submit", "clerk", "Now.", "--queue", "urgent", "--wait",
                         "--json")["response"] == "Done."  # fmt: skip
            until(lambda: remit("order", "show", first, "--json")["state"] == "completed")
            (worker,) = remit("worker", "list", "--json")["workers"]
            assert worker["queues"] == ["urgent", "default"]
            assert worker["pid"] == os.getpid()
            assert "No worker" not in remit("worker", "list") + remit("order", "list")
            assert "asked: 1" in remit("worker", "drain", worker["worker"])
            until(lambda: remit("worker", "list", "--json")["workers"] == [])
        assert "Find it." in remit("order", "show", first)
        forked = remit("order", "fork", first).strip()
        assert runtime.orders.submission(forked).metadata["forked_from"] == first
        assert len(server.calls) == 2
        check(runtime)


def test_what_takes_longer_than_draining_may_is_left_to_another_worker(
    scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    script = [Raw(b"{}", delay_s=60.0), message("Done.")]
    monkeypatch.setenv("REMIT_WORKER__ORDERS__DRAIN_S", "0.1")
    with scripted(*script, flags=FLAGS) as (runtime, server):
        clerk = runtime.agent("clerk", max_retries=0)
        handle = clerk.submit("Go.")
        line = ("-m", "remit", "worker", "--root", str(root), "--app",
                "tests.agents.queue.app:agents")  # fmt: skip
        with Program(*line, environment=dict(os.environ), errors=tmp_path / "said") as program:
            until(lambda: bool(server.calls))
            program.terminate()
            assert program.wait(60) == 0
        assert "1 turn did not end in time" in (tmp_path / "said").read_text()
        with working(runtime, [clerk]):
            assert handle.result(60).response == "Done."
        assert runtime.ledger.count_by_event()["TURN_RECORDED"] == 1
        check(runtime)


def test_ticks_of_schedules_are_a_workers_too(scripted: Scripted) -> None:
    with scripted(message("Counted.")) as (runtime, _):
        agents, schedules = load_app(runtime, "tests.agents.queue.app:scheduled")
        with working(runtime, agents, schedules=schedules):
            until(lambda: runtime.ledger.count_by_event().get("TURN_RECORDED", 0) > 0)
        for wrong in ("", "app", "no.such:thing", "tests.agents.queue.app:nowhere",
                      "tests.agents.queue.app:nothing", "tests.agents.queue.app:os"):  # fmt: skip
            with pytest.raises(InvalidInputError):
                load_app(runtime, wrong)


# -- Orders that are done for a virtual key: its limits are theirs -------------------------------


def test_what_a_key_may_not_do_its_orders_may_not(scripted: Scripted, tmp_path: Path) -> None:
    root = tmp_path / "root"
    script = [
        tools_only(tool_use("helper", {"task": "Look."})), message("Seen."), message("Done."),
        message("Again."),
    ]  # fmt: skip
    with scripted(*script, flags=FLAGS) as (runtime, server):
        keys = KeyStore(runtime.ledger)
        helper = runtime.agent("helper", instructions="Look.", max_retries=0)
        clerk = runtime.agent("clerk", tools=[helper.as_tool()], max_retries=0)
        made = keys.create("shop", user_id="ann", team_id="tea")
        scope = BudgetScope(key_id=made.key_id)
        runtime.budgeter.allocate(scope, limits=BudgetLimits(tokens=1_000_000), by="t")
        keys.create("small", models=["gpt-*"])
        keys.create("others", agents=["till"])

        def spent() -> int:
            return runtime.budgeter.status(scope)[0].spent_tokens

        with working(runtime, [clerk], at_once=1):
            first = clerk.submit("Go.", for_key="shop")
            assert first.result(60).response == "Done."
            assert spent() == 3 * 18  # its sub-agent's call too
            refused = clerk.submit("Go.", for_key="small").result(60)
            assert refused.error_code == "MODEL_NOT_ALLOWED"
            for wrong, options in (
                (InvalidInputError, {"for_key": "others"}),
                (InvalidInputError, {"for_key": "shop", "user": "bob"}),
                (NotFoundError, {"for_key": "nobody"}),
            ):
                with pytest.raises(wrong):
                    clerk.submit("Go.", **options)
            runtime.budgeter.allocate(scope, limits=BudgetLimits(tokens=60), by="t")
            assert (
                clerk.submit("Go.", for_key=made.key_id).result(60).error_code == "budget_exhausted"
            )
            runtime.budgeter.allocate(scope, limits=BudgetLimits(requests_per_minute=3), by="t")
            limited = clerk.submit("Go.", for_key=made.key_id).result(60)
            assert limited.error_code == "RATE_LIMITED"
            runtime.budgeter.allocate(scope, limits=BudgetLimits(), by="t")
            last = clerk.submit("Go.", for_key=made.key_id)
            assert last.result(60).response == "Again."
            keys.rotate("shop")  # the key goes on
            later = clerk.submit("Go.", for_key="shop", queue="later")
            keys.revoke("shop")
        with working(runtime, [clerk], queues=("later",)):
            assert later.result(60).error_code == "AUTH_ERROR"
        assert len(server.calls) == 4
        done = run_remit("usage", "--by", "key,user,team", "--json", "--root", root)
        rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
        assert [(row["key"], row["user"], row["team"], row["calls"]) for row in rows] == [
            (made.key_id, "ann", "tea", 4)
        ]
        submitted = run_remit("order", "submit", "clerk", "x", "--for-key", "shop", "--root", root)
        assert submitted.returncode == 1
        assert "is revoked" in submitted.stderr
        assert run_remit("budget", "check", "--root", root).returncode == 0
        check(runtime)
