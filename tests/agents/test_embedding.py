"""Agents as programs use them: sync, async, streamed, with functions as tools."""

from __future__ import annotations

import asyncio
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

import remit
from remit.agents.workorders import TextDelta, ToolEnded, ToolStarted, WorkOrderState
from remit.gateway.budget import BudgetScope
from remit.kernel.errors import InvalidInputError
from remit.runtime import TurnEnded
from remit.testing import ScriptedModel
from tests.support.agents import Scripted
from tests.support.roots import new_root
from tests.support.wire import anthropic_answer, message, serve, tool_use


@remit.tool
def add(a: int, b: int = 1) -> dict[str, int]:
    """Add two numbers.

    Args:
        a: the one.
        b: the other.
    """
    return {"sum": a + b}


@remit.tool(on_unknown="retry")
async def whoami() -> str:
    """Tell which order asks."""
    call = remit.current_call()
    assert call is not None
    return f"{call.work_order_id} {call.idempotency_key}"


def _script() -> list[Any]:
    return [
        anthropic_answer(tool_use("add", {"a": 2, "b": 3}, "t1"), tool_use("whoami", {}, "t2")),
        anthropic_answer("It is 5."),
    ]


def test_functions_are_tools(scripted: Scripted) -> None:
    with scripted(*_script()) as (runtime, server):
        agent = runtime.agent("adder", instructions="You add.", tools=[add, whoami])
        with agent.session() as session:
            turn = session.turn("2 + 3?")
        offered = server.calls[0].body["tools"][0]
    assert turn.response == "It is 5."
    assert turn.tool_results[0]["output"] == {"sum": 5}
    order, key = str(turn.tool_results[1]["output"]).split()
    assert key.startswith(f"{order}/LED-")
    assert offered["input_schema"]["properties"]["b"]["default"] == 1
    assert offered["input_schema"]["properties"]["a"]["description"] == "the one."
    assert "You add." in server.calls[0].body["system"]


def test_a_streamed_turn_ends_with_its_result(scripted: Scripted) -> None:
    with scripted(*_script()) as (runtime, _):
        session = runtime.agent("adder", tools=[add, whoami]).session()
        events = list(session.stream("2 + 3?"))
    *before, last = events
    assert isinstance(last, TurnEnded)
    assert "".join(e.text for e in before if isinstance(e, TextDelta)) == "It is 5."
    assert sorted(e.tool_id for e in before if isinstance(e, ToolStarted)) == ["add", "whoami"]
    assert sorted(e.tool_id for e in before if isinstance(e, ToolEnded)) == ["add", "whoami"]


