"""The one state machine, and orders read back from their entries."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from hypothesis import given, strategies as st

from remit.agents.supervisor import Plan, PlanStep
from remit.agents.tools import Tool
from remit.agents.workorders import (
    OrderRecordError,
    WorkOrder,
    WorkOrderConstraints,
    WorkOrderCost,
    WorkOrderState,
    WorkOrderType,
    plan_of,
    recorded_order,
    replay,
    trace_hash,
)
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient, LedgerEntry
from tests.support.agents import Scripted
from tests.support.wire import Raw, message

LEGAL = {
    ("planned", "dispatched"): "ho2",
    ("planned", "failed"): "ho2",
    ("dispatched", "executing"): "ho1",
    ("executing", "completed"): "ho1",
    ("executing", "failed"): "ho1",
}
EVENTS = {
    "WO_DISPATCHED": "dispatched",
    "WO_EXECUTING": "executing",
    "WO_COMPLETED": "completed",
    "WO_FAILED": "failed",
}
TIERS = ("ho1", "ho2")
ORDER = WorkOrder(
    "WO-SES-AAAAAAAA-001",
    "SES-AAAAAAAA",
    WorkOrderType.EXECUTE,
    input_context={"user_input": "hello"},
    constraints=WorkOrderConstraints("PRC-X-001", 10, 0.5, 3, 9.0, ("a", "b"), ("b",), ("t",)),
    acceptance_criteria={"non_empty": True},
)


def _entry(event: str, tier: str, **further: Any) -> LedgerEntry:
    return LedgerEntry(
        event_type=event,
        submission_id=ORDER.wo_id,
        decision=event,
        reason=event,
        metadata={
            "provenance": {
                "agent_id": "a",
                "session_id": ORDER.session_id,
                "work_order_id": ORDER.wo_id,
            },
            "scope": {"tier": tier},
            **further,
        },
    )


def _planned() -> LedgerEntry:
    return _entry("WO_PLANNED", "ho2", **plan_of(ORDER))


@given(
    st.lists(st.tuples(st.sampled_from(list(WorkOrderState)), st.sampled_from(TIERS)), max_size=8)
)
def test_only_legal_steps_by_their_owner_are_taken(path: list[tuple[WorkOrderState, str]]) -> None:
    order = ORDER
    for state, tier in path:
        before = order.state
        try:
            order = order.moved_to(state, by=tier)
            assert LEGAL[before, state] == tier
        except OrderRecordError:
            assert LEGAL.get((before, state)) != tier
            assert order.state is before


@given(
    st.lists(
        st.tuples(st.sampled_from(list(EVENTS)), st.sampled_from(TIERS), st.booleans()),
        max_size=7,
    )
)
def test_an_order_that_went_no_legal_way_is_refused(steps: list[tuple[str, str, bool]]) -> None:
    state, legal = "planned", True
    entries = [_planned()]
    for event, tier, resumed in steps:
        resuming = event == "WO_EXECUTING" and resumed
        entries.append(_entry(event, tier, **({"resumed": True} if resuming else {})))
        if resuming:
            legal = legal and state == "executing"
        else:
            legal = legal and LEGAL.get((state, EVENTS[event])) == tier
            state = EVENTS[event]
    if legal:
        order = replay(entries)
        assert order.state == state
        assert order.constraints == ORDER.constraints
        assert order.input_context == ORDER.input_context
    else:
        with pytest.raises(OrderRecordError):
            replay(entries)


def test_an_order_comes_back_from_the_ledger_as_it_stands(ledger: LedgerClient) -> None:
    cost = WorkOrderCost(1, 2, 3, 1, 0, 5.0, 0.5).to_dict()
    ledger.write(_planned())
    ledger.write(_entry("WO_DISPATCHED", "ho2"))
    ledger.write(_entry("WO_EXECUTING", "ho1"))
    ledger.write(_entry("WO_FAILED", "ho1", error_code="timeout", error_message="late",
                        cost=cost))  # fmt: skip
    order = recorded_order(ledger.scoped(tier="ho2"), ORDER.wo_id)
    assert order is not None
    assert order.state is WorkOrderState.FAILED
    assert order.error == {"code": "timeout", "message": "late"}
    assert order.cost.to_dict() == cost
    assert recorded_order(ledger, "WO-SES-AAAAAAAA-002") is None


def test_an_order_whose_plan_was_erased_is_none(ledger: LedgerClient) -> None:
    entry_id = ledger.write(_planned())
    ledger.erase(entry_id, reason="asked", requested_by="a person")
    with pytest.raises(OrderRecordError, match="erased"):
        recorded_order(ledger, ORDER.wo_id)


def test_costs_add_up_and_an_unknown_price_stays_unknown() -> None:
    known = WorkOrderCost(1, 2, 3, 1, 1, 5.0, 0.1)
    assert WorkOrderCost.sum([known, known, known]) == WorkOrderCost(3, 6, 9, 3, 3, 15.0, 0.3)
    assert WorkOrderCost.sum([known, WorkOrderCost()]).cost_usd == 0.1  # nothing was asked
    assert WorkOrderCost.sum([known, WorkOrderCost(1, 0, 1, 1)]).cost_usd is None
    a_paid_tool = WorkOrderCost(tool_calls=1, cost_usd=0.25)
    assert WorkOrderCost.sum([known, a_paid_tool]).cost_usd == 0.35
    assert WorkOrderCost.sum([a_paid_tool, WorkOrderCost()]).cost_usd == 0.25


# -- Plans: pipelines, steps at once, failures, and what a second opinion says --------------------


def _tool_step(name: str, tool_id: str, *depends_on: str) -> PlanStep:
    return PlanStep(
        name, wo_type=WorkOrderType.TOOL_CALL, tools=(tool_id,), depends_on=depends_on,
        input={"tool_id": tool_id, "arguments": {}},
    )  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(0, 6), max_size=3)), max_size=6))
def test_a_plan_is_refused_if_it_cannot_be_done(drawn: list[tuple[int, list[int]]]) -> None:
    steps = tuple(
        PlanStep(str(name), "PRC-X-001", depends_on=tuple(map(str, waits))) for name, waits in drawn
    )
    names = [step.name for step in steps]
    waits = {step.name: set(step.depends_on) for step in steps}
    possible = bool(names) and len(set(names)) == len(names)
    possible = possible and all(one <= set(names) for one in waits.values())
    if possible:
        left = dict(waits)
        while free := [name for name, on in left.items() if not on & left.keys()]:
            for name in free:
                del left[name]
        possible = not left
    if possible:
        assert Plan(steps).answering.name == names[-1]
    else:
        with pytest.raises(InvalidInputError):
            Plan(steps)


def test_steps_that_wait_for_nobody_run_at_once_and_their_results_meet(scripted: Scripted) -> None:
    both = threading.Barrier(2, timeout=60)

    def look(what: str) -> Any:
        both.wait()
        return {"found": what}

    tools = [
        Tool(name, "Look.", {"type": "object"}, lambda name=name: look(name))
        for name in ("north", "south")
    ]
    plan = Plan(
        (
            _tool_step("up", "north"),
            _tool_step("down", "south"),
            PlanStep("answer", "PRC-EXECUTE-001", depends_on=("up", "down")),
        )
    )
    with scripted(message("Both found.")) as (runtime, server):
        agent = runtime.agent("scout", tools=tools, planner=lambda _: plan)
        with agent.session() as session:
            result = session.turn("look around")
        asked = json.dumps(server.calls[-1].body["messages"])
        planned = runtime.ledger.read_by_event_type("WO_PLANNED")
        dispatched = runtime.ledger.read_by_event_type("WO_DISPATCHED")
        (gate,) = runtime.ledger.read_by_event_type("WO_QUALITY_GATE")
        ids = [entry.submission_id for entry in planned]
        recomputed = trace_hash(runtime.ledger, gate.metadata["work_order_ids"])
    assert result.response == "Both found."
    assert "north" in asked
    assert "south" in asked
    assert [entry.metadata["step"] for entry in planned] == ["up", "down", "answer"]
    assert planned[2].metadata["depends_on"] == ["up", "down"]
    assert dispatched[-1].metadata["prior_results"] == ids[:2]
    assert gate.metadata["work_order_ids"] == ids
    assert gate.metadata["trace_hash"] == recomputed


def test_a_step_whose_forerunner_failed_never_begins(scripted: Scripted) -> None:
    plan = Plan(
        (
            PlanStep("first", "PRC-NOSUCH-001"),
            PlanStep("answer", "PRC-EXECUTE-001", depends_on=("first",)),
        )
    )
    with scripted(message("never")) as (runtime, server):
        agent = runtime.agent("scout", planner=lambda _: plan, max_retries=0)
        result = agent.run("look around")
        failed = runtime.ledger.read_by_event_type("WO_FAILED")
        assert server.calls == []
    assert not result.quality_gate_passed
    assert [one["state"] for one in result.wo_chain_summary] == ["failed", "failed"]
    assert [entry.metadata["scope"]["tier"] for entry in failed] == ["ho1", "ho2"]
    assert failed[1].metadata["error_code"] == "cancelled"


def test_a_planner_that_fails_degrades_and_says_so(scripted: Scripted) -> None:
    def planner(_: Any) -> Any:
        return {"steps": []}

    with scripted(message("Direct.")) as (runtime, _):
        result = runtime.agent("scout", planner=planner).run("look around")
    assert result.degraded
    assert result.response == "Direct."


def test_a_reviewer_can_send_an_answer_back(scripted: Scripted) -> None:
    answers = iter(["The moon is cheese.", "The moon is rock."])

    def reply(body: dict[str, Any]) -> dict[str, Any]:
        if not body.get("output_config"):
            return message(next(answers))
        verdict = {"verdict": "accept", "reasons": []}
        if "cheese" in json.dumps(body["messages"]):
            verdict = {"verdict": "reject", "reasons": ["it is not cheese"]}
        return message(json.dumps(verdict))

    with scripted(reply) as (runtime, _):
        result = runtime.agent("guide", verify=True, max_retries=1).run("what is the moon?")
        gates = runtime.ledger.read_by_event_type("WO_QUALITY_GATE")
        planned = runtime.ledger.read_by_event_type("WO_PLANNED")
    assert result.response == "The moon is rock."
    assert [gate.metadata["reasons"] for gate in gates] == [["it is not cheese"], []]
    assert [entry.metadata["step"] for entry in planned] == ["answer", "verify"] * 2
    assert planned[1].metadata["constraints"]["prompt_contract_id"] == "PRC-VERIFY-001"


def test_a_review_that_fails_is_not_a_yes(scripted: Scripted) -> None:
    def reply(body: dict[str, Any]) -> Any:
        return Raw(b"{}", 400) if body.get("output_config") else message("Trust me.")

    with scripted(reply) as (runtime, _):
        result = runtime.agent("guide", verify=True, max_retries=0).run("what is the moon?")
        (escalation,) = runtime.ledger.read_by_event_type("ESCALATION")
    assert not result.quality_gate_passed
    assert "the review failed" in result.error_detail
    assert "the review failed" in escalation.metadata["reasons"][0]


def test_an_answer_that_claims_what_no_tool_did_is_sent_back(scripted: Scripted) -> None:
    script = (message("I checked the ledger: all is well."), message("I cannot see the ledger."))
    with scripted(*script) as (runtime, _):
        result = runtime.agent("guide").run("is all well?")
        gates = runtime.ledger.read_by_event_type("WO_QUALITY_GATE")
    assert result.response == "I cannot see the ledger."
    assert "claims 'I checked the'" in gates[0].metadata["reasons"][0]


async def test_orders_by_themselves_run_at_once_and_are_done_once(scripted: Scripted) -> None:
    reply = lambda body: message(f"row {body['messages'][-1]['content']}")  # noqa: E731
    with scripted(reply) as (runtime, server):
        session = runtime.agent("clerk").session()
        first = await asyncio.gather(
            *(session.awork(f"{number}", key=f"row-{number}") for number in range(12))
        )
        calls = len(server.calls)
        second = await asyncio.gather(
            *(session.awork(f"{number}", key=f"row-{number}") for number in range(12))
        )
        assert calls == len(server.calls) == 12
        with pytest.raises(InvalidInputError, match="another input"):
            await session.awork("another text", key="row-1")
        for odd in ("a b", "a/b", "../x", "-x", "x" * 101):
            with pytest.raises(InvalidInputError, match="cannot name"):
                await session.awork("x", key=odd)
        await runtime.aclose()
    assert [one.output_result["text"] for one in first] == [f"row {n}" for n in range(12)]
    assert [one.output_result for one in second] == [one.output_result for one in first]
