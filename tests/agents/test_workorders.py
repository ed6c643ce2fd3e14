"""The one state machine, and orders read back from their entries."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

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
)
from remit.ledger import LedgerClient, LedgerEntry

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
