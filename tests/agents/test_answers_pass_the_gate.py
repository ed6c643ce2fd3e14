"""Every way in which text reaches a user, by its entry of the quality gate."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.agents import RECALL
from remit.agents.supervisor import Plan, PlanStep, TurnResult
from remit.agents.tools import Tool
from remit.agents.workorders import AnswerRejected, PartialOutput, TextDelta
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerEntry
from remit.providers import ProviderError
from remit.runtime import Agent, OrderWorker, TurnEnded
from remit.testing import ScriptedModel, ToolUse
from remit_interop import Door
from tests.server.running import serving
from tests.support.agents import TEXT, Scripted
from tests.support.commands import run_remit
from tests.support.roots import new_root
from tests.support.wire import message, message_stream, serve, tool_use

SECRET, ANSWER = "Your card is 4111.", "All is well."
ACCEPTANCE = {"must_not_contain": ["4111"]}
CALL = tool_use("noted", {})
ENDED = ("completed", "failed", "dead")
BROKEN = ProviderError("INVALID_REQUEST", "bad")


class World:
    """A root whose model answers by a script, and an agent that must not name a card."""

    def __init__(self, directory: Path, *script: Any, **options: Any) -> None:
        self.runtime = Runtime.open(
            new_root(directory / "root"), providers={"s": ScriptedModel(*script)}
        )
        given: dict[str, Any] = {"acceptance": ACCEPTANCE, "max_retries": 0, **options}
        self.agent: Agent[Any] = self.runtime.agent("clerk", **given)

    def gates(self) -> list[LedgerEntry]:
        return self.runtime.ledger.read_by_event_type("WO_QUALITY_GATE")

    def verdict(self) -> str:
        """The verdict of the last gate, which has to be of an order of this session; or empty."""
        gates = self.gates()
        if not gates:
            return ""
        ledger = self.runtime.ledger
        assert ledger.query(work_order_id=gates[-1].submission_id, event_type="WO_PLANNED")
        return str(gates[-1].metadata["verdict"])

    def outcome(self) -> str:
        """What the last turn says of its response."""
        (*_, turn) = self.runtime.ledger.read_by_event_type("TURN_RECORDED")
        return str(turn.metadata.get("outcome", "answer"))


@pytest.fixture(params=[ANSWER, SECRET], ids=["accepted", "rejected"])
def said(request: pytest.FixtureRequest) -> str:
    return request.param


def _check(world: World, result: TurnResult[Any], said: str) -> None:
    good = said == ANSWER
    assert world.verdict() == ("accept" if good else "reject")
    assert (result.quality_gate_passed, result.notice) == (good, not good)
    assert world.outcome() == ("answer" if good else "notice")
    assert SECRET not in result.response


@pytest.mark.parametrize("way", ["turn", "run", "typed output"])
def test_an_answer_of_the_agent(tmp_path: Path, said: str, way: str) -> None:
    typed = way == "typed output"
    world = World(tmp_path, {"value": said} if typed else said)
    with world.runtime:
        ask = world.agent.run if way == "run" else world.agent.session().turn
        _check(world, ask("Well?", output_type=dict[str, str] if typed else None), said)


def test_stream_shows_no_text_before_it_is_accepted(tmp_path: Path, said: str) -> None:
    world = World(tmp_path, said)
    with world.runtime:
        events = [*world.agent.session().stream("Well?")]
        (*_, ended) = events
        assert isinstance(ended, TurnEnded)
        _check(world, ended.result, said)
    streamed = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert streamed == (ANSWER if said == ANSWER else "")
    assert any(isinstance(event, AnswerRejected) for event in events) is (said == SECRET)


def test_stream_shows_no_text_beside_a_call_that_the_gate_did_not_see(scripted: Scripted) -> None:
    script = [message_stream(message(*said)) for said in [(SECRET, CALL), (ANSWER,)]]
    with scripted(*script) as (runtime, _):
        noted = Tool("noted", "Notes it.", {"type": "object"}, lambda: "noted")
        agent = runtime.agent("clerk", tools=[noted], acceptance=ACCEPTANCE)
        events = [*agent.session().stream("Well?")]
    assert [event.text for event in events if isinstance(event, TextDelta)] == [ANSWER]


@pytest.mark.parametrize(
    "text", ['{"value": "411\\u0031"}', '{"value": ["4\\u200b111"]}', '{"411\\u0031": 1}']
)
def test_typed_answers_are_searched_without_the_escapes_of_json(tmp_path: Path, text: str) -> None:
    world = World(tmp_path, text, output_type=dict[str, Any])
    with world.runtime:
        events = [*world.agent.session().stream("Well?")]
        (*_, ended) = events
        assert isinstance(ended, TurnEnded)
        assert ended.result.error_detail == "the answer contains '4111'"
    assert not [event for event in events if isinstance(event, PartialOutput)]


def test_typed_answers_contain_what_their_values_contain(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        '{"value": "Gr\\u00f6\\u00dfe\\n\\"4\\""}',
        output_type=dict[str, str],
        acceptance={"must_contain": ["größe", '"4"']},
    )
    with world.runtime:
        assert world.agent.run("Well?").output == {"value": 'Größe\n"4"'}


@pytest.mark.parametrize(
    "acceptance",
    [
        {"must_not_contain": [""]},
        {"must_not_contain": ["\u200b"]},
        {"must_contain": ["No refunds"], "must_not_contain": ["R\uff45FUND"]},
        {"min_chars": 10, "max_chars": 5},
        {"max_chars": 0},
    ],
)
def test_an_impossible_acceptance_is_refused(tmp_path: Path, acceptance: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="No answer can meet"):
        World(tmp_path, ANSWER, acceptance=acceptance)


def test_resume(tmp_path: Path, said: str) -> None:
    pay = Tool("pay", "Pay.", TEXT, lambda text: text)
    world = World(
        tmp_path, ToolUse("pay", {"text": "1"}), said, tools=[pay], approve=["pay"]
    )  # fmt: skip
    with world.runtime as runtime:
        session = world.agent.session()
        waiting = session.turn("Pay.")
        assert (waiting.quality_gate_passed, waiting.notice, world.verdict()) == (False, True, "")
        runtime.approvals.decide(waiting.waiting_for[0].request_id, granted=True, by="Ada")
        result = session.resume()
        assert result is not None
        _check(world, result, said)


def test_work_outside_the_conversation(tmp_path: Path, said: str) -> None:
    world = World(tmp_path, said)
    with world.runtime:
        session = world.agent.session()
        order = session.work("Well?", key="k")
        again = session.work("Well?", key="k")
        assert world.verdict() == ("accept" if said == ANSWER else "reject")
        assert len(world.gates()) == 1
    assert order.output_result == again.output_result
    if said == SECRET:
        assert order.output_result is None
        assert (order.error or {})["code"] == (again.error or {})["code"] == "answer_rejected"


async def test_an_order_of_a_worker(tmp_path: Path, said: str) -> None:
    world = World(tmp_path, said)
    async with world.runtime as runtime:
        handle = await world.agent.asubmit("Well?")
        worker = OrderWorker(runtime, [world.agent])
        running = asyncio.create_task(worker.run())
        result = await handle.aresult(60)
        worker.drain()
        await running
        _check(world, result, said)


def test_an_order_by_http(tmp_path: Path, said: str) -> None:
    world = World(tmp_path, said)
    with world.runtime as runtime, serving(tmp_path / "root", "http://127.0.0.1:9") as served:
        operator = served.key(role="operator").key

        def ask(method: str, path: str, body: Any = None) -> Any:
            headers = {"content-type": "application/json"}
            return json.loads(served.ask(method, path, body, token=operator, headers=headers)[1])

        made = ask("POST", "/api/orders", {"agent_id": "clerk", "task": "Well?"})
        path = f"/api/orders/{made['order_id']}"

        async def work() -> None:
            worker = OrderWorker(runtime, [world.agent])
            running = asyncio.create_task(worker.run())
            while (await asyncio.to_thread(ask, "GET", path))["state"] not in ENDED:
                await asyncio.sleep(0.05)
            worker.drain()
            await running

        asyncio.run(work())
        told = ask("GET", path)
        turns = json.dumps(ask("GET", f"/api/sessions/{made['session_id']}"))
        assert world.verdict() == ("accept" if said == ANSWER else "reject")
    failed = ("failed", "answer_rejected", None)
    done = ("completed", "", ANSWER) if said == ANSWER else failed
    assert (told["state"], told["error_code"], told["response"]) == done
    assert SECRET not in json.dumps(told) + turns


@pytest.mark.parametrize("data", [False, True])
def test_an_attached_run(tmp_path: Path, said: str, data: bool) -> None:
    world = World(tmp_path, "unused")
    with world.runtime as runtime, Door(runtime) as door:
        with door.attach(world.agent.session(), "Well?", key="k") as run:
            run.finish({"said": said} if data else said)
        assert world.verdict() == ("accept" if said == ANSWER else "reject")
        assert run.order.state == ("completed" if said == ANSWER else "failed")
        if said == SECRET:
            assert run.order.output_result is None
            assert (run.order.error or {})["code"] == "answer_rejected"
        assert runtime.ledger.verify().verified


def test_an_answer_of_another_agent_by_a2a(tmp_path: Path, said: str) -> None:
    """The relayed answer is the other agent's; an attached run presents it as its own."""
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"message": {"parts": [{"text": said}]}}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {}}
    with serve(answer) as other:
        toml = f'[a2a.tea]\nurl = "{other.url}/rpc"\n'
        runtime = Runtime.open(
            new_root(tmp_path / "root", toml), providers={"s": ScriptedModel("unused")}
        )
        world = World.__new__(World)
        world.runtime = runtime
        agent = runtime.agent("clerk", acceptance=ACCEPTANCE)
        with runtime, Door(runtime) as door:
            with door.attach(agent.session(), "Well?") as run:
                request = urllib.request.Request(
                    f"{door.url}/a2a/tea", json.dumps(asked).encode(),
                    {"authorization": f"Bearer {run.api_key}", "content-type": "application/json"},
                )  # fmt: skip
                with urllib.request.urlopen(request, timeout=60) as reply:
                    told = json.loads(reply.read())
                assert told == answer
                assert world.gates() == []
                run.finish(told["result"]["message"]["parts"][0]["text"])
            assert world.verdict() == ("accept" if said == ANSWER else "reject")
            (exchange,) = runtime.ledger.read_by_event_type("EXCHANGE")
            assert exchange.metadata["wire"] == "a2a.jsonrpc"
    assert run.order.state == ("completed" if said == ANSWER else "failed")


