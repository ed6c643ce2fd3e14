"""The agents of tests with workers in processes of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remit import LedgerClient, LedgerEntry, Runtime, Schedule, Tool
from remit.agents.queue import OrderQueue, Submission
from remit.kernel.settings import default_settings
from remit.runtime import Agent
from tests.agents.killed import Killer
from tests.support.agents import TEXT


def pay(text: str) -> str:
    """Pay: a line for each time that it did."""
    with Path(os.environ["PAID"]).open("a") as file:
        file.write(f"{text}\n")
    return "paid"


def agents(runtime: Runtime) -> Iterator[Agent[Any] | Schedule[Any]]:
    """A clerk, a till who pays when a person has approved it, and a boss who has a payer pay."""
    yield runtime.agent("clerk", instructions="Answer.", max_retries=0)
    tool = Tool("pay", "Pay.", TEXT, pay)
    yield runtime.agent("till", instructions="Pay.", tools=[tool], approve=["pay"], max_retries=0)
    payer = runtime.agent("payer", instructions="Pay.", tools=[tool], max_retries=0)
    yield runtime.agent("boss", instructions="Have it paid.", tools=[payer.as_tool()])


def scheduled(runtime: Runtime) -> Schedule[str]:
    """A turn each second."""
    return Schedule(runtime.agent("clerk", max_retries=0), "often", "Count.", every_s=1)


def nothing(runtime: Runtime) -> list[str]:
    """No agents."""
    return ["clerk"]


def submitting(path: str, at: int, when: str) -> None:
    """Submit orders, each with an entry of the caller's in the same transaction, until killed."""
    killer = Killer(at, when)
    with LedgerClient(path) as ledger:
        run = ledger._store.run

        def counted(units: Any) -> Any:
            ended = killer.step()
            done = run(units)
            ended()
            return done

        ledger._store.run = counted  # type: ignore[method-assign]
        orders = OrderQueue.of_root(ledger, default_settings())
        for number in range(50):
            _, put = orders.prepare(Submission(agent_id="clerk", task=f"task {number}"), by="t")
            own = LedgerEntry("OWN", "S", "D", "r", metadata={"n": number})
            ledger.transact(lambda tx, put=put, own=own: (tx.append(own), put(tx)))
