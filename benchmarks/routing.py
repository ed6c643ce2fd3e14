"""Model calls through the gateway, without model time: budget, and a record before and after.

The floor makes two payloads of the same bytes durable for each call, one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.appends import PROMPT_CHARACTERS, bytes_on_record
from benchmarks.floor import BareCommitter, payload_of
from benchmarks.provider import InstantProvider
from benchmarks.rounds import alternate, new_directory, rate_of_tasks, rate_of_threads
from benchmarks.table import Comparison
from remit.gateway import LLMGateway, RouterConfig
from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.kernel.exchange import PromptRequest, RouteOutcome
from remit.ledger import LedgerClient

SESSION = "SES-BENCHMARK"
ORDER = "WO-BENCHMARK-001"
NO_BOUND = 10**12


def compare(scratch: Path) -> Iterator[Comparison]:
    """One caller, sixteen in threads, sixteen in one event loop."""
    sizes = bytes_of_a_call(new_directory(scratch))
    for callers, name in ((1, "route, 1 thread"), (16, "route, 16 threads")):
        floor, ours = alternate(
            scratch, partial(bare_rate, callers, sizes), partial(gateway_rate, callers)
        )
        yield Comparison(name, floor, ours, callers)
    floor, ours = alternate(
        scratch, partial(bare_rate_in_loop, 16, sizes), partial(gateway_rate_in_loop, 16)
    )
    yield Comparison("aroute, 16 tasks in one event loop", floor, ours, 16)


def bare_rate(callers: int, sizes: tuple[int, int], directory: Path) -> float:
    """Pairs of payloads per second, handed over by threads."""
    with BareCommitter(directory / "floor.db") as committer:

        def call(number: int) -> None:
            for size in sizes:
                committer.submit(payload_of(number, size)).result()

        return rate_of_threads(callers, call)


def bare_rate_in_loop(callers: int, sizes: tuple[int, int], directory: Path) -> float:
    """Pairs of payloads per second, handed over by tasks."""
    with BareCommitter(directory / "floor.db") as committer:

        async def call(number: int) -> None:
            for size in sizes:
                await asyncio.wrap_future(committer.submit(payload_of(number, size)))

        return rate_of_tasks(callers, call)


def gateway_rate(callers: int, directory: Path) -> float:
    """Calls per second, made by threads."""
    with open_gateway(directory) as (gateway, _):

        def call(number: int) -> None:
            assert gateway.route(request(number)).outcome is RouteOutcome.SUCCESS

        return rate_of_threads(callers, call)


def gateway_rate_in_loop(callers: int, directory: Path) -> float:
    """Calls per second, made by tasks."""
    with open_gateway(directory) as (gateway, _):

        async def call(number: int) -> None:
            assert (await gateway.aroute(request(number))).outcome is RouteOutcome.SUCCESS

        return rate_of_tasks(callers, call)


@contextmanager
def open_gateway(directory: Path) -> Iterator[tuple[LLMGateway, LedgerClient]]:
    """A gateway over a ledger, with a budget for the session and for its work order."""
    with LedgerClient(directory / "ledger.db") as ledger:
        budgeter = TokenBudgeter(ledger)
        budgeter.allocate(BudgetScope(SESSION), NO_BOUND)
        budgeter.allocate(BudgetScope(SESSION, ORDER), NO_BOUND)
        config = RouterConfig(default_provider="instant", default_model="instant-1")
        gateway = LLMGateway(ledger, budgeter, config, dev_mode=True)
        gateway.register_provider("instant", InstantProvider())
        yield gateway, ledger


def request(number: int) -> PromptRequest:
    """A request with a prompt that no other number gives."""
    return PromptRequest(
        prompt=f"{number:<{PROMPT_CHARACTERS}}.",
        prompt_pack_id="PRM-BENCHMARK-001",
        contract_id="PRC-BENCHMARK-001",
        agent_id="benchmark",
        agent_class="RESIDENT",
        framework_id="FMWK-BENCHMARK",
        package_id="PKG-BENCHMARK-001",
        work_order_id=ORDER,
        session_id=SESSION,
        tier="ho1",
        max_tokens=100,
    )


def bytes_of_a_call(directory: Path) -> tuple[int, int]:
    """Bytes that one call puts on record before the provider is asked, and after."""
    with open_gateway(directory) as (gateway, ledger):
        before = bytes_on_record(ledger)
        response = gateway.route(request(0))
        assert response.outcome is RouteOutcome.SUCCESS
        dispatch = len(ledger.read_record(response.dispatch_entry_id))
        return dispatch, bytes_on_record(ledger) - before - dispatch