def test_a_sub_agents_answer_to_its_caller(tmp_path: Path, said: str) -> None:
    world = World(tmp_path, ToolUse("clerk", {"task": "Well?"}), said, "I cannot tell.")
    with world.runtime as runtime:
        runtime.agent("boss", tools=[world.agent.as_tool()]).run("Well?")
        (call,) = runtime.ledger.read_by_event_type("TOOL_CALL")
        first, _ = world.gates()
    assert first.metadata["verdict"] == ("accept" if said == ANSWER else "reject")
    assert call.metadata["result"] == (ANSWER if said == ANSWER else None)


def test_a_degraded_answer_passed_the_acceptance_and_is_marked(tmp_path: Path, said: str) -> None:
    def broken(_: Any) -> Plan:
        return Plan((PlanStep("s", "PRC-NOSUCH-001"),))

    world = World(tmp_path, said, planner=broken)
    with world.runtime:
        result = world.agent.session().turn("Well?")
        assert world.verdict() == ("accept" if said == ANSWER else "reject")
        assert world.outcome() == ("degraded" if said == ANSWER else "notice")
    assert not result.quality_gate_passed
    assert result.degraded
    assert result.response == ANSWER or (result.notice and SECRET not in result.response)


def test_a_failure_is_a_notice(tmp_path: Path) -> None:
    world = World(tmp_path, BROKEN)
    with world.runtime:
        result = world.agent.session().turn("Well?")
        assert (world.verdict(), world.outcome()) == ("reject", "notice")
    assert (result.quality_gate_passed, result.notice) == (False, True)


