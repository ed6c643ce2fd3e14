"""Tools that need a person: parked, decided once, gone on with."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.agents import ApprovalError
from remit.agents.supervisor import Plan, PlanStep, TurnPendingError
from remit.agents.tools import Tool
from remit.agents.workorders import ApprovalNeeded, WorkOrderType
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient
from remit.runtime import Runtime
from tests.support.agents import Scripted
from tests.support.waiting import at_once
from tests.support.wire import message, tool_use

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class _Till:
    """Two tools with effects that can be counted."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.seen: list[str] = []
        self.tools = [
            Tool("pay", "Pay.", TEXT, lambda text: self.paid.append(text) or {"paid": text}),
            Tool("see", "See.", TEXT, lambda text: self.seen.append(text) or {"saw": text}),
        ]

    def agent(self, runtime: Runtime, **more: Any) -> Any:
        return runtime.agent("till", instructions="Pay.", tools=self.tools, approve=["pay"], **more)


def _both(text: str = "Done.") -> tuple[dict[str, Any], dict[str, Any]]:
    first = message(
        "I will.", tool_use("pay", {"text": "bill"}, "t1"), tool_use("see", {"text": "it"}, "t2")
    )
    return first, message(text)


def test_the_turn_waits_and_goes_on_when_granted(scripted: Scripted) -> None:
    till = _Till()
    heard: list[Any] = []
    with scripted(*_both()) as (runtime, server):
        session = till.agent(runtime).session()
        waiting = session.turn("pay the bill", on_event=heard.append)
        (request,) = waiting.waiting_for
        assert waiting.waiting
        assert (waiting.turn_entry_id, waiting.quality_gate_passed) == ("", False)
        assert (till.paid, till.seen) == ([], ["it"])  # what needs no person has run
        assert [e.request_id for e in heard if isinstance(e, ApprovalNeeded)] == [
            request.request_id
        ]
        with pytest.raises(TurnPendingError, match=request.request_id):
            session.turn("something else")
        before = runtime.ledger.count()
        still = session.resume()
        assert still is not None
        assert still.waiting_for == waiting.waiting_for  # nobody has decided
        heedless = session.resume(on_event=lambda _: 1 / 0)  # its error is not the turn's
        assert heedless is not None
        assert heedless.waiting_for == waiting.waiting_for
        assert runtime.ledger.count() == before
        (pending,) = runtime.approvals.pending()
        assert (pending.tool_id, pending.arguments) == ("pay", {"text": "bill"})
        runtime.approvals.decide(request.request_id, granted=True, by="Ann", reason="known bill")
        result = session.resume()
        assert result is not None
        assert (result.response, result.turn_number) == ("Done.", 1)
        assert (till.paid, till.seen) == (["bill"], ["it"])
        assert len(server.calls) == 2
        assert session.resume() is None
        decided = runtime.approvals.get(request.request_id)
        assert (decided.state, decided.decided_by) == ("granted", "Ann")
        requests = runtime.ledger.read_by_event_type("APPROVAL_REQUESTED")
        (turn,) = runtime.ledger.read_by_event_type("TURN_RECORDED")
        (gate,) = runtime.ledger.read_by_event_type("WO_QUALITY_GATE")
        verified = runtime.ledger.verify()
    assert len(requests) == 1
    assert turn.metadata["response"] == "Done."
    assert gate.metadata["verdict"] == "accept"
    assert verified.verified


@pytest.mark.parametrize("within", ["turn", "sub-agent"])
@pytest.mark.parametrize("how", ["message", "cancel"])
def test_a_grant_that_a_new_message_leaves_unused_is_named(
    scripted: Scripted, how: str, within: str
) -> None:
    till = _Till()
    calls = [tool_use("pay", {"text": "bill"}, "t1"), tool_use("pay", {"text": "fine"}, "t2")]
    script = [message("I will.", *calls), message("Shall I pay the bill again?")]
    if within == "sub-agent":
        script.insert(0, message("A moment.", tool_use("till", {"task": "pay"})))
    with scripted(*script) as (runtime, server):
        agent = till.agent(runtime)
        if within == "sub-agent":
            agent = runtime.agent("boss", tools=[agent.as_tool()])
        session = agent.session()
        first, second = session.turn("pay the bill").waiting_for
        runtime.approvals.decide(first.request_id, granted=True, by="Ann")
        runtime.approvals.decide(second.request_id, granted=False, by="Bob")
        if how == "cancel":
            assert session.cancel()
        session.turn("and the weather?")
        sent = json.dumps(server.calls[-1].body["messages"])
        turns = [*runtime.ledger.query(event_type="TURN_RECORDED", session_id=session.session_id)]
    unused = f"(Ann approved pay, but it did not run: {first.request_id}.)"
    closed = next(one for one in turns if one.metadata["turn_number"] == 1)
    assert closed.metadata["response"].endswith(f"before there was an answer.) {unused}")
    assert "Bob" not in closed.metadata["response"]
    assert unused in sent
    assert till.paid == []


def test_a_denial_is_told_to_the_model_with_the_name(scripted: Scripted) -> None:
    till = _Till()
    with scripted(*_both("Refused.")) as (runtime, server):
        session = till.agent(runtime).session()
        (request,) = session.turn("pay the bill").waiting_for
        runtime.approvals.decide(request.request_id, granted=False, by="Ann", reason="too much")
        result = session.resume()
        told = server.calls[-1].body["messages"][-1]["content"][0]
    assert result is not None
    assert result.response == "Refused."
    assert till.paid == []
    assert told["is_error"]
    assert told["content"] == "refused: approval_denied: Ann said no: too much"


