"""Agents as tools of agents: linked on record, held to their caller's budgets, resumed once."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime, Tool
from remit.agents.supervisor import TurnCancelledError
from remit.agents.workorders import sub_session_id
from remit.gateway.budget import audit_budgets
from remit.packages.gates import check_gates
from remit.runtime import Agent
from remit.views import prompt_journey
from tests.support.agents import Scripted, tools_only
from tests.support.commands import run_remit
from tests.support.postgres import PostgresServer
from tests.support.wire import Step, message, tool_use

_BOSS, _HELPER = "You are the boss.", "You are the helper."


def by_agent(**answers: list[Any]) -> Step:
    """Each agent's own answers, by the word in its instructions; the last one repeats."""

    def step(body: dict[str, Any]) -> Any:
        text = json.dumps([body.get("system"), body["messages"]])
        name = next(name for name in answers if f"You are the {name}." in text)
        left = answers[name]
        answer = left.pop(0) if len(left) > 1 else left[0]
        return answer(body) if callable(answer) else answer

    return step


def ask(task: str = "Find it.", name: str = "helper") -> dict[str, Any]:
    return tools_only(tool_use(name, {"task": task}))


def pair(runtime: Runtime, **options: Any) -> tuple[Agent, Agent]:
    """A helper, and a boss who has it as a tool."""
    helper = runtime.agent("helper", instructions=_HELPER, **options.pop("helper", {}))
    boss = runtime.agent(
        "boss",
        instructions=_BOSS,
        tools=[helper.as_tool(description="Finds things.")],
        max_retries=0,
        **options,
    )
    return boss, helper


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both stores."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        monkeypatch.setenv("REMIT_DATABASE_URL", server.database())
    return str(request.param)


def check(runtime: Runtime) -> None:
    """What holds of every ledger with sub-agents."""
    assert runtime.ledger.verify().verified
    audit = audit_budgets(runtime.ledger)
    assert audit.equal, audit.differences
    assert not audit.calls
    report = check_gates(runtime.gate_context(), ["G2"], full=True, by="a test")
    assert report.passed, report


def test_its_session_is_linked_and_its_cost_is_its_callers(scripted: Scripted, store: str) -> None:
    script = by_agent(boss=[ask(), message("It is 42.")], helper=[message("42")])
    with scripted(script) as (runtime, server):
        boss, _ = pair(runtime)
        session = boss.session()
        result = session.turn("What is it?")
        assert result.response == "It is 42."
        assert len(server.calls) == 3
        (intent,) = runtime.ledger.query(event_type="TOOL_INTENT")
        sub = intent.metadata["sub_session_id"]
        assert sub == sub_session_id(intent.metadata["idempotency_key"])
        (started,) = runtime.ledger.query(event_type="SESSION_START", session_id=sub)
        assert started.metadata["caller"] == {
            "session_id": session.session_id,
            "work_order_id": f"WO-{session.session_id}-001",
            "agent_id": "boss",
            "idempotency_key": intent.metadata["idempotency_key"],
        }
        assert runtime.ledger.count_by_event()["SESSION_END"] == 1
        exchanges = list(runtime.ledger.query(event_type="EXCHANGE"))
        tokens = sum(e.metadata["input_tokens"] + e.metadata["output_tokens"] for e in exchanges)
        assert result.cost_summary["total_tokens"] == tokens
        assert result.cost_summary["llm_calls"] == 3
        assert session.cost()["total_tokens"] == tokens
        scopes = {one.scope: one.spent_tokens for one in runtime.budgeter.list("session:")}
        assert scopes[f"session:{session.session_id}"] == tokens
        assert scopes[f"session:{session.session_id}/work_order:WO-{session.session_id}-001"] == (
            tokens
        )
        assert 0 < scopes[f"session:{sub}"] < tokens
        check(runtime)
        _check_trace(runtime, session.session_id, sub)


def _check_trace(runtime: Runtime, session_id: str, sub: str) -> None:
    root = ("--root", runtime.root.path)
    (turn,) = prompt_journey(runtime.ledger, session_id=session_id)["turns"]
    (step,) = [step for step in turn["work_orders"][0]["steps"] if step["kind"] == "tool_call"]
    assert step["session"]["session_id"] == sub
    (below,) = step["session"]["turns"]
    assert (below["user_message"], below["response"]) == ("Find it.", "42")
    shown = run_remit("trace", session_id, "--verify", *root)
    assert shown.returncode == 0, shown.stderr
    tree, hashes = shown.stdout.split("trace hash of", 1)
    assert f"│  {sub}  helper" in tree.replace("└─", "│ ").replace("├─", "│ ")
    assert hashes.count("agrees") == 2
    assert "DOES NOT" not in hashes
    page = run_remit("trace", session_id, "--html", "-", *root)
    assert sub in page.stdout
    last = run_remit("trace", "--last", *root)
    assert last.stdout.startswith(session_id)


