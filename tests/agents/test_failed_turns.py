"""A turn that fails says why in a code and in a detail, apart from what the customer reads."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import pytest

from remit.agents.supervisor import Plan, PlanStep, TurnContext
from remit.agents.supervisor.turn_result import can_change
from remit.agents.tools import Tool
from remit.agents.workorders import WorkOrder, WorkOrderState, WorkOrderType
from tests.support.agents import TEXT, Scripted, tools_only
from tests.support.wire import (
    Raw,
    message,
    tool_use,
)


def test_a_model_without_a_price_under_a_limit_in_dollars_is_named(scripted: Scripted) -> None:
    with scripted(message("Three minutes.")) as (runtime, server):
        result = runtime.agent("guide", order_usd=1.0, model="own-model").run("How long?")
        assert server.calls == []
    assert result.error_code == "UNPRICED"
    assert "my model has no price" in result.response
    assert "remit price set own-model --provider anthropic" in result.error_detail
    assert "--context-window … --max-output-tokens …" in result.error_detail


def test_an_order_that_timed_out_is_not_paid_twice(scripted: Scripted) -> None:
    released = threading.Event()

    def late(_: dict[str, Any]) -> dict[str, Any]:
        released.wait(60)
        return message("Late.")

    flags = {"supervisor.classify": False, "gateway.max_retries": 0}
    with scripted(late, flags=flags) as (runtime, server):
        agent = runtime.agent("guide", timeout_s=0.5, max_retries=3)
        result = agent.run("How long?")
        assert len(runtime.ledger.read_by_event_type("WO_PLANNED")) == 1
        assert len(server.calls) <= 1
        session = agent.session()
        first = session.work("How long?", key="k")
        again = session.work("How long?", key="k", retry_failed=True)
        released.set()
        assert len(server.calls) <= 2
    assert result.error_code == "timeout"
    assert first.error is not None
    assert first.error["code"] == "timeout"
    assert (again.wo_id, again.error) == (first.wo_id, first.error)


def test_another_attempt_at_a_keyed_order_repeats_no_unsafe_tool(scripted: Scripted) -> None:
    ran: list[str] = []
    pay = Tool("pay", "Pay.", TEXT, lambda text: ran.append(text) or "receipt 17")
    look = Tool("look", "Look.", TEXT, lambda text: text, on_unknown="retry")
    script = [tools_only(tool_use("pay", {"text": "10"})), Raw(b"{}", 400), message("Paid.")]
    flags = {"gateway.max_retries": 0}
    with scripted(*script, flags=flags) as (runtime, server):
        session = runtime.agent("guide", tools=[pay, look]).session()
        failed = session.work("Pay 10.", key="k")
        assert failed.error is not None
        assert session.work("Pay 10.", key="k").error == failed.error  # as it ended
        again = session.work("Pay 10.", key="k", retry_failed=True)
        assert again.output_result["text"] == "Paid."
        assert session.work("Pay 10.", key="k", retry_failed=True).wo_id == again.wo_id
        offered = [tool["name"] for tool in server.calls[2].body["tools"]]
        assert offered == ["look"]
        assert "receipt 17" in json.dumps(server.calls[2].body["messages"])
        assert len(server.calls) == 3
    assert ran == ["10"]


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("timeout", False), ("budget_exhausted", False), ("CIRCUIT_OPEN", False),
        ("tool_not_allowed", False), ("contract_schema_invalid", False), ("AUTH_ERROR", False),
        ("output_schema_invalid", True), ("SERVER_ERROR", True),
    ],
)  # fmt: skip
def test_only_what_can_change_is_tried_again(code: str, changes: bool) -> None:
    order = WorkOrder("WO-SES-AAAAAAAA-001", "SES-AAAAAAAA", WorkOrderType.EXECUTE)
    failed = replace(order, state=WorkOrderState.FAILED, error={"code": code, "message": ""})
    assert can_change(failed) is changes
    printed = replace(order, state=WorkOrderState.COMPLETED, output_result={"printed": True})
    assert not can_change(printed)


def test_a_failed_plan_keeps_instructions_and_acceptance(scripted: Scripted) -> None:
    def broken(_: TurnContext) -> Plan:
        return Plan((PlanStep("s", "PRC-NOSUCH-001"),))

    flags = {"supervisor.classify": False}
    with scripted(message("Some minutes."), message("Three."), flags=flags) as (runtime, server):
        own: dict[str, Any] = {"planner": broken, "acceptance": {"must_contain": ["three"]}}
        agent = runtime.agent("guide", instructions="You know all about tea.", **own)
        refused, kept = agent.run("How long?"), agent.run("How long?")
        asked = [str(call.body) for call in server.calls]
    assert (refused.degraded, refused.error_code) == (True, "contract_not_found")
    assert "Some minutes." not in refused.response
    assert (kept.degraded, kept.response, kept.error_code) == (True, "Three.", "")
    assert all("You know all about tea." in body for body in asked)
