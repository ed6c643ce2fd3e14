"""What tools cost and how often they may be used: held to the order's budgets as models are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remit import Tool, tool
from remit.agents.tools import ToolError
from remit.kernel.errors import InvalidInputError
from remit.runtime import Runtime
from remit.views import prompt_journey
from tests.agents.test_subagents import ask, by_agent, check
from tests.support.agents import TEXT, Scripted, anthropic_runtime, tools_only
from tests.support.wire import message, tool_use


def _look(ran: list[str], **limits: Any) -> Tool:
    def look(text: str) -> str:
        ran.append(text)
        return text

    return Tool("look", "Look.", TEXT, look, **limits)


def _uses(times: int) -> list[Any]:
    uses = [
        tools_only(tool_use("look", {"text": str(number)}, f"t{number}")) for number in range(times)
    ]
    return [*uses, message("Done.")]


def test_a_price_is_charged_and_is_part_of_what_the_turn_cost(scripted: Scripted) -> None:
    ran: list[str] = []
    with scripted(*_uses(2)) as (runtime, _):
        session = runtime.agent("a", tools=[_look(ran, price_usd=0.25)]).session()
        result = session.turn("look twice")
        assert ran == ["0", "1"]
        calls = sum(
            entry.metadata["cost_usd"] for entry in runtime.ledger.query(event_type="EXCHANGE")
        )
        assert result.cost_summary["cost_usd"] == pytest.approx(0.5 + calls)
        assert session.cost()["cost_usd"] == pytest.approx(0.5 + calls)
        shown = prompt_journey(runtime.ledger, session_id=session.session_id)
        sums = (shown["totals"], shown["turns"][0], shown["turns"][0]["work_orders"][0])
        assert [one["cost_usd"] for one in sums] == pytest.approx([0.5 + calls] * 3)
        prices = [e.metadata["price_usd"] for e in runtime.ledger.query(event_type="TOOL_INTENT")]
        assert prices == [0.25, 0.25]
        (state,) = runtime.budgeter.list(f"session:{session.session_id}")[:1]
        assert state.spent_nano / 1e9 == pytest.approx(0.5 + calls)
        check(runtime)


def test_what_a_budget_cannot_pay_does_not_begin(scripted: Scripted) -> None:
    ran: list[str] = []
    with scripted(*_uses(3)) as (runtime, _):
        agent = runtime.agent("a", tools=[_look(ran, price_usd=0.4)])
        session = agent.session(usd=1.0)
        result = session.turn("look three times")
        assert ran == ["0", "1"]
        assert [one["status"] for one in result.tool_results] == ["ok", "ok", "refused"]
        assert "budget_exhausted" in result.tool_results[2]["error"]
        assert runtime.ledger.count_by_event()["TOOL_INTENT"] == 2
        check(runtime)


def test_a_sub_agents_tool_is_paid_by_its_caller_too(scripted: Scripted) -> None:
    ran: list[str] = []
    script = by_agent(boss=[ask(), message("Done.")], helper=_uses(3))
    with scripted(script) as (runtime, _):
        helper = runtime.agent(
            "helper", instructions="You are the helper.", tools=[_look(ran, price_usd=0.4)]
        )
        boss = runtime.agent(
            "boss", instructions="You are the boss.", tools=[helper.as_tool(description="Looks.")]
        )
        result = boss.session(usd=1.0).turn("look")
        assert ran == ["0", "1"]
        assert 0.8 < result.cost_summary["cost_usd"] < 1.0
        check(runtime)


def test_a_call_that_waits_for_a_person_is_paid_once_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    root = tmp_path / "root"
    with anthropic_runtime(root, monkeypatch, *_uses(1)) as (runtime, _):

        def agent(of: Runtime) -> Any:
            return of.agent("a", tools=[_look(ran, price_usd=0.4)], approve=["look"])

        session = agent(runtime).session()
        waiting = session.turn("look")
        call = next(runtime.ledger.query(event_type="EXCHANGE"))
        spent = waiting.cost_summary
        assert spent["cost_usd"] == pytest.approx(call.metadata["cost_usd"])
        assert (spent["llm_calls"], spent["total_tokens"] > 0) == (1, True)
        with Runtime.open(root) as other:
            again = agent(other).session(session.session_id)
            still = again.resume()  # nothing was decided
            assert still.waiting
            assert still.cost_summary["cost_usd"] == spent["cost_usd"]
            assert still.cost_summary["llm_calls"] == 1
            other.approvals.decide(waiting.waiting_for[0].request_id, granted=True, by="Joe")
            done = again.resume()
        assert done.cost_summary["cost_usd"] > 0.4
        assert ran == ["0"]
        check(runtime)


def test_a_tool_is_used_as_often_as_it_may_be_in_one_order(scripted: Scripted) -> None:
    ran: list[str] = []
    with scripted(*_uses(3)) as (runtime, _):
        result = runtime.agent("a", tools=[_look(ran, max_calls=2)]).run("look")
        assert ran == ["0", "1"]
        assert result.tool_results[2]["status"] == "refused"
        assert "made all 2 calls of look" in result.tool_results[2]["error"]


@pytest.mark.parametrize("limits", [{"max_calls": -1}, {"max_calls": 1.5}, {"max_calls": True}])
def test_limits_that_are_none(limits: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="max_calls of look"):
        _look([], **limits)


@pytest.mark.parametrize("price", [-1, float("nan"), float("inf"), "much"])
def test_prices_that_are_none(price: Any) -> None:
    with pytest.raises(InvalidInputError):

        @tool(price_usd=price)
        def look(text: str) -> str:
            """Look."""
            return text
