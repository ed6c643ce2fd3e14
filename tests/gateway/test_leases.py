"""Calls that take long keep their lease, and are settled by nobody while their process lives."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from remit.gateway import CircuitBreakerConfig, InFlightCalls, LLMGateway, RouterConfig
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter, audit_budgets
from remit.kernel.exchange import RouteOutcome
from remit.ledger import LedgerClient
from remit.providers import MockProvider
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