@pytest.mark.parametrize("limit", ["session tokens", "session usd", "order tokens"])
def test_one_that_would_overspend_its_callers_is_not_sent(scripted: Scripted, limit: str) -> None:
    script = by_agent(boss=[ask(), message("I could not.")], helper=[message("42")])
    with scripted(script) as (runtime, server):
        order = {"order_tokens": 20_000} if limit == "order tokens" else {}
        helper = runtime.agent("helper", instructions=f"{_HELPER} {'so ' * 40_000}", max_retries=0)
        boss = runtime.agent(
            "boss", instructions=_BOSS, tools=[helper.as_tool(description="Finds.")], **order
        )
        session = boss.session(
            tokens=20_000 if limit == "session tokens" else None,
            usd=0.10 if limit == "session usd" else None,
        )
        result = session.turn("What is it?")
        assert result.response == "I could not."
        assert len(server.calls) == 2, "the sub-agent's call was sent"
        (refused,) = runtime.ledger.query(event_type="PROMPT_REJECTED")
        assert refused.metadata["error_code"] == "BUDGET_EXHAUSTED"
        assert f"session:{session.session_id}" in str(refused.metadata["error_message"])
        (told,) = result.tool_results
        assert told["status"] == "error"
        assert "budget_exhausted" in told["error"]
        check(runtime)


@pytest.mark.parametrize("limit", [{"tokens": 12_000}, {"usd": 0.10}])
def test_ones_at_work_side_by_side_stay_within_their_callers_budget(
    scripted: Scripted, store: str, limit: dict[str, Any]
) -> None:
    names = [f"helper{n}" for n in range(8)]
    uses = [tool_use(name, {"task": "Find."}, f"t{n}") for n, name in enumerate(names)]
    helpers: dict[str, list[Any]] = {
        name: [message("42", input_tokens=400, output_tokens=600)] for name in names
    }
    script = by_agent(boss=[tools_only(*uses), message("Enough.")], **helpers)
    with scripted(script) as (runtime, server):
        of_one = {"order_tokens": 1200} if "tokens" in limit else {}
        below = [
            runtime.agent(name, instructions=f"You are the {name}.", max_retries=0, **of_one)
            for name in names
        ]
        tools = [one.as_tool() for one in below]
        session = runtime.agent("boss", instructions=_BOSS, tools=tools).session(**limit)
        session.turn("Find all.")
        (state,) = runtime.budgeter.list(f"session:{session.session_id}")[:1]
        assert (state.reserved_nano, state.reserved_tokens) == (0, 0)
        if "tokens" in limit:
            assert state.spent_tokens <= 12_000
        else:
            cost = session.cost()["cost_usd"]
            assert 0 < cost <= 0.10
            assert round(cost * 1e9) == state.spent_nano <= 100_000_000
        assert len(server.calls) > 2
        check(runtime)


@pytest.mark.parametrize("above", ["boss", "helper"])
def test_one_that_calls_whoever_called_it_is_refused(scripted: Scripted, above: str) -> None:
    script = by_agent(
        boss=[ask(), message("Done.")],
        helper=[ask(name="middle"), message("No way.")],
        middle=[ask(name="again"), message("I cannot.")],
    )
    with scripted(script) as (runtime, server):
        same = runtime.agent(above, instructions=f"You are the {above}.")
        middle = runtime.agent(
            "middle", instructions="You are the middle.", tools=[same.as_tool(name="again")]
        )
        helper = runtime.agent("helper", instructions=_HELPER, tools=[middle.as_tool()])
        boss = runtime.agent("boss", instructions=_BOSS, tools=[helper.as_tool()])
        assert boss.run("Go round.").response == "Done."
        assert len(server.calls) == 6
        calls = runtime.ledger.query(event_type="TOOL_CALL")
        (refused,) = [one for one in calls if one.metadata["status"] == "error"]
        said = f"{above} is at work on this already: boss -> helper -> middle -> {above}."
        assert said in str(refused.metadata["tool_error"])
        check(runtime)


