"""An agent hands its session over: the other one answers from the same turn on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remit import Tool
from remit.runtime import Agent, Runtime
from tests.agents.test_subagents import by_agent, check
from tests.support.agents import TEXT, anthropic_runtime, tools_only
from tests.support.wire import Step, message, tool_use


def _transfer(to: str) -> dict[str, Any]:
    return tools_only(tool_use(f"transfer_to_{to}", {"reason": "It is about money."}))


def _desk(runtime: Runtime, ran: list[str], **options: Any) -> Agent[Any]:
    """A front desk that can hand over to billing, which can hand over to law."""
    refund = Tool("refund", "Refund.", TEXT, lambda text: ran.append(text) or "refunded")
    law = runtime.agent("law", instructions="You are the law.")
    billing = runtime.agent(
        "billing",
        instructions="You are the billing.",
        tools=[refund, law.as_handoff(description="Of courts.")],
        approve=["refund"],
    )
    return runtime.agent(
        "desk",
        instructions="You are the desk.",
        tools=[billing.as_handoff(description="Of money.")],
        **options,
    )


def _agents(runtime: Runtime) -> list[str]:
    return [entry.metadata["agent_id"] for entry in runtime.ledger.query(event_type="EXCHANGE")]


def test_the_other_answers_this_turn_and_those_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    script = by_agent(
        desk=[_transfer("billing"), message("By itself.")], billing=[message("You are owed 5.")]
    )
    with anthropic_runtime(root, monkeypatch, script) as (runtime, server):
        session = _desk(runtime, []).session(tokens=100_000)
        result = session.turn("You charged me twice.")
        assert result.response == "You are owed 5."
        assert result.quality_gate_passed
        assert result.cost_summary["llm_calls"] == 2
        assert "You charged me twice." in json.dumps(server.calls[1].body["messages"])
        assert session.turn("When?").response == "You are owed 5."
        with Runtime.open(root) as other:
            again = _desk(other, []).session(session.session_id)
            assert again.turn("Sure?").turn_number == 3
            again.work("Something by itself.", key="k")
            assert "transfer_to" not in json.dumps(server.calls[-1].body)
            assert again.turn("Really?").turn_number == 4
        assert _agents(runtime) == ["desk", "billing", "billing", "billing", "desk", "billing"]
        (intent,) = runtime.ledger.query(event_type="TOOL_INTENT")
        assert intent.metadata["tool_id"] == "transfer_to_billing"
        assert intent.metadata["arguments"] == {"reason": "It is about money."}
        plans = [
            e.metadata.get("handed_to")
            for e in runtime.ledger.query(event_type="WO_PLANNED")
            if e.metadata.get("turn_number")
        ]
        assert plans == [None, *[["billing"]] * 4]
        spent = sum(
            e.metadata["input_tokens"] + e.metadata["output_tokens"]
            for e in runtime.ledger.query(event_type="EXCHANGE")
        )
        (state,) = runtime.budgeter.list(f"session:{session.session_id}")[:1]
        assert (state.token_limit, state.spent_tokens) == (100_000, spent)
        check(runtime)


def test_one_hands_over_to_the_next_in_one_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = by_agent(
        desk=[_transfer("billing")], billing=[_transfer("law")], law=[message("Sue us.")]
    )
    with anthropic_runtime(tmp_path / "root", monkeypatch, script) as (runtime, _):
        session = _desk(runtime, []).session()
        assert session.turn("Money!").response == "Sue us."
        assert session.turn("How?").response == "Sue us."
        assert _agents(runtime) == ["desk", "billing", "law", "law"]
        check(runtime)


def _refunding() -> Step:
    return by_agent(
        desk=[_transfer("billing")],
        billing=[tools_only(tool_use("refund", {"text": "5"})), message("Refunded.")],
    )


def test_a_turn_that_was_handed_over_waits_and_goes_on_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    root = tmp_path / "root"
    with anthropic_runtime(root, monkeypatch, _refunding()) as (runtime, server):
        session = _desk(runtime, ran).session()
        (asked,) = session.turn("Refund me.").waiting_for
        with Runtime.open(root) as other:
            again = _desk(other, ran).session(session.session_id)
            assert again.resume().waiting
            other.approvals.decide(asked.request_id, granted=True, by="Joe")
            assert again.resume().response == "Refunded."
            assert again.turn("Thanks.").response == "Refunded."
        assert ran == ["5"]
        assert len(server.calls) == 4
        assert _agents(runtime) == ["desk", "billing", "billing", "billing"]
        check(runtime)


def test_a_program_that_has_the_other_no_more_answers_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = by_agent(
        desk=[_transfer("billing"), message("The desk again.")], billing=[message("Owed.")]
    )
    with anthropic_runtime(tmp_path / "root", monkeypatch, script) as (runtime, _):
        session = _desk(runtime, []).session()
        session.turn("Money!")
        alone = runtime.agent("desk", instructions="You are the desk.")
        answer = alone.session(session.session_id).turn("And now?")
        assert answer.response == "The desk again."
