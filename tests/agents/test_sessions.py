"""Sessions over several processes: serialised, resumed, and summed up."""

from __future__ import annotations

import asyncio
import os
import time
from decimal import Decimal
from pathlib import Path

import pytest

from remit.gateway.leases import LeaseBusyError, LeaseLostError, LeaseManager
from remit.kernel.errors import NotFoundError
from remit.kernel.settings import LeaseSettings
from remit.ledger import LedgerClient
from tests.support.agents import Scripted
from tests.support.processes import Program, run_program
from tests.support.wire import message

_DEAD = "from remit.gateway.leases import Owner; print(Owner.current().encode())"

_TALKER = """
import sys
from remit.runtime import Runtime
with Runtime.open(sys.argv[1], flags={"supervisor.classify": False}) as runtime:
    session = runtime.session(sys.argv[2])
    for number in range(int(sys.argv[3])):
        session.turn(f"{sys.argv[4]} {number}")
"""


def test_two_processes_in_one_session_take_turns(scripted: Scripted, tmp_path: Path) -> None:
    echo = lambda body: message(f"You said {body['messages'][-1]['content']}")  # noqa: E731
    turns = 8
    with scripted(echo) as (runtime, _):
        session = runtime.session()
        given = (str(tmp_path / "root"), session.session_id, str(turns))
        with (
            Program("-c", _TALKER, *given, "left", environment=os.environ) as left,
            Program("-c", _TALKER, *given, "right", environment=os.environ) as right,
        ):
            assert (left.wait(120), right.wait(120)) == (0, 0)
        session.end()
        recorded = runtime.ledger.read_by_event_type("TURN_RECORDED")
        planned = [e.submission_id for e in runtime.ledger.read_by_event_type("WO_PLANNED")]
        exchanges = runtime.ledger.read_by_event_type("EXCHANGE")
        (end,) = runtime.ledger.read_by_event_type("SESSION_END")
    assert [e.metadata["turn_number"] for e in recorded] == list(range(1, 2 * turns + 1))
    assert len(planned) == len(set(planned)) == 2 * turns
    for entry in recorded:  # nobody got another's answer
        assert entry.metadata["response"] == f"You said {entry.metadata['user_message']}"
    # every turn saw all turns before it, whichever process they were made by
    for number, exchange in enumerate(exchanges):
        said = [one["content"] for one in exchange.metadata["prompt"] if one["role"] == "user"]
        assert said == [e.metadata["user_message"] for e in recorded[: number + 1]]
    assert end.metadata["turn_count"] == 2 * turns
    total = end.metadata["total_cost"]
    assert total["llm_calls"] == len(exchanges)
    assert total["input_tokens"] == sum(e.metadata["input_tokens"] for e in exchanges)
    assert total["output_tokens"] == sum(e.metadata["output_tokens"] for e in exchanges)


def test_the_end_of_a_session_sums_up_what_its_exchanges_cost(scripted: Scripted) -> None:
    priced = {**message("Hello."), "model": "claude-sonnet-5"}
    with scripted(priced, flags={"supervisor.classify": False}) as (runtime, _):
        with runtime.session() as session:
            results = [session.turn(f"hello {number}") for number in range(7)]
            running = session.cost()
        (end,) = runtime.ledger.read_by_event_type("SESSION_END")
        exchanges = runtime.ledger.read_by_event_type("EXCHANGE")
    exact = sum(Decimal(str(e.metadata["cost_usd"])) for e in exchanges)
    assert exact > 0
    assert end.metadata["total_cost"]["cost_usd"] == running["cost_usd"] == float(exact)
    told = sum(Decimal(str(result.cost_summary["cost_usd"])) for result in results)
    assert told == exact


def test_no_agent_goes_on_with_anothers_session(scripted: Scripted) -> None:
    with scripted(message("x")) as (runtime, _):
        session = runtime.agent("payer").session()
        with pytest.raises(NotFoundError, match="the agent payer"):
            runtime.session(session.session_id)
        with pytest.raises(NotFoundError, match="the agent payer"):
            runtime.agent("another").session(session.session_id)
        assert runtime.agent("payer").session(session.session_id).turn("x").response == "x"


# -- leases --------------------------------------------------------------------------------------

_SETTINGS = LeaseSettings(lasts_s=0.6, session_wait_s=1.0)


async def test_one_holder_at_a_time(ledger: LedgerClient) -> None:
    office = LeaseManager(ledger, LeaseSettings(lasts_s=60, session_wait_s=1.0))
    most = inside = 0

    async def work() -> None:
        nonlocal most, inside
        async with office.hold("x", wait_s=30):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.01)
            inside -= 1

    await asyncio.gather(*(work() for _ in range(12)))
    assert most == 1
    ledger.flush()  # it is given back behind all that was written
    assert not office.is_held("x")


async def test_a_lease_lasts_as_long_as_its_holder_works(ledger: LedgerClient) -> None:
    office = LeaseManager(ledger, _SETTINGS)
    async with office.hold("x", wait_s=0) as lease:
        await asyncio.sleep(3 * _SETTINGS.lasts_s)
        lease.check()
        with pytest.raises(LeaseBusyError):
            async with office.hold("x", wait_s=0.1):
                pass


def test_what_a_dead_process_held_is_free_at_once(ledger: LedgerClient) -> None:
    office = LeaseManager(ledger, _SETTINGS)
    dead = run_program("-c", _DEAD, environment=os.environ)
    far = time.time_ns() // 1_000_000 + 3_600_000
    ledger.transact(
        lambda tx: tx.execute(
            "INSERT INTO leases (name, owner, until_ms) VALUES (?, ?, ?)",
            ("x", dead.stdout.strip(), far),
        )
    )
    asyncio.run(_enter(office, wait_s=0))


async def test_a_lease_that_was_taken_over_is_noticed(ledger: LedgerClient) -> None:
    office = LeaseManager(ledger, _SETTINGS)
    async with office.hold("x", wait_s=0) as lease:
        ledger.transact(lambda tx: tx.execute("UPDATE leases SET owner = 'another'"))
        await asyncio.sleep(_SETTINGS.lasts_s)
        with pytest.raises(LeaseLostError):
            lease.check()
    assert ledger.select("SELECT owner FROM leases") == [("another",)]  # and left alone


async def _enter(office: LeaseManager, wait_s: float = 30) -> None:
    async with office.hold("x", wait_s=wait_s):
        pass
