"""Whole turns through the wired runtime: recorded, checked, continued after a restart."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import time
from concurrent.futures import ThreadPoolExecutor, wait
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from remit.agents.workorders import AnswerRejected, Degraded
from remit.gateway.leases import LeaseBusyError, LeaseLostError, LeaseManager
from remit.kernel.errors import NotFoundError
from remit.kernel.settings import LeaseSettings
from remit.ledger import EVENTS, LedgerClient
from tests.support.agents import CLASSIFIED, Scripted, by_kind
from tests.support.processes import Program, run_program
from tests.support.waiting import until
from tests.support.wire import Raw, message, tool_use


def test_a_turn_is_on_record_from_plan_to_delivery(scripted: Scripted) -> None:
    script = by_kind(
        message("Looking.", tool_use("list_sessions", {})), message("There is one session.")
    )
    with scripted(script) as (runtime, _):
        with runtime.session() as conversation:
            result = conversation.turn("list the sessions")
        every = runtime.ledger.read_all()
        began = next(n for n, entry in enumerate(every) if entry.event_type == "SESSION_START")
        entries = every[began:]
        report = runtime.ledger.verify()
    assert report.verified, report.problems
    assert result.response == "There is one session."
    assert result.quality_gate_passed
    assert result.classification == CLASSIFIED
    assert result.tool_results[0]["tool_id"] == "list_sessions"
    assert result.cost_summary["llm_calls"] == 3
    names = [e.event_type for e in entries if e.event_type not in ("DISPATCH", "BUDGET_ALLOCATED")]
    assert names == [
        "SESSION_START",
        "WO_PLANNED", "WO_DISPATCHED", "WO_EXECUTING", "EXCHANGE", "LLM_CALL", "WO_COMPLETED",
        "WO_PLANNED", "WO_DISPATCHED", "WO_EXECUTING", "EXCHANGE", "LLM_CALL",
        "TOOL_INTENT", "TOOL_CALL", "EXCHANGE", "LLM_CALL", "WO_COMPLETED",
        "WO_CHAIN_COMPLETE", "WO_QUALITY_GATE", "TURN_RECORDED", "SESSION_END",
    ]  # fmt: skip
    for entry in entries:
        event = EVENTS[entry.event_type]
        missing = set(event.keys) - set(entry.metadata)
        assert not missing, (entry.event_type, missing)
        known = {*event.keys, *event.optional}
        assert set(entry.metadata) <= known, entry.event_type


def test_the_trace_hash_can_be_computed_again(scripted: Scripted) -> None:
    with scripted(by_kind(message("hi"))) as (runtime, _):
        with runtime.session() as conversation:
            conversation.turn("hello")
        (gate,) = runtime.ledger.read_by_event_type("WO_QUALITY_GATE")
        (chain,) = runtime.ledger.read_by_event_type("WO_CHAIN_COMPLETE")
        hashes = [
            entry.entry_hash
            for entry in runtime.ledger.query(tier="ho1")
            if entry.metadata.get("work_order_id") in gate.metadata["work_order_ids"]
            or entry.metadata.get("provenance", {}).get("work_order_id")
            in gate.metadata["work_order_ids"]
        ]
    expected = hashlib.sha256("".join(hashes).encode()).hexdigest()
    assert gate.metadata["trace_hash"] == chain.metadata["trace_hash"] == expected


def test_a_session_goes_on_after_a_restart(scripted: Scripted) -> None:
    with scripted(by_kind(message("Nice to meet you."))) as (first, _):
        conversation = first.session()
        conversation.turn("my name is Ada")
        session_id = conversation.session_id  # no end: the process just goes away

    def recall(body: dict[str, Any]) -> dict[str, Any]:
        said = [turn["content"] for turn in body["messages"] if turn["role"] == "user"]
        return message(f"You said: {said[-2]}")

    with scripted(by_kind(recall)) as (second, _):
        with second.session(session_id) as conversation:
            assert conversation.turn_count == 1
            assert (
                conversation.turn("which name did I give?").response == "You said: my name is Ada"
            )
        turns = second.ledger.read_by_event_type("TURN_RECORDED")
        assert [turn.metadata["turn_number"] for turn in turns] == [1, 2]
        assert [turn.submission_id for turn in turns] == [session_id] * 2
        orders = [e.submission_id for e in second.ledger.read_by_event_type("WO_PLANNED")]
        assert len(set(orders)) == len(orders) == 4
        (end,) = second.ledger.read_by_event_type("SESSION_END")
        used = sum(
            e.metadata["input_tokens"] + e.metadata["output_tokens"]
            for e in second.ledger.read_by_event_type("EXCHANGE")
        )
    assert end.metadata["turn_count"] == 2
    assert end.metadata["total_cost"]["total_tokens"] == used


def test_a_rejected_answer_is_tried_once_more_with_the_reason(scripted: Scripted) -> None:
    heard: list[Any] = []
    script = by_kind(message("  "), message("A real answer."))
    with scripted(script) as (runtime, server):
        result = runtime.session().turn("hello", on_event=heard.append)
        gates = runtime.ledger.read_by_event_type("WO_QUALITY_GATE")
        second = str(server.calls[-1].body["messages"][-1])
    assert result.response == "A real answer."
    assert [gate.metadata["verdict"] for gate in gates] == ["reject", "accept"]
    assert "the answer is empty" in second
    assert next(event for event in heard if isinstance(event, AnswerRejected)).retrying


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()],
    ids=repr,
)  # fmt: skip
def test_an_error_of_a_listener_is_not_the_turns(scripted: Scripted, error: BaseException) -> None:
    def listen(_: object) -> None:
        raise error

    with scripted(by_kind(message("Hello."))) as (runtime, _):
        assert runtime.session().turn("hello", on_event=listen).response == "Hello."


def test_no_answer_is_made_in_the_models_place(scripted: Scripted) -> None:
    with scripted(by_kind(message(""))) as (runtime, _):
        result = runtime.session().turn("hello")
        (escalation,) = runtime.ledger.read_by_event_type("ESCALATION")
    assert not result.quality_gate_passed
    assert "the answer is empty" in result.error_detail
    assert escalation.metadata["reasons"] == ["the answer is empty"]


def test_a_provider_that_is_down_is_said_plainly(scripted: Scripted) -> None:
    with scripted(Raw(b"<html>", 503, "text/html")) as (runtime, _):
        result = runtime.session().turn("hello")
        counts = runtime.ledger.count_by_event()
        verified = runtime.ledger.verify().verified
    assert not result.quality_gate_passed
    assert result.error_code == "SERVER_ERROR"
    # The failure that opened the circuit, and that the second attempt met it.
    assert "HTTP 503" in result.error_detail
    assert "CIRCUIT_OPEN" in result.error_detail
    assert "SERVER" not in result.response
    assert counts["DISPATCH"] == counts["EXCHANGE"]
    assert counts["TURN_RECORDED"] == 1
    assert verified


@pytest.mark.parametrize("breaks", ["remove", "garble"])
def test_without_its_contract_an_agent_answers_nothing(scripted: Scripted, breaks: str) -> None:
    heard: list[Any] = []
    with scripted(by_kind(message("Direct."))) as (runtime, server):
        contract = runtime.root.tier("ho1") / "contracts" / "PRC-SYNTHESIZE-001.json"
        if breaks == "remove":
            contract.unlink()
        else:
            contract.write_text("{")
        result = runtime.session().turn("hello", on_event=heard.append)
        (entry,) = runtime.ledger.read_by_event_type("DEGRADATION")
        asked = [call for call in server.calls if not call.body.get("output_config")]
    assert asked == []  # instructions, limits and acceptance are gone: nothing may speak for it
    assert result.degraded
    assert not result.quality_gate_passed
    assert result.error_code.startswith("contract_")
    assert "contract" not in result.response
    assert entry.metadata["error_code"].startswith("contract_")
    assert any(isinstance(event, Degraded) for event in heard)


def test_a_turn_waits_for_the_disk_with_the_answer_it_paid_for(scripted: Scripted) -> None:
    asked = []

    def answer(_: dict[str, Any]) -> dict[str, Any]:
        asked.append(1)
        if len(asked) == 1:
            fill(ledger)
        return message(text)

    text = secrets.token_hex(40_000).translate(str.maketrans("0123456789", "ghijklmnop"))
    with (
        scripted(by_kind(answer)) as (runtime, _),
        ThreadPoolExecutor() as pool,
    ):
        ledger: LedgerClient = runtime.ledger
        conversation = runtime.session()
        turn = pool.submit(conversation.turn, "write")
        try:
            until(lambda: "full" in ledger.outage.reason, 20)
            assert not wait([turn], timeout=0.3).done
        finally:
            make_room(ledger)
        assert turn.result(20).response == text
        assert len(asked) == 1
        assert not ledger.orphans()
        assert ledger.verify().verified
        assert conversation.turn("and now?").response == text


def fill(ledger: LedgerClient) -> None:
    """Leave the database no page more than it has."""
    ((pages,),) = ledger.select("SELECT page_count FROM pragma_page_count")
    ledger.transact(lambda tx: tx.execute(f"PRAGMA max_page_count={pages}"))


def make_room(ledger: LedgerClient) -> None:
    ledger.transact(lambda tx: tx.execute("PRAGMA max_page_count=1000000"))


# -- Sessions over several processes: serialised, resumed, and summed up --------------------------


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