def _asking(runtime: Runtime, ran: list[str]) -> Agent:
    """A boss whose helper has a tool that a person must release."""

    def pay(text: str) -> str:
        ran.append(text)
        return "paid"

    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    boss, _ = pair(
        runtime, helper={"tools": [Tool("pay", "Pay.", schema, pay)], "approve": ["pay"]}
    )
    return boss


def _paying() -> Step:
    return by_agent(
        boss=[ask("Pay Ann."), message("Ann is paid.")],
        helper=[tools_only(tool_use("pay", {"text": "Ann"})), message("Paid, or denied.")],
    )


@pytest.mark.parametrize("granted", [True, False])
def test_an_approval_inside_it_parks_its_caller_and_is_gone_on_with(
    scripted: Scripted, tmp_path: Path, store: str, granted: bool
) -> None:
    ran: list[str] = []
    root = tmp_path / "root"
    with scripted(_paying()) as (runtime, server):
        session = _asking(runtime, ran).session()
        result = session.turn("Pay Ann.")
        (asked,) = result.waiting_for
        assert (asked.tool_id, dict(asked.arguments)) == ("pay", {"text": "Ann"})
        assert (ran, len(server.calls)) == ([], 2)
        with Runtime.open(root) as other:  # another process, in which nothing was decided
            again = _asking(other, ran).session(session.session_id)
            waiting = again.resume()
            assert waiting is not None
            assert waiting.waiting_for == (asked,)
            other.approvals.decide(asked.request_id, granted=granted, by="Joe")
            resumed = again.resume()
        assert resumed is not None
        assert resumed.response == "Ann is paid."
        assert ran == ["Ann"] * granted
        assert len(server.calls) == 4
        intents = list(runtime.ledger.query(event_type="TOOL_INTENT"))
        assert len({entry.metadata.get("sub_session_id") for entry in intents} - {None}) == 1
        assert runtime.ledger.count_by_event()["SESSION_START"] == 2
        assert resumed.cost_summary["llm_calls"] == 4
        check(runtime)


def test_one_ends_with_its_cancelled_caller(scripted: Scripted, tmp_path: Path, store: str) -> None:
    asked, released = threading.Event(), threading.Event()

    def late(_: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        released.wait(60)
        return message("42")

    root = tmp_path / "root"
    script = by_agent(boss=[ask(), message("Never.")], helper=[late])
    with (
        scripted(script) as (runtime, server),
        ThreadPoolExecutor(1) as pool,
        Runtime.open(root) as other,
    ):
        boss, _ = pair(runtime)
        session = boss.session()
        turn = pool.submit(session.turn, "What is it?")
        assert asked.wait(60)
        assert pair(other)[0].session(session.session_id).cancel()
        with pytest.raises(TurnCancelledError):
            turn.result(60)
        released.set()
        assert len(server.calls) == 2
        turns = runtime.ledger.query(event_type="TURN_RECORDED")
        assert [entry.metadata["outcome"] for entry in turns] == ["cancelled"] * 2
        assert session.unfinished() is None
        assert not session.cancel()  # nothing runs any more
        exchanges = list(runtime.ledger.query(event_type="EXCHANGE"))
        spent = sum(e.metadata["input_tokens"] + e.metadata["output_tokens"] for e in exchanges)
        assert session.cost()["total_tokens"] == spent
        (state,) = runtime.budgeter.list(f"session:{session.session_id}")[:1]
        assert (state.spent_tokens, state.reserved_tokens) == (spent, 0)
        check(runtime)


def test_a_timed_out_callers_cost_holds_the_running_call(scripted: Scripted, store: str) -> None:
    released = threading.Event()

    def late(_: dict[str, Any]) -> dict[str, Any]:
        released.wait(60)
        return message("42")

    script = by_agent(boss=[ask(), message("Never.")], helper=[late])
    with scripted(script) as (runtime, _):
        boss, _ = pair(runtime, timeout_s=3)
        session = boss.session()
        result = session.turn("What is it?")
        released.set()
        assert result.error_code == "timeout"
        exchanges = list(runtime.ledger.query(event_type="EXCHANGE"))
        spent = sum(e.metadata["input_tokens"] + e.metadata["output_tokens"] for e in exchanges)
        assert result.cost_summary["total_tokens"] == session.cost()["total_tokens"] == spent
        check(runtime)
