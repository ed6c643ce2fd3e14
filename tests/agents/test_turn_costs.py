"""What a turn costs the ledger: commits, reads and entries, of which none may become more."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import pytest

from remit import tool
from remit.agents.tools import Tool
from remit.contracts import ContractLoader
from remit.gateway import LLMGateway
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient, LedgerWriteError
from remit.runtime import Runtime
from remit.views import prompt_journey
from tests.agents.test_subagents import ask, by_agent, check
from tests.support.agents import TEXT, Scripted, tools_only
from tests.support.wire import message, tool_use

_CALL = ["DISPATCH", "EXCHANGE", "LLM_CALL"]
_TOOL = ["TOOL_INTENT", "TOOL_CALL"]
_BEGIN = ["WO_PLANNED", "WO_DISPATCHED", "WO_EXECUTING", "BUDGET_ALLOCATED"]
_END = ["WO_COMPLETED", "WO_CHAIN_COMPLETE", "WO_QUALITY_GATE", "TURN_RECORDED"]


@dataclass
class _Counted:
    """What was done to a store: units of each commit, and statements that read."""

    commits: list[int] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    entries: list[str] = field(default_factory=list)


@contextmanager
def _counting(ledger: LedgerClient) -> Iterator[_Counted]:
    counted = _Counted()
    kind = type(ledger._store)
    run, select, before = kind.run, kind.select, ledger.count()

    def counted_run(store: Any, units: Any) -> Any:
        if "Breakers" not in repr(units[0].call)[:100]:  # looked at by the clock, as below
            counted.commits.append(len(units))
        return run(store, units)

    def counted_select(store: Any, sql: str, parameters: Any = ()) -> Any:
        if "breakers" not in sql:  # read now and then by the clock, whatever is done
            counted.reads.append(sql)
        return select(store, sql, parameters)

    with (
        patch.object(kind, "run", counted_run),
        patch.object(kind, "select", counted_select),
    ):
        yield counted
    counted.entries = [entry.event_type for entry in ledger.query(after=before - 1)]


def test_a_plain_turn(scripted: Scripted) -> None:
    with scripted(message("Hello.")) as (runtime, _):
        session = runtime.agent("a").session()
        session.turn("the first one")
        with _counting(runtime.ledger) as counted:
            assert session.turn("hello").response == "Hello."
    assert counted.entries == [*_BEGIN, *_CALL, *_END]
    assert counted.commits == [1] * 4  # the lease; up to DISPATCH; EXCHANGE; the rest
    assert len(counted.reads) <= 2, counted.reads  # the number is free; what the budget has left


def test_a_turn_loads_its_contract_once_and_awaits_its_calls_through_six_frames(
    scripted: Scripted,
) -> None:
    script = message("Hello."), tools_only(tool_use("look", {"text": "a"})), message("Seen: a.")
    loaded: list[str] = []
    stacks: list[list[str]] = []
    load, route = ContractLoader.load, LLMGateway.aroute

    def counted_load(self: ContractLoader, contract_id: str, *version: Any) -> Any:
        loaded.append(contract_id)
        return load(self, contract_id, *version)

    async def counted_route(self: LLMGateway, *request: Any, **how: Any) -> Any:
        frame: FrameType | None = sys._getframe(1)
        stack: list[str] = []
        while frame is not None:
            if frame.f_globals["__name__"].startswith(("remit.agents.", "remit.runtime.")):
                stack.append(frame.f_code.co_qualname)
            frame = frame.f_back
        stacks.append(stack)
        return await route(self, *request, **how)

    with scripted(*script) as (runtime, _):
        session = runtime.agent("a", tools=[_look([])]).session()
        session.turn("the first one")
        with (
            patch.object(ContractLoader, "load", counted_load),
            patch.object(LLMGateway, "aroute", counted_route),
        ):
            assert session.turn("look").response == "Seen: a."
    assert len(loaded) == 1, loaded
    assert len(stacks) == 2
    assert max(map(len, stacks)) <= 6, stacks


def test_a_turn_with_two_tools_one_after_the_other(scripted: Scripted) -> None:
    script = (
        message("Hello."),
        tools_only(tool_use("look", {"text": "a"})),
        tools_only(tool_use("look", {"text": "b"})),
        message("Seen."),
    )
    look = Tool("look", "Look.", TEXT, lambda text: text, on_unknown="retry")
    with scripted(*script) as (runtime, _):
        session = runtime.agent("a", tools=[look]).session()
        session.turn("the first one")
        with _counting(runtime.ledger) as counted:
            assert session.turn("look twice").response == "Seen."
    assert counted.entries == [*_BEGIN, *(_CALL + _TOOL) * 2, *_CALL, *_END]
    # Beside a plain turn's, for each tool: its intent; its result up to DISPATCH; EXCHANGE.
    assert counted.commits == [1] * 10
    assert len(counted.reads) <= 4, counted.reads  # a tool may have called models, too


def _sent(call: Any) -> str:
    return json.dumps(call.body["messages"])


def test_what_was_erased_is_not_shown_again(scripted: Scripted) -> None:
    with scripted(message("Hello.")) as (runtime, server):
        session = runtime.agent("a").session()
        session.turn("my name is Ann")
        first = session.turn("a second one").turn_entry_id
        assert "Ann" in _sent(server.calls[-1])
        (told,) = runtime.ledger.query(event_type="TURN_RECORDED", limit=1)
        runtime.ledger.erase(told.id, reason="asked for")
        session.turn("a third one")
        assert "Ann" not in _sent(server.calls[-1])
        assert told.id != first


def test_a_refused_call_has_its_order_on_record_before_it(scripted: Scripted) -> None:
    with scripted(message("Hello.")) as (runtime, server):
        session = runtime.agent("a", max_retries=0).session(tokens=10)
        before = runtime.ledger.count()
        assert not session.turn("hello").quality_gate_passed
        entries = [entry.event_type for entry in runtime.ledger.query(after=before - 1)]
        assert not server.calls
    assert entries[: len(_BEGIN) + 1] == [*_BEGIN, "PROMPT_REJECTED"]


def test_nothing_is_sent_where_the_order_cannot_be_put_on_record(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted(message("Hello.")) as (runtime, server):
        session = runtime.agent("a").session()
        session.turn("the first")

        def refused(*_: Any) -> str:
            raise LedgerWriteError("The disk is full.")

        monkeypatch.setattr("remit.gateway.budget.budgeter._allocate", refused)
        before, sent = runtime.ledger.count(), len(server.calls)
        with pytest.raises(LedgerWriteError):
            session.turn("the second")
        assert (runtime.ledger.count(), len(server.calls)) == (before, sent)
        monkeypatch.undo()
        assert session.turn("the third").turn_number == 2
        assert runtime.ledger.verify().verified


# -- What tools cost and how often they may be used: held to the order's budgets as models are ---


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


def test_an_approved_call_is_paid_once_it_begins(scripted: Scripted, tmp_path: Path) -> None:
    ran: list[str] = []
    root = tmp_path / "root"
    with scripted(*_uses(1)) as (runtime, _):

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


@pytest.mark.parametrize("price", [-1, float("nan"), float("inf"), "much"])
def test_prices_that_are_none(price: Any) -> None:
    with pytest.raises(InvalidInputError):

        @tool(price_usd=price)
        def look(text: str) -> str:
            """Look."""
            return text
