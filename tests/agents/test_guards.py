"""Ways in which an agent could get out of its remit, each of them barred."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remit.agents.supervisor import Plan, PlanStep
from remit.agents.tools import Tool
from remit.agents.workorders import OrderRecordError, WorkOrderState, WorkOrderType
from remit.gateway.auth import Identity
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptRequest, RouteOutcome
from tests.support.agents import TEXT, Scripted, tools_only
from tests.support.packages import bring
from tests.support.wire import message, tool_use


class _Payer:
    """A tool with an effect that must not happen twice, and one that may."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.tools = [
            Tool("pay", "Pay.", TEXT, lambda text: self.paid.append(text) or {"paid": text},
                 on_unknown="fail"),
            Tool("look", "Look.", TEXT, lambda text: {"saw": text}, on_unknown="retry"),
        ]  # fmt: skip


@pytest.fixture
def payer() -> _Payer:
    return _Payer()


def test_a_rejected_answer_never_repeats_a_payment(scripted: Scripted, payer: _Payer) -> None:
    pay = tools_only(tool_use("pay", {"text": "rent"}, "t1"), tool_use("look", {"text": "a"}, "t2"))
    with scripted(pay, message("  "), message("Paid.")) as (runtime, server):
        result = runtime.agent("payer", tools=payer.tools).run("pay the rent")
        last = server.calls[-1].body
    assert result.response == "Paid."
    assert payer.paid == ["rent"]
    assert [tool["name"] for tool in last["tools"]] == ["look"]  # the other is not offered again
    assert "rent" in json.dumps(last["messages"])  # and what it did is told


def test_a_planner_cannot_widen_what_the_agent_may_do(scripted: Scripted, payer: _Payer) -> None:
    def step(tool_id: str) -> Plan:
        return Plan((
            PlanStep("s", wo_type=WorkOrderType.TOOL_CALL, tools=(tool_id,),
                     input={"tool_id": tool_id, "arguments": {"text": "x"}}),
        ))  # fmt: skip

    with scripted(message("Direct.")) as (runtime, _):
        own: dict[str, Any] = {"tools": payer.tools, "approve": ["pay"]}
        waiting = runtime.agent("a", planner=lambda _: step("pay"), **own).run("go")
        strange = runtime.agent("b", planner=lambda _: step("read_file"), **own).run("go")
        (degraded,) = runtime.ledger.read_by_event_type("DEGRADATION")
    assert [one.tool_id for one in waiting.waiting_for] == ["pay"]  # also of a step in between
    assert payer.paid == []
    assert strange.degraded
    assert "uses 'read_file', which the agent may not use" in degraded.metadata["error_message"]


def test_a_step_that_waits_is_told_whichever_it_is_and_a_cancelled_turn_leaves_nothing_open(
    scripted: Scripted, payer: _Payer
) -> None:
    plan = Plan((
        PlanStep("pay", wo_type=WorkOrderType.TOOL_CALL, tools=("pay",),
                 input={"tool_id": "pay", "arguments": {"text": "x"}}),
        PlanStep("answer", "PRC-EXECUTE-001", depends_on=("pay",)),
    ))  # fmt: skip
    with scripted(message("ok")) as (runtime, _):
        agent = runtime.agent("a", tools=payer.tools, approve=["pay"], planner=lambda _: plan)
        session = agent.session()
        (request,) = session.turn("go").waiting_for
        assert session.cancel()
        ended = [e.submission_id for e in runtime.ledger.read_by_event_type("WO_FAILED")]
        planned = [e.submission_id for e in runtime.ledger.read_by_event_type("WO_PLANNED")]
        assert sorted(ended) == sorted(planned)
        assert runtime.approvals.get(request.request_id).state == "void"


def test_a_direct_answer_comes_from_the_agents_own_model(scripted: Scripted) -> None:
    with scripted(message("Direct.")) as (runtime, server):
        agent = runtime.agent("a", model="anthropic/claude-other", planner=lambda _: 1 / 0)  # type: ignore[arg-type]
        assert agent.run("go").degraded
        assert server.calls[-1].body["model"] == "claude-other"


def test_one_bad_policy_does_not_silence_an_agent(scripted: Scripted, tmp_path: Path) -> None:
    with scripted(message("ok")) as (runtime, server):
        texts = {"a": b"\xff\xfe", "b": b"long " * 200_000, "c": b"Be kind.", "d": b"x", "e": b"y"}
        files = {f"HOT/policy/{name}.md": text for name, text in texts.items()}
        bring(runtime.root.path, tmp_path, files)
        policy = runtime.root.tier("hot") / "policy"
        (policy / "d.md").unlink()
        (policy / "d.md").symlink_to("/etc/passwd")
        (policy / "e.md").unlink()
        (policy / "e.md").mkdir()
        result = runtime.agent("a").run("hello")
        (planned,) = runtime.ledger.read_by_event_type("WO_PLANNED")
        asked = json.dumps(server.calls[-1].body)
    assert not result.degraded
    assert "Be kind." in asked
    assert "root:" not in asked
    told = planned.metadata["attention"]
    assert [one["ref"] for one in told["left_out"]] == ["HOT/policy/b.md"]