def test_an_early_answer_of_code(scripted: Scripted) -> None:
    flags = {"providers.anthropic.prose": False}
    with scripted(message("x"), flags=flags) as (runtime, _):
        with runtime.session() as session:
            phrases = ("hello", "what can you do?", "what did I just say?", "list the sessions")
            results = [session.turn(phrase) for phrase in phrases]
        gates = runtime.ledger.read_by_event_type("WO_QUALITY_GATE")
        plans = runtime.ledger.read_by_event_type("WO_PLANNED")
    assert all(result.quality_gate_passed for result in results)
    assert [gate.metadata["verdict"] for gate in gates] == ["accept"] * 4
    assert RECALL in plans[0].metadata["constraints"]["tools_allowed"]


def test_the_report_of_an_unfinished_turn(tmp_path: Path) -> None:
    world = World(tmp_path, SECRET)
    with world.runtime as runtime:
        session = world.agent.session()
        session.turn("Well?")
        assert session.turn("Show my last message").notice  # no code answers in the agent's place
        assert all(gate.metadata["verdict"] == "reject" for gate in world.gates())
        assert runtime.ledger.read_by_event_type("TURN_RECORDED")[1].metadata["outcome"] == "notice"


@pytest.mark.parametrize("line", ["ask", "chat"])
def test_commands(tmp_path: Path, line: str) -> None:
    root = new_root(tmp_path / "r")
    with serve(message("Four.")) as server:
        environment: dict[str, str | None] = {
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "sk-secret",
        }
        if line == "ask":
            done = run_remit("ask", "--root", root, "--json", "2+2?", environment=environment)
            assert json.loads(done.stdout)["notice"] is False
        else:
            done = run_remit("chat", "--root", root, stdin="2+2?\n/exit\n", environment=environment)
    assert "Four." in done.stdout
    with Runtime.open(root) as runtime:
        (*_, gate) = runtime.ledger.read_by_event_type("WO_QUALITY_GATE")
    assert gate.metadata["verdict"] == "accept"
