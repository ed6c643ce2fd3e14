"""Calls that take long keep their lease, and are settled by nobody while their process lives."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from remit.gateway import CircuitBreakerConfig, InFlightCalls, LLMGateway, RouterConfig
from remit.gateway.auth import Identity
from remit.gateway.budget import Amount, BudgetLimits, BudgetScope, TokenBudgeter, audit_budgets
from remit.kernel.exchange import RouteOutcome
from remit.ledger import LedgerClient
from remit.providers import MockProvider, ProviderError
from remit.routing import (
    Candidate,
    EnsembleOptions,
    RouteOptions,
    aroute_request,
    create_thought_record_emitter,
)
from tests.support.processes import Program
from tests.support.raw_http import Connection, raw_server
from tests.support.requests import openai_provider, prompt_request
from tests.support.waiting import until
from tests.support.wire import completion, completion_stream

SHORT = RouterConfig(
    default_timeout_ms=300,
    lease_margin_ms=0,
    max_retries=0,
    circuit_breaker=CircuitBreakerConfig(failure_threshold=1),
)


def _gateway(ledger: LedgerClient, provider: Any, config: RouterConfig = SHORT) -> LLMGateway:
    gateway = LLMGateway(ledger, TokenBudgeter(ledger), config, dev_mode=True, budget_mode="warn")
    gateway.register_provider("mock", provider)
    return gateway


async def test_a_stream_that_goes_on_is_never_taken_for_dead(ledger: LedgerClient) -> None:
    pieces = completion_stream(completion("a stream that takes its time")).chunks

    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        for piece in pieces:
            await connection.send(piece)
            await asyncio.sleep(0.2)

    other = InFlightCalls(ledger, TokenBudgeter(ledger), charging=True)
    async with raw_server(script) as server:
        provider = openai_provider(server.url.removesuffix("/v1"))
        gateway = _gateway(ledger, provider)
        call = asyncio.create_task(gateway.aroute(prompt_request(), on_text=lambda _: None))
        started = time.monotonic()
        settled: list[str] = []
        while not call.done():
            settled += await asyncio.to_thread(other.recover, "charge")
            settled += await asyncio.to_thread(gateway.recover)
            await asyncio.sleep(0.05)
        response = await call
        await provider.aclose()
    assert (response.outcome, response.error_message, settled) == (RouteOutcome.SUCCESS, None, [])
    assert time.monotonic() - started > 4 * 0.3  # many times as long as its lease
    assert ledger.count_by_event().get("EXCHANGE_ORPHANED", 0) == 0
    assert ledger.orphans() == []


def test_a_call_that_is_given_up_is_settled(ledger: LedgerClient) -> None:
    """Its row stays when the exchange cannot be written, and then nobody renews it."""
    gateway = _gateway(ledger, MockProvider(delay_s=600))
    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(gateway.aroute(prompt_request()))
        until(lambda: _turn(loop, bool(ledger.orphans())))
        task.get_coro().close()  # type: ignore[union-attr]
    finally:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        # What the call began in tasks of its own ends in the loop, and not in the collector.
        others = asyncio.all_tasks(loop) - {task}
        for other in others:
            other.cancel()
        loop.run_until_complete(asyncio.wait(others, timeout=5) if others else asyncio.sleep(0))
        task._log_traceback = False  # type: ignore[attr-defined]
        loop.close()
    until(lambda: len(gateway.recover()) == 1)
    assert ledger.orphans() == []


def _turn(loop: asyncio.AbstractEventLoop, found: bool) -> bool:
    if not found:
        loop.run_until_complete(asyncio.sleep(0))
    return found


_STOPPED = """
import os, signal, sys, threading, time
from remit.gateway import LLMGateway, RouterConfig
from remit.ledger import LedgerClient
from remit.providers import MockProvider
from tests.support.requests import prompt_request
with LedgerClient(sys.argv[1]) as ledger:
    config = RouterConfig(default_timeout_ms=20_000, lease_margin_ms=-19_800)
    gateway = LLMGateway(ledger, config=config, dev_mode=True)
    gateway.register_provider("mock", MockProvider())
    store, committer = ledger._store, ledger._committer
    commit = store.run
    def commit_and_stop(units):
        results = commit(units)
        if store.select("SELECT 1 FROM in_flight"):
            store.run = commit
            print("stops", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
            # Woken, it recovers before anybody has heard of the commit.
            recovery = threading.Thread(target=gateway.recover)
            recovery.start()
            while recovery.is_alive() and not committer._items:
                time.sleep(0.01)
        return results
    store.run = commit_and_stop
    print(gateway.route(prompt_request()).outcome, flush=True)
"""


def test_a_process_stopped_before_it_hears_of_its_commit_settles_no_call_of_its_own(
    target: str,
) -> None:
    """Between the commit that begins a call and the call's own coroutine lie two threads."""
    with (
        LedgerClient(target) as ledger,
        Program("-c", _STOPPED, target, environment=os.environ) as caller,
    ):
        assert caller.stdout.readline() == "stops\n"
        until(lambda: Path(f"/proc/{caller.pid}/stat").read_text().split(") ")[1][0] == "T")
        late = "SELECT 1 FROM in_flight WHERE lease_until_ms < ?"
        until(lambda: bool(ledger.select(late, (ledger.now_ms,))))
        os.kill(caller.pid, signal.SIGCONT)
        assert caller.stdout.readline() == "success\n"
        counts = ledger.count_by_event()
        assert (counts["DISPATCH"], counts["EXCHANGE"]) == (1, 1)
        assert ledger.orphans() == []


async def test_connections_that_the_server_closed_are_other_pairs(
    ledger: LedgerClient,
) -> None:
    """Never two upstream calls of one dispatch; nothing counts against provider or retries."""
    first = 3
    body = json.dumps(completion("hi")).encode()
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
    busy = asyncio.Event()

    async def script(connection: Connection) -> None:
        await connection.request()
        if connection.number < first:
            if connection.number == first - 1:
                busy.set()
            await busy.wait()
            await connection.send(answer % (len(body), body))
            await connection.reader.readexactly(1)  # the next request begins: too late
            connection.reset()
        else:
            await connection.send(answer % (len(body), body))
            await connection.reader.read()

    async with raw_server(script) as server:
        provider = openai_provider(server.url.removesuffix("/v1"))
        gateway = _gateway(ledger, provider)
        calls = [gateway.aroute(prompt_request()) for _ in range(first)]
        assert {r.outcome for r in await asyncio.gather(*calls)} == {RouteOutcome.SUCCESS}
        response = await gateway.aroute(prompt_request())
        await provider.aclose()
    assert (response.outcome, response.attempts) == (RouteOutcome.SUCCESS, 2)
    *_, stale, last = ledger.query(event_type="EXCHANGE")
    assert (stale.metadata["error_code"], last.decision) == ("SERVER_ERROR", "SUCCESS")
    assert (last.metadata["attempt"], last.metadata["retry_of"]) == (2, stale.id)
    assert stale.metadata["cost_usd"] == 0
    assert len(server.requests) <= ledger.count_by_event()["DISPATCH"] == first + 2
    (breaker,) = gateway.breakers.values()
    assert breaker.state == "closed"  # one failure would have opened it


# -- Several gateways in one process, on one ledger: one budget all the same ----------------------


async def test_calls_of_two_gateways_in_one_transaction_share_a_limit(
    ledger: LedgerClient,
) -> None:
    budgeter = TokenBudgeter(ledger)
    budgeter.allocate(BudgetScope("SES-TESTTEST"), limits=BudgetLimits(turns=5))
    gateways = [LLMGateway(ledger, budgeter=budgeter, dev_mode=True) for _ in range(3)]
    for gateway in gateways:
        gateway.register_provider("mock", MockProvider())
    go = threading.Event()
    before = ledger.submit(lambda _: go.wait(10))
    calls = [
        asyncio.ensure_future(gateways[number % 3].aroute(prompt_request())) for number in range(12)
    ]
    await asyncio.sleep(0.2)  # all of them wait for the transaction after this one
    go.set()
    await before
    outcomes = [response.outcome for response in await asyncio.gather(*calls)]
    assert outcomes.count(RouteOutcome.SUCCESS) == 5
    assert len(ledger.read_by_event_type("DISPATCH")) == 5
    audit = audit_budgets(ledger)
    assert audit.equal, audit.differences
    assert ledger.verify().verified


# -- A caller who goes away at any moment leaves whole pairs, and holds nothing -------------------


_ANN = Identity("ann", "agent", key_id="KEY-ANN")
_KEY = BudgetScope(key_id="KEY-ANN")


async def _listener(_: Any) -> None:
    await asyncio.sleep(0.001)


@pytest.mark.parametrize("streams", [False, True])
async def test_whenever_it_is(ledger: LedgerClient, streams: bool) -> None:
    budgeter = TokenBudgeter(ledger)
    budgeter.allocate(_KEY, limits=BudgetLimits(tokens=10**9))
    gateway = LLMGateway(ledger, budgeter, dev_mode=True)
    gateway.register_provider("mock", MockProvider())
    told: set[str] = set()
    gateway.observers.append(lambda report: told.add(report.response.exchange_entry_id))
    moments = random.Random(1)
    ends: Counter[str] = Counter()
    for number in range(150):
        request = prompt_request(
            session_id=f"SES-GONE{number % 7:04}", work_order_id="", idempotency_key=f"k{number}"
        )
        sink: Any = _listener if streams else None
        call = asyncio.create_task(gateway.aroute(request, identity=_ANN, sink=sink))
        # By steps of the loop while nothing is written, by the clock while something is.
        for _ in range(number % 5):
            await asyncio.sleep(0)
        await asyncio.sleep(moments.choice([0, 0.001, 0.002, 0.004, 0.008, 0.016]))
        call.cancel()
        try:
            response = await call
        except asyncio.CancelledError:
            ends["cancelled"] += 1
            if number % 10 == 0:  # the same key again, at once
                again = await gateway.aroute(request, identity=_ANN)
                assert again.outcome is RouteOutcome.SUCCESS
        else:
            ends[str(response.outcome)] += 1
    ledger.flush()
    assert ends["cancelled"]
    dispatched = [entry.id for entry in ledger.read_by_event_type("DISPATCH")]
    ended = [e.metadata["dispatch_entry_id"] for e in ledger.read_by_event_type("EXCHANGE")]
    assert sorted(dispatched) == sorted(ended)
    assert gateway.in_flight.count() == 0
    assert ledger.select("SELECT count(*) FROM idempotency WHERE exchange_entry_id = ''") == [(0,)]
    assert budgeter.status(_KEY)[0].reserved_tokens == 0
    assert audit_budgets(ledger).equal
    assert told == {entry.id for entry in ledger.read_by_event_type("EXCHANGE")}


async def test_during_the_check_of_the_output(
    ledger: LedgerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    checking = asyncio.Event()

    async def check(*_: Any) -> list[str]:
        checking.set()
        await asyncio.sleep(600)
        return []

    monkeypatch.setattr("remit.gateway.attempt.call_in_thread", check)
    gateway = LLMGateway(ledger, dev_mode=True)
    gateway.register_provider("mock", MockProvider('{"a": 1}'))
    told: list[str] = []
    gateway.observers.append(lambda report: told.append(report.response.exchange_entry_id))
    request = prompt_request(output_schema={"type": "object"}, idempotency_key="once")
    call = asyncio.create_task(gateway.aroute(request, identity=_ANN))
    await checking.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    (exchange,) = ledger.read_by_event_type("EXCHANGE")
    assert told == [exchange.id]
    monkeypatch.undo()
    again = await gateway.aroute(request, identity=_ANN)
    assert (again.replayed, again.exchange_entry_id) == (True, exchange.id)


# -- Content that an erasure reached while its call waited is not recorded again ------------------


SECRET = "the secret of person 7, who lives at the lake"


def _asking_gateway(ledger: LedgerClient, *answers: Any) -> LLMGateway:
    for session in ("SES-TESTTEST", "SES-OTHERONE"):
        TokenBudgeter(ledger).allocate(BudgetScope(session), limits=BudgetLimits(tokens=100_000))
    config = RouterConfig("mock", "m")
    gateway = LLMGateway(ledger, TokenBudgeter(ledger), config, dev_mode=True)
    gateway.register_provider("mock", MockProvider(responses=list(answers)))
    return gateway


def _erase(target: str, in_flight: bool = False, **what: str) -> None:
    with LedgerClient(target) as other:  # as another process does
        report = other.erase(**what, reason="request")
        assert report.values > 0
        assert ("Calls in flight" in report.remainder) is in_flight


@pytest.mark.parametrize("kind", ["session", "person", "entry"])
async def test_a_retry_after_an_erasure_is_not_made(
    target: str, ledger: LedgerClient, kind: str
) -> None:
    busy = ProviderError("RATE_LIMITED", "slow down", True, retry_after_s=1.5)
    gateway = _asking_gateway(ledger, busy, "never sent")
    call = asyncio.ensure_future(gateway.aroute(prompt_request(prompt=SECRET, subject_id="ann")))
    while not ledger.count_by_event().get("EXCHANGE"):
        await asyncio.sleep(0.01)
    (entry,) = ledger.query(event_type="EXCHANGE")
    what = {"session": {"session_id": "SES-TESTTEST"}, "person": {"subject_id": "ann"},
            "entry": {"entry_id": entry.id}}[kind]  # fmt: skip
    await asyncio.to_thread(_erase, target, **what)
    response = await call
    assert (response.outcome, response.error_code) == (RouteOutcome.ERROR, "RATE_LIMITED")
    assert "erased" in (response.error_message or "")
    assert (ledger.count_by_event()["DISPATCH"], ledger.count_by_event()["EXCHANGE"]) == (1, 1)
    assert not list(ledger.query(text="lake"))


async def test_a_retry_follows_an_erasure_that_cannot_reach_it(
    target: str, ledger: LedgerClient
) -> None:
    busy = ProviderError("RATE_LIMITED", "slow down", True, retry_after_s=1.5)
    gateway = _asking_gateway(ledger, "first", busy, "third")
    await gateway.aroute(prompt_request(session_id="SES-OTHERONE"))
    call = asyncio.ensure_future(gateway.aroute(prompt_request(prompt=SECRET)))
    while ledger.count_by_event().get("EXCHANGE") != 2:
        await asyncio.sleep(0.01)
    await asyncio.to_thread(_erase, target, session_id="SES-OTHERONE")
    assert (await call).content == "third"


@pytest.mark.parametrize("session", ["SES-TESTTEST", "SES-OTHERONE"])
async def test_a_call_that_waits_for_money_during_an_erasure_is_refused(
    target: str, ledger: LedgerClient, session: str
) -> None:
    keeper, scope = TokenBudgeter(ledger), BudgetScope("SES-TESTTEST")
    gateway = _asking_gateway(ledger, "first", "second")
    await gateway.aroute(prompt_request(session_id=session))
    keeper.allocate(scope, limits=BudgetLimits(tokens=1_000))
    keeper.reserve(scope, "held", amount=Amount(800))
    call = asyncio.ensure_future(gateway.aroute(prompt_request(prompt=SECRET, max_tokens=500)))
    while not gateway.in_flight.waiting_room.waiting:
        await asyncio.sleep(0.01)
    await asyncio.to_thread(_erase, target, session_id=session)
    await asyncio.to_thread(keeper.release, "held")
    response = await call
    if session == "SES-OTHERONE":
        assert response.content == "second"
        return
    assert (response.outcome, response.error_code) == (RouteOutcome.REJECTED, "INVALID_INPUT")
    assert "erased" in (response.error_message or "")
    assert not list(ledger.query(text="lake"))


async def test_a_decision_after_an_erasure_is_not_recorded(
    target: str, ledger: LedgerClient
) -> None:
    """The decision of an ensemble is written after its calls, in a transaction of its own."""

    class Erasing(MockProvider):
        def send(self, request: Any) -> Any:
            deadline = time.monotonic() + 60
            while not ledger.count_by_event().get("EXCHANGE") and time.monotonic() < deadline:
                time.sleep(0.01)
            _erase(target, in_flight=True, session_id="SES-TESTTEST")
            return super().send(request)

    gateway = LLMGateway(ledger, dev_mode=True)
    gateway.register_provider("first", MockProvider("An answer."))
    gateway.register_provider("late", Erasing("Another."))
    models = [Candidate(name, name, {"general": 90}, served_as="m") for name in ("first", "late")]
    emitter = create_thought_record_emitter(ledger, task_id="TASK-1", agent_id="agent-1")
    options = RouteOptions(gateway, models, decision_emitter=emitter, mode="ensemble",
                           ensemble=EnsembleOptions(size=2), request=prompt_request())  # fmt: skip
    result = await aroute_request(SECRET, options)
    assert result.response.outcome is RouteOutcome.SUCCESS
    assert not ledger.count_by_event().get("THOUGHT_RECORD")
