"""An agent hands its session over: the other one answers from the same turn on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remit import Context, Tool
from remit.agents.supervisor import Plan, PlanStep
from remit.kernel.errors import InvalidInputError
from remit.kernel.loops import run_blocking
from remit.runtime import Agent, Runtime
from remit.tools import ToolError
from tests.agents.test_subagents import by_agent, check
from tests.support.agents import TEXT, Scripted, tools_only
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


def test_the_other_answers_this_turn_and_those_after_it(scripted: Scripted, tmp_path: Path) -> None:
    root = tmp_path / "root"
    script = by_agent(
        desk=[_transfer("billing"), message("By itself.")], billing=[message("You are owed 5.")]
    )
    with scripted(script) as (runtime, server):
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


def test_one_hands_over_to_the_next_in_one_turn(scripted: Scripted) -> None:
    script = by_agent(
        desk=[_transfer("billing")], billing=[_transfer("law")], law=[message("Sue us.")]
    )
    with scripted(script) as (runtime, _):
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


def test_a_handed_over_turn_waits_and_resumes_elsewhere(scripted: Scripted, tmp_path: Path) -> None:
    ran: list[str] = []
    root = tmp_path / "root"
    with scripted(_refunding()) as (runtime, server):
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


def test_a_program_that_has_the_other_no_more_answers_itself(scripted: Scripted) -> None:
    script = by_agent(
        desk=[_transfer("billing"), message("The desk again.")], billing=[message("Owed.")]
    )
    with scripted(script) as (runtime, _):
        session = _desk(runtime, []).session()
        session.turn("Money!")
        alone = runtime.agent("desk", instructions="You are the desk.")
        answer = alone.session(session.session_id).turn("And now?")
        assert answer.response == "The desk again."


def test_the_other_goes_on_with_what_tools_returned_to_the_first(scripted: Scripted) -> None:
    look = Tool("look", "Look.", TEXT, lambda text: f"{text} paid 12.5 twice")
    both = tools_only(
        tool_use("look", {"text": "Ann"}, "t1"),
        tool_use("transfer_to_billing", {"reason": "Money."}, "t2"),
    )
    script = by_agent(desk=[both], billing=[message("I saw it.")])
    with scripted(script) as (runtime, server):
        billing = runtime.agent("billing", instructions="You are the billing.")
        desk = runtime.agent(
            "desk", instructions="You are the desk.", tools=[look, billing.as_handoff()]
        )
        assert desk.run("Refund me.").response == "I saw it."
        assert "Ann paid 12.5 twice" in json.dumps(server.calls[1].body)


def test_the_others_rejected_answer_is_asked_again_without_used_tools(scripted: Scripted) -> None:
    ran: list[str] = []
    script = by_agent(
        desk=[_transfer("billing")],
        billing=[
            tools_only(tool_use("refund", {"text": "5"})),
            message("Well."),
            message("5."),
        ],
    )
    with scripted(script) as (runtime, server):
        refund = Tool("refund", "Refund.", TEXT, lambda text: ran.append(text) or "refunded")
        billing = runtime.agent(
            "billing", instructions="You are the billing.", tools=[refund],
            acceptance={"must_contain": ["5"]},
        )  # fmt: skip
        desk = runtime.agent(
            "desk", instructions="You are the desk.", tools=[billing.as_handoff()], max_retries=1
        )
        result = desk.run("Refund me.")
        assert (result.response, result.degraded, ran) == ("5.", False, ["5"])
        assert "refund" not in json.dumps(server.calls[-1].body.get("tools", []))
        assert runtime.ledger.count_by_event().get("DEGRADATION", 0) == 0


def test_the_turns_output_type_holds_for_the_other(scripted: Scripted) -> None:
    script = by_agent(desk=[_transfer("billing")], billing=[message('{"result": [1, 2]}')])
    with scripted(script) as (runtime, _):
        session = _desk(runtime, [], output_type=list[int]).session()
        assert session.turn("Which?").output == [1, 2]
        assert session.turn("And now?").output == [1, 2]


@pytest.mark.parametrize("how", ["tool", "handoff"])
def test_deps_are_checked_for_every_agent_that_may_answer(scripted: Scripted, how: str) -> None:
    def look(shop: Context[int], text: str) -> str:
        """Look."""
        return text * shop.deps

    with scripted(message("x")) as (runtime, server):
        law = runtime.agent("law", instructions="You are the law.", tools=[look])
        below = law.as_tool() if how == "tool" else law.as_handoff()
        billing = runtime.agent("billing", tools=[below])
        desk = runtime.agent("desk", tools=[billing.as_handoff()])
        for deps in (None, "two"):
            with pytest.raises(InvalidInputError, match="look needs deps of the type int"):
                desk.run("Refund me.", deps=deps)
        assert server.calls == []
        assert desk.run("Refund me.", deps=2).response == "x"


def test_a_cancelled_turn_ends_its_sub_agents_waiting(scripted: Scripted, tmp_path: Path) -> None:
    root = tmp_path / "root"
    script = by_agent(
        desk=[_transfer("billing")],
        billing=[message("Yes?"), tools_only(tool_use("helper", {"task": "Pay."}))],
        helper=[tools_only(tool_use("pay", {"text": "Ann"}))],
    )
    with scripted(script) as (runtime, _):

        def desk(of: Runtime) -> Agent[Any]:
            pay = Tool("pay", "Pay.", TEXT, lambda text: text)
            helper = of.agent(
                "helper", instructions="You are the helper.", tools=[pay], approve=["pay"]
            )
            billing = of.agent(
                "billing", instructions="You are the billing.", tools=[helper.as_tool()]
            )
            return of.agent("desk", instructions="You are the desk.", tools=[billing.as_handoff()])

        session = desk(runtime).session()
        session.turn("Money!")
        (asked,) = session.turn("Pay Ann.").waiting_for
        (began,) = [
            entry.metadata["caller"]
            for entry in runtime.ledger.query(event_type="SESSION_START")
            if "caller" in entry.metadata
        ]
        assert began["agent_id"] == "billing"
        with Runtime.open(root) as other:
            assert desk(other).session(session.session_id).cancel()
            assert other.approvals.get(asked.request_id).state == "void"
        (ended,) = [
            entry.metadata["provenance"]["agent_id"]
            for entry in runtime.ledger.query(event_type="WO_FAILED")
            if session.session_id in entry.submission_id
        ]
        assert ended == "billing"
        check(runtime)


def test_the_other_answers_under_its_own_contract(scripted: Scripted, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    (folder / "contracts").mkdir(parents=True)
    (folder / "prompt_packs").mkdir()
    contract = {
        "contract_id": "PRC-MONEY-001", "version": "1.0.0", "prompt_pack_id": "PRM-MONEY-001",
        "boundary": {"max_tokens": 100, "temperature": 0},
    }  # fmt: skip
    (folder / "contracts/PRC-MONEY-001.json").write_text(json.dumps(contract))
    (folder / "prompt_packs/PRM-MONEY-001.txt").write_text("You are the billing. {{ user_input }}")
    script = by_agent(desk=[_transfer("billing")], billing=[message("Five.")])
    with scripted(script) as (runtime, _):
        billing = runtime.agent("billing", contract="PRC-MONEY-001", contracts=folder)
        desk = runtime.agent(
            "desk", instructions="You are the desk.", tools=[billing.as_handoff(description="M.")]
        )
        session = desk.session()
        assert session.turn("How much?").response == "Five."
        again = session.turn("Sure?")
        assert (again.response, again.degraded) == ("Five.", False)


def test_a_planner_cannot_be_handed_a_session(scripted: Scripted) -> None:
    with scripted(message("x")) as (runtime, _):
        planning = runtime.agent("planning", planner=lambda turn: Plan((PlanStep.task("a", "b"),)))
        with pytest.raises(InvalidInputError, match="planner"):
            planning.as_handoff()


def test_agents_that_hand_over_to_each_other_end(scripted: Scripted) -> None:
    script = by_agent(desk=[_transfer("billing")], billing=[_transfer("desk")])
    with scripted(script) as (runtime, server):
        tools: list[Tool] = []
        for _ in range(4):
            back = runtime.agent("desk", instructions="You are the desk.", tools=tools)
            billing = runtime.agent(
                "billing", instructions="You are the billing.", tools=[back.as_handoff()]
            )
            tools = [billing.as_handoff()]
        first = runtime.agent("desk", instructions="You are the desk.", tools=tools)
        result = first.run("Money!")
        assert result.failed
        assert len(server.calls) <= 8
        check(runtime)


def test_colliding_names_of_sub_agents_handoffs_and_tools_are_refused(scripted: Scripted) -> None:
    with scripted(message("x")) as (runtime, _):
        one, other = runtime.agent("law firm"), runtime.agent("law_firm")
        own = Tool("transfer_to_law_firm", "Mine.", TEXT, lambda text: text)
        for tools in (
            [one.as_tool(), other.as_tool()],
            [one.as_handoff(), other.as_handoff()],
            [own, one.as_handoff()],
            [one.as_tool(name="transfer_to_law_firm"), one.as_handoff()],
            [one.as_tool(name="list_files"), "list_files"],
            [own, own],
            ["list_files", Tool("list_files", "x", TEXT, print)],
        ):
            with pytest.raises(ToolError, match="Two tools have the id"):
                runtime.agent("boss", tools=tools)


def test_a_model_that_chooses_tools_by_a_list_hands_over_too(scripted: Scripted) -> None:
    def model(body: dict[str, Any]) -> dict[str, Any]:
        schema = body.get("output_config", {}).get("format", {}).get("schema", {})
        if "enum" in schema:
            return message(json.dumps(schema["enum"][0]))
        return message(json.dumps({"reason": "Money."}) if schema else "You are owed 5.")

    flags = {"providers.anthropic.prose": False, "supervisor.classify": False}
    with scripted(model, flags=flags) as (runtime, _):
        billing = runtime.agent("billing", instructions="You are the billing.")
        desk = runtime.agent(
            "desk",
            instructions="You are the desk.",
            tools=[billing.as_handoff(description="For refunds.")],
        )
        session = desk.session()
        result = session.turn("transfer to billing please")
        assert result.response == "You are owed 5."
        assert "goes on" not in result.response
        assert _agents(runtime)[-1] == "billing"


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit(3)], ids=repr)
def test_a_tools_own_words_end_no_turn(scripted: Scripted, error: BaseException) -> None:
    """Neither what reads a message nor what describes an output is the tool itself."""

    def fail(_: Any) -> Any:
        raise error

    def seen(name: str, output: str, describe: Any) -> Tool:
        return Tool(
            name, f"See {name}.", {"type": "object", "properties": {}}, lambda: output, (),
            describe, name, understand=lambda text: {} if name in text else None,
        )  # fmt: skip

    broken = replace(seen("one", "1 cup", None), understand=fail)
    tools = [broken, seen("two", "2", lambda _: "\ud83d cups"), seen("three", "3 cups", fail)]
    flags = {"providers.anthropic.prose": False, "supervisor.classify": False}
    with scripted(message("{}"), flags=flags) as (runtime, _):
        session = runtime.agent("desk", tools=tools).session()
        assert "\ufffd cups" in session.turn("see two please").response
        assert "3 cups" in session.turn("see three please").response


def test_an_order_of_a_program_outside_is_not_offered_a_handoff(scripted: Scripted) -> None:
    with scripted(message("x")) as (runtime, _):
        session = _desk(runtime, []).session()

        async def offered() -> list[str]:
            async with session.attached("Do it.") as order:
                return [tool.tool_id for tool in order.tools]

        assert run_blocking(offered()) == []