def test_a_request_is_decided_once_whoever_is_faster(scripted: Scripted) -> None:
    till = _Till()
    with scripted(*_both()) as (runtime, _):
        session = till.agent(runtime).session()
        (request,) = session.turn("pay the bill").waiting_for
        outcomes: list[str] = []
        together = threading.Barrier(8)

        def decide(number: int) -> None:
            together.wait()
            try:
                runtime.approvals.decide(
                    request.request_id, granted=bool(number % 2), by=f"person {number}"
                )
                outcomes.append("decided")
            except ApprovalError:
                outcomes.append("late")

        at_once(decide, range(8))
        assert sorted(outcomes) == ["decided", *["late"] * 7]
        assert runtime.approvals.pending() == []


def test_what_cannot_be_decided(scripted: Scripted) -> None:
    till = _Till()
    with scripted(*_both()) as (runtime, _):
        session = till.agent(runtime).session()
        (request,) = session.turn("pay the bill").waiting_for
        queue = runtime.approvals
        for odd in ("LED-00000000", "LED-7fffffff", "nonsense", ""):
            with pytest.raises(ApprovalError, match="not an approval request"):
                queue.decide(odd, granted=True, by="Ann")
        with pytest.raises(ApprovalError, match="name of the person who decides"):
            queue.decide(request.request_id, granted=True, by=" ")
        assert session.cancel()
        assert queue.get(request.request_id).state == "void"
        with pytest.raises(ApprovalError, match="has ended"):
            queue.decide(request.request_id, granted=True, by="Ann")
        (turn,) = runtime.ledger.read_by_event_type("TURN_RECORDED")
        assert turn.metadata["outcome"] == "cancelled"
        assert session.turn("and now?").response == "Done."
    assert till.paid == []


@pytest.mark.parametrize("wrong", [{}, {"texts": "bill"}, {"text": 5}])
def test_a_call_that_cannot_run_is_no_question_for_a_person(
    scripted: Scripted, wrong: dict[str, Any]
) -> None:
    till = _Till()
    first = message("I will.", tool_use("pay", wrong, "t1"))
    with scripted(first, *_both()) as (runtime, server):
        session = till.agent(runtime).session()
        waiting = session.turn("pay the bill")
        (request,) = waiting.waiting_for  # for the second call, which the model corrected
        assert dict(request.arguments) == {"text": "bill"}
        assert len(runtime.approvals.pending()) == 1
        (result,) = server.calls[1].body["messages"][-1]["content"]
        assert result["is_error"]
        assert "text" in result["content"]
        runtime.approvals.decide(request.request_id, granted=True, by="Ann")
        assert not session.resume().waiting
    assert till.paid == ["bill"]


@pytest.mark.parametrize("odd", ["text", ["text"], 5])
def test_changed_arguments_are_an_object(scripted: Scripted, odd: Any) -> None:
    till = _Till()
    with scripted(*_both()) as (runtime, _):
        (request,) = till.agent(runtime).session().turn("pay the bill").waiting_for
        with pytest.raises(InvalidInputError, match="not an object"):
            runtime.approvals.decide(request.request_id, granted=True, by="Ann", arguments=odd)


def test_a_tool_call_order_that_is_denied_fails_as_such(scripted: Scripted) -> None:
    till = _Till()

    def planner(_: Any) -> Plan:
        step = PlanStep(
            "pay", wo_type=WorkOrderType.TOOL_CALL, tools=("pay",), approve=("pay",),
            input={"tool_id": "pay", "arguments": {"text": "rent"}},
        )  # fmt: skip
        return Plan((step,))

    with scripted(message("x")) as (runtime, server):
        session = till.agent(runtime, planner=planner, max_retries=0).session()
        (request,) = session.turn("pay the rent").waiting_for
        runtime.approvals.decide(request.request_id, granted=False, by="Ann")
        result = session.resume()
        assert server.calls == []
    assert result is not None
    assert result.wo_chain_summary[0]["error"]["code"] == "approval_denied"
    assert till.paid == []


def test_a_new_need_for_a_person_holds_for_orders_that_began_before(scripted: Scripted) -> None:
    till = _Till()
    script = (
        message("", tool_use("pay", {"text": "a"}, "t1")),
        message("", tool_use("see", {"text": "b"}, "t2")),
        message("Done."),
    )
    for one in script[:2]:
        one["content"] = one["content"][1:]
    with scripted(*script) as (runtime, _):
        session = till.agent(runtime).session()
        (request,) = session.turn("pay, then see").waiting_for
        runtime.approvals.decide(request.request_id, granted=True, by="Ann")
        stricter = runtime.agent(
            "till", instructions="Pay.", tools=till.tools, approve=["pay", "see"]
        )
        resumed = stricter.session(session.session_id).resume()
        assert resumed is not None
        assert [one.tool_id for one in resumed.waiting_for] == ["see"]
    assert (till.paid, till.seen) == (["a"], [])


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[LedgerClient]:
    """On one store: what is told does not depend on it."""
    with LedgerClient(tmp_path / "ledger.db") as client:
        yield client