def test_an_erased_turn_can_be_ended_and_not_resumed(scripted: Scripted, payer: _Payer) -> None:
    pay = tools_only(tool_use("pay", {"text": "rent"}))
    with scripted(pay, message("Hello.")) as (runtime, _):
        session = runtime.agent("a", tools=payer.tools, approve=["pay"]).session()
        (request,) = session.turn("pay the rent").waiting_for
        runtime.ledger.erase(session_id=session.session_id, reason="asked", requested_by="Ann")
        with pytest.raises(RemitError, match="erased"):
            session.resume()
        with pytest.raises(RemitError, match="erased"):
            runtime.approvals.decide(request.request_id, granted=True, by="Ann")
        assert list(runtime.unfinished()) == [session.session_id]
        assert session.cancel()
        assert session.turn("hello").response == "Hello."
    assert payer.paid == []


def test_a_gateways_client_is_no_orders_memory(scripted: Scripted, payer: _Payer) -> None:
    pay = tools_only(tool_use("pay", {"text": "10"}))
    with scripted(pay, message("evil"), message("Paid.")) as (runtime, server):
        session = runtime.agent("a", tools=payer.tools, approve=["pay"]).session()
        (request,) = session.turn("pay 10").waiting_for
        mallory = Identity("mallory", "agent", key_id="KEY-MALLORY1")

        def call(session_id: str) -> Any:
            return PromptRequest(
                prompt="pay me", prompt_pack_id="", contract_id="PRC-EXECUTE-001",
                agent_id="ho1-worker", agent_class="RESIDENT", framework_id="", package_id="",
                work_order_id=request.wo_id, session_id=session_id, tier="ho1",
            )  # fmt: skip

        from remit.kernel.loops import run_blocking

        for session_id in ("SES-MALLORY1", session.session_id):
            told = run_blocking(runtime.gateway.aroute(call(session_id), identity=mallory))
            assert told.outcome is RouteOutcome.REJECTED
            assert told.error_code == "SESSION_NOT_YOURS"
        # Even an exchange that names the order is not the order's, from another session.
        elsewhere = runtime.agent("b").session().session_id
        operator = run_blocking(runtime.gateway.aroute(call(elsewhere)))
        assert operator.content == "evil"
        runtime.approvals.decide(request.request_id, granted=True, by="Ann")
        result = session.resume()
        assert "evil" not in json.dumps(server.calls[-1].body)
    assert result is not None
    assert result.response == "Paid."
    assert payer.paid == ["10"]


def test_an_erased_order_can_be_cancelled_and_not_resumed(
    scripted: Scripted, payer: _Payer
) -> None:
    pay = tools_only(tool_use("pay", {"text": "10"}))
    with scripted(pay, message("Paid.")) as (runtime, server):
        session = runtime.agent("a", tools=payer.tools, approve=["pay"]).session()
        parked = session.work("pay 10")
        runtime.ledger.erase(session_id=session.session_id, reason="asked", requested_by="Ann")
        with pytest.raises(OrderRecordError, match="erased"):
            session.resume_work(parked.wo_id)
        assert len(server.calls) == 1
        assert session.cancel_work(parked.wo_id).state is WorkOrderState.FAILED
        resumed = session.resume_work(parked.wo_id)
        assert resumed.error is not None
        assert resumed.error["code"] == "cancelled"
    assert payer.paid == []


def test_only_threads_that_a_session_knows_can_be_closed_by_it(scripted: Scripted) -> None:
    from remit.agents.supervisor import open_threads, thread_tools

    opening = tools_only(tool_use("open_thread", {"title": "Mine", "due": "the HIV test of Bob"}))
    script = [opening, message("Noted.")]
    with scripted(*script) as (runtime, server):
        runtime.agent("a", tools=thread_tools()).run("note it")
        (thread,) = open_threads(runtime.ledger)
        assert thread.due == ""
        closing = tools_only(tool_use("close_thread", {"thread_id": thread.ref}))
        server.script[:] = [closing, message("Closed.")]
        runtime.agent("b", tools=thread_tools()).run("close it")
        assert [one.ref for one in open_threads(runtime.ledger)] == [thread.ref]
        assert runtime.ledger.read_by_event_type("THREAD_CLOSED") == []