@pytest.mark.parametrize("blocking", [False, True])
def test_whoever_stops_listening_cancels_the_turn(scripted: Scripted, blocking: bool) -> None:
    ended: list[str] = []

    @remit.tool
    async def wait() -> str:
        """Take long."""
        ended.append("begun")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")
        return "late"

    script = anthropic_answer(tool_use("wait", {}))
    with scripted(script) as (runtime, _):
        session = runtime.agent("waiter", tools=[wait]).session()

        async def listen() -> None:
            stream = session.astream("wait for it")
            async for event in stream:
                if isinstance(event, ToolStarted):
                    break
            while not ended:  # its arguments are checked first
                await asyncio.sleep(0.01)
            await stream.aclose()  # type: ignore[attr-defined]
            await runtime.aclose()

        if blocking:
            stream = session.stream("wait for it")
            for event in stream:
                if isinstance(event, ToolStarted):
                    break
            while not ended:
                time.sleep(0.01)
            stream.close()  # type: ignore[attr-defined]
        else:
            asyncio.run(asyncio.wait_for(listen(), 30))
        deadline = time.monotonic() + 20
        while not (turns := runtime.ledger.read_by_event_type("TURN_RECORDED")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        (call,) = runtime.ledger.read_by_event_type("TOOL_CALL")
        (failed,) = runtime.ledger.read_by_event_type("WO_FAILED")
    assert ended == ["begun", "cancelled"]
    assert [turn.metadata["outcome"] for turn in turns] == ["cancelled"]
    assert "may have taken effect" in call.metadata["tool_error"]
    assert failed.metadata["error_code"] == "cancelled"


async def test_the_same_with_an_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(*_script()) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
        async with remit.Runtime.open(tmp_path / "root", create=True) as runtime:
            agent = runtime.agent("adder", tools=[add, whoami])
            async with agent.session() as session:
                turn = await session.aturn("2 + 3?")
            assert turn.response == "It is 5."
            assert (await agent.arun("2 + 3, again?")).response == "It is 5."


def test_the_limits_of_a_session_hold(scripted: Scripted) -> None:
    priced = {**message("Hello."), "model": "claude-sonnet-5"}
    with scripted(priced) as (runtime, server):
        agent = runtime.agent("talker", session_usd=0.000_1, max_retries=0)
        with agent.session() as session:
            turn = session.turn("hello")
            status = runtime.budgeter.status(BudgetScope(session.session_id))[0]
        with agent.session(usd=1.0) as rich:
            assert rich.turn("hello").response == "Hello."
        assert len(server.calls) == 1
        small = runtime.agent("small", order_tokens=30, max_retries=0).run("hello")
    assert not turn.quality_gate_passed
    assert turn.error_code == "budget_exhausted"
    assert turn.error_detail
    assert status.spent_nano == 0
    assert small.error_code == "budget_exhausted"


def test_criteria_of_the_gate(scripted: Scripted) -> None:
    script = (message("No."), message("The answer is 5, my friend."))
    with scripted(*script) as (runtime, _):
        agent = runtime.agent("a", acceptance={"min_chars": 10, "must_contain": ["ANSWER"]})
        result = agent.run("well?")
        gates = runtime.ledger.read_by_event_type("WO_QUALITY_GATE")
    assert result.response == "The answer is 5, my friend."
    assert gates[0].metadata["reasons"] == [
        "the answer is shorter than 10 characters", "the answer does not contain 'ANSWER'",
    ]  # fmt: skip


def test_a_contract_of_ones_own_gives_data(scripted: Scripted, tmp_path: Path) -> None:
    own = tmp_path / "own"
    for folder, name, text in (
        ("contracts", "PRC-LABEL-001.json", """{
            "contract_id": "PRC-LABEL-001", "version": "1.0.0", "prompt_pack_id": "PRM-LABEL-001",
            "boundary": {"max_tokens": 50, "temperature": 0, "structured_output": true},
            "output_schema": {"type": "object", "required": ["label"], "properties":
                {"label": {"enum": ["good", "bad"]}}, "additionalProperties": false}}"""),
        ("prompt_packs", "PRM-LABEL-001.txt", "[user]\nLabel this: {{ user_input }}\n"),
    ):  # fmt: skip
        (own / folder).mkdir(parents=True)
        (own / folder / name).write_text(text)
    good = message(json.dumps({"label": "good"}))
    with scripted(good) as (runtime, _):
        agent = runtime.agent("labeller", contract="PRC-LABEL-001", contracts=own)
        with agent.session() as session:
            order = session.work("a fine day", key="row-a")
            turn = session.turn("a fine day")
    assert order.state is WorkOrderState.COMPLETED
    assert order.output_result == turn.output == {"label": "good"}
    assert turn.response == '{"label":"good"}'


@pytest.mark.parametrize("none", [0, -1, 1.5, True, "5"])
def test_a_limit_of_no_tokens_is_not_taken_for_no_limit(tmp_path: Path, none: Any) -> None:
    with remit.Runtime.open(new_root(tmp_path / "r"), providers={"s": ScriptedModel()}) as runtime:
        agent = runtime.agent("clerk")
        for made in (
            lambda: runtime.agent("clerk", session_tokens=none),
            lambda: runtime.agent("clerk", order_tokens=none),
            lambda: agent.session(tokens=none),
            lambda: agent.submit("Well?", tokens=none),
            lambda: remit.Schedule(agent, "s", "Well?", every_s=60, tokens=none),
        ):
            with pytest.raises(InvalidInputError, match=r"must be an integer of at least [01]"):
                made()
        for limits in ({"order_usd": math.nan}, {"session_usd": math.nan}, {"order_usd": -1}):
            with pytest.raises(InvalidInputError):
                runtime.agent("clerk", **limits)
