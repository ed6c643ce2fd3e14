"""The one state machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.workorders import (
    IllegalTransitionError,
    WorkOrder,
    WorkOrderCost,
    WorkOrderState,
    WorkOrderType,
    work_order_id,
)

LEGAL = {
    ("planned", "dispatched"),
    ("planned", "failed"),
    ("dispatched", "executing"),
    ("executing", "completed"),
    ("executing", "failed"),
}


def _order() -> WorkOrder:
    return WorkOrder("WO-SES-AAAAAAAA-001", "SES-AAAAAAAA", WorkOrderType.EXECUTE)


@given(st.lists(st.sampled_from(list(WorkOrderState)), max_size=8))
def test_only_legal_steps_are_taken(path: list[WorkOrderState]) -> None:
    order = _order()
    for state in path:
        before = order.state
        try:
            order = order.moved_to(state)
            assert (before, state) in LEGAL
        except IllegalTransitionError as error:
            assert (before, state) not in LEGAL
            assert order.state is before
            assert error.next_step


def test_ids() -> None:
    assert work_order_id("SES-AAAAAAAA", 7) == "WO-SES-AAAAAAAA-007"
    assert work_order_id("SES-AAAAAAAA", 1234) == "WO-SES-AAAAAAAA-1234"


@pytest.mark.parametrize("state", list(WorkOrderState))
def test_ended_orders_go_nowhere(state: WorkOrderState) -> None:
    done = _order().moved_to(WorkOrderState.FAILED)
    with pytest.raises(IllegalTransitionError, match="cannot become"):
        done.moved_to(state)


def test_costs_add_up_and_an_unknown_price_stays_unknown() -> None:
    known = WorkOrderCost(1, 2, 3, 1, 1, 5.0, 0.5)
    assert known.plus(known) == WorkOrderCost(2, 4, 6, 2, 2, 10.0, 1.0)
    assert known.plus(WorkOrderCost()).cost_usd is None
