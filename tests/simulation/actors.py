"""What the processes do: gateways that call a model, workers that do orders, holders of leases."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

from remit.agents.queue import OrderQueue, Submission, TableEngine
from remit.gateway import FinishCall, InFlightCalls
from remit.gateway.budget import (
    Amount,
    BudgetRefusedError,
    BudgetScope,
    TokenBudgeter,
    TokenUsage,
)
from remit.gateway.call_transactions import StartCall
from remit.gateway.leases import LeaseManager
from remit.gateway.records import dispatch_entry
from remit.kernel.errors import RemitError
from remit.kernel.settings import LeaseSettings, default_settings
from remit.ledger import LedgerEntry
from remit.runtime import OrderWorker
from remit.runtime.order_attempts import Done
from tests.simulation.database import SimulatedLedger
from tests.simulation.invariants import Watch
from tests.simulation.world import Process
from tests.support.waiting import Waits

__all__ = ["AGENT", "BUDGETS", "SESSION", "gateway", "holder", "submitter", "worker"]

SESSION, AGENT = "SES-SHARED", "agent"
BUDGETS = 400, 4_000
"""Tokens for every ten processes: a budget that the calls of a run exceed, and one they do not."""
_CALL_LEASE_MS = 4_000
_LEASES = LeaseSettings(lasts_s=3.0, session_wait_s=1.0)
_RECOVER_S = 1.0


async def _recover(in_flight: InFlightCalls) -> None:
    await asyncio.to_thread(in_flight.recover, "charge", _CALL_LEASE_MS)


async def gateway(process: Process, ledger: SimulatedLedger, watch: Watch, calls: int) -> None:
    """Make calls one after the other, and recover those of others."""
    chance = process.world.random
    in_flight = InFlightCalls(ledger, TokenBudgeter(ledger), True, wait_ms=1_000)  # type: ignore[arg-type]

    async def look() -> None:
        while True:
            await asyncio.sleep(_RECOVER_S)
            with contextlib.suppress(RemitError):
                await _recover(in_flight)

    looking = asyncio.create_task(look())
    watch.keep(process, looking)
    for _ in range(calls):
        await asyncio.sleep(chance.uniform(0.0, 2.0))
        await _call(process, ledger, in_flight, watch)
    watch.finished(process)


async def _call(
    process: Process, ledger: SimulatedLedger, in_flight: InFlightCalls, watch: Watch
) -> None:
    """Try up to three models, each attempt under a dispatch and a reservation of its own."""
    most = process.world.random.randint(10, 200)
    for attempt in range(1, 4):
        if await _attempt(process, ledger, in_flight, watch, most, attempt):
            return


async def _attempt(
    process: Process,
    ledger: SimulatedLedger,
    in_flight: InFlightCalls,
    watch: Watch,
    most: int,
    attempt: int,
) -> bool:
    """Return False if the provider failed and the next model is to be tried."""
    chance = process.world.random
    names = ("PRC-SIM-001", AGENT, SESSION)
    prepared = ledger.prepare(dispatch_entry("sim", f"model-{attempt}", *names, ""))
    path = BudgetScope(SESSION, agent_id=AGENT).path
    about = (SESSION, "", AGENT, "PRC-SIM-001", "")
    step = StartCall(
        (prepared,),
        path,
        Amount(most, 0),
        int(attempt == 1),
        True,
        _CALL_LEASE_MS,
        about,
        attempt,
        Waits(),
    )
    try:
        dispatch_id, hold, _ = await in_flight.begin(step)
    except BudgetRefusedError:
        watch.refusals += 1
        return True
    except RemitError:
        return True
    try:
        fails = chance.random() < 0.3
        used = TokenUsage(chance.randint(0, most // 2), chance.randint(0, most // 2), cost_nano=0)
        watch.sent_upstream(dispatch_id, used.total)
        await asyncio.sleep(chance.choice((0.05, 0.3, 1.0, 6.0)) * chance.random())
        outcome = "error" if fails else "success"
        entry = LedgerEntry(
            "EXCHANGE", "PRC-SIM-001", "SUCCESS", "Exchange completed",
            metadata={
                "agent_id": AGENT, "session_id": SESSION, "contract_id": "PRC-SIM-001",
                "dispatch_entry_id": dispatch_id, "input_tokens": used.input_tokens,
                "output_tokens": used.output_tokens, "price_version": "1", "cost_usd": 0.0,
                "outcome": outcome, "attempt": attempt,
            },
        )  # fmt: skip
        finish = FinishCall((ledger.prepare(entry),), dispatch_id, hold, used)
        with contextlib.suppress(RemitError):
            await in_flight.finish(finish)
        return not fails
    finally:
        in_flight.ended(dispatch_id)


async def holder(
    process: Process, ledger: SimulatedLedger, watch: Watch, name: str, times: int
) -> None:
    """Work under a lease, several times."""
    chance = process.world.random
    leases = LeaseManager(ledger, _LEASES)  # type: ignore[arg-type]
    for _ in range(times):
        await asyncio.sleep(chance.uniform(0, 1.5))
        try:
            async with leases.hold(name, wait_s=1.0) as lease:
                with watch.holding(process, lease):
                    for _ in range(chance.randint(1, 8)):
                        await asyncio.sleep(chance.uniform(0, 1.0))
                        lease.check()
        except RemitError:  # busy, run out, or the database is away
            continue
    watch.finished(process)


def orders_of(ledger: SimulatedLedger) -> OrderQueue:
    """The queue, as one process has it."""
    settings = default_settings().worker
    orders = settings.orders.model_copy(update={"retry_base_s": 0.2, "drain_s": 1.0})
    settings = settings.model_copy(update={"orders": orders})
    return OrderQueue(ledger, settings, TableEngine(ledger, settings))  # type: ignore[arg-type]


async def submitter(process: Process, ledger: SimulatedLedger, watch: Watch, orders: int) -> None:
    """Submit orders, each under a key of its own, until it is known to be there."""
    queue = orders_of(ledger)
    for number in range(orders):
        wanted = Submission(agent_id=AGENT, task="task", max_attempts=50)
        while True:
            try:
                name = await asyncio.to_thread(
                    queue.submit, wanted, by="sim", key=f"{process.pid}-{number}"
                )
            except RemitError:
                await asyncio.sleep(0.5)
                continue
            watch.submitted(name)
            break
        await asyncio.sleep(process.world.random.uniform(0, 1.0))
    watch.finished(process)


async def worker(process: Process, ledger: SimulatedLedger, watch: Watch) -> None:
    """The product's worker; its orders take a while, fail, and are given up now and then."""
    chance = process.world.random
    queue = orders_of(ledger)
    in_flight = InFlightCalls(ledger, TokenBudgeter(ledger), True)  # type: ignore[arg-type]
    settings = default_settings()
    gateway_settings = settings.gateway.model_copy(update={"recover_every_s": _RECOVER_S})

    async def poll() -> None: ...

    runtime: Any = SimpleNamespace(
        loaded=SimpleNamespace(
            settings=SimpleNamespace(worker=queue._settings, gateway=gateway_settings)
        ),
        ledger=ledger, leases=LeaseManager(ledger, _LEASES), orders=queue,  # type: ignore[arg-type]
        gateway=SimpleNamespace(
            recover=lambda: in_flight.recover("charge", _CALL_LEASE_MS),
            batches=SimpleNamespace(poll=poll),
        ),
    )  # fmt: skip

    async def turn(claim: Any) -> Done:
        await asyncio.sleep(chance.choice((0.05, 0.5, 2.0)) * chance.random())
        if chance.random() < 0.15:
            return Done(outcome="failed", code="sim", message="no luck", again=True)
        return Done(outcome="completed", turn_entry_id="")

    while True:
        one = OrderWorker(runtime, at_once=3, kinds={"turn": turn})
        try:
            await one.run()
        except RemitError:  # its seat could not be had: the program ends, and is started again
            await asyncio.sleep(1.0)
