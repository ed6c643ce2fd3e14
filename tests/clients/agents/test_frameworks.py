"""One program with two tools, of which a person releases one, in each framework under Remit.

Each runs against the strict provider, through a run of Remit's, in this process.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime, tool
from remit.kernel.root import Root
from remit.packages.gates import check_gates
from remit.runtime import Agent, make_root
from remit.views import prompt_journey
from remit_interop import Door, Run, WorkParkedError
from tests.clients.conftest import make_side

ORDERED: list[int] = []
TASK = '[[call stock {"tea": "oolong"}]] [[call order_tea {"tea": "oolong", "packets": 10}]]'
SAID = "The tools said: 3; 10 packets of oolong are ordered"


@tool(on_unknown="retry")
def stock(tea: str) -> int:
    """How many packets of a tea there are."""
    return {"oolong": 3}[tea]


@tool
def order_tea(tea: str, packets: int) -> str:
    """Order tea."""
    ORDERED.append(packets)
    return f"{packets} packets of {tea} are ordered"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("interop") / "root"
    make_root(Root(place))
    return place


@pytest.fixture
def runtime(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    for name, value in make_side("direct").variables().items():
        monkeypatch.setenv(name, value)
    ORDERED.clear()
    shutil.copytree(root, tmp_path / "root")
    with Runtime.open(tmp_path / "root") as opened:
        for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL"):
            monkeypatch.delenv(name)  # whoever asks the provider directly fails
        yield opened


@pytest.fixture
def door(runtime: Runtime) -> Iterator[Door]:
    with Door(runtime) as opened:
        yield opened


def buyer(runtime: Runtime, *more: Any, approve: str = "order_tea") -> Agent:
    return runtime.agent(
        "buyer", tools=[stock, order_tea, *more], approve=[approve], session_usd=1.0
    )


def decide(runtime: Runtime, run: Run, *, granted: bool = True) -> None:
    assert ORDERED == []
    (request_id,) = run.waiting_for
    (waiting,) = runtime.approvals.pending()
    assert waiting.request_id == request_id
    assert waiting.arguments == {"tea": "oolong", "packets": 10}
    runtime.approvals.decide(request_id, granted=granted, by="Ada", reason="" if granted else "no")


def check(runtime: Runtime, run: Run, *, ordered: bool = True, calls: int = 2) -> None:
    """What must be on record of each framework's run."""
    assert ([10] if ordered else []) == ORDERED
    order, ledger = run.order, runtime.ledger
    assert order.state == "completed", order.error
    assert order.cost.llm_calls == calls
    assert order.cost.cost_usd
    found = list(ledger.query(session_id=run.session_id))
    kinds = [entry.event_type for entry in found]
    assert kinds[0] == "SESSION_START"
    for kind in ("WO_PLANNED", "WO_DISPATCHED", "APPROVAL_REQUESTED"):
        assert kinds.count(kind) == 1
    assert kinds.count("DISPATCH") == kinds.count("EXCHANGE") == calls
    assert kinds.count("TOOL_INTENT") == 1 + ordered
    assert kinds.count("APPROVAL_GRANTED" if ordered else "APPROVAL_DENIED") == 1
    tools = [entry.metadata for entry in found if entry.event_type == "TOOL_CALL"]
    assert {(data["tool_id"], data["status"]) for data in tools} == {
        ("stock", "ok"), ("order_tea", "ok" if ordered else "refused"),
    }  # fmt: skip
    exchanges = [entry.metadata for entry in found if entry.event_type == "EXCHANGE"]
    assert {(d["agent_id"], d["work_order_id"]) for d in exchanges} == {("buyer", order.wo_id)}
    (turn,) = prompt_journey(ledger, session_id=run.session_id)["turns"]
    steps = [step["kind"] for step in turn["work_orders"][0]["steps"]]
    assert (steps.count("model_call"), steps.count("tool_call")) == (calls, 2)
    (report,) = check_gates(runtime.gate_context(), ["G2"], by="test").gates
    assert report.passed, report
    assert ledger.verify().verified


@pytest.mark.parametrize("granted", [True, False])
async def test_openai_agents(runtime: Runtime, door: Door, granted: bool) -> None:
    import agents
    from remit_interop.openai_agents import model, settle, tools

    agents.set_tracing_disabled(True)
    session = buyer(runtime).session()
    async with door.attach(session, TASK, key="tea") as run:
        agent = agents.Agent("Buyer", model=model(run, "gpt-4o-mini"), tools=tools(run))
        result = await agents.Runner.run(agent, TASK)
        assert [item.tool_name for item in result.interruptions] == ["order_tea"]
        with pytest.raises(WorkParkedError):
            await settle(run, result.to_state())
        saved = result.to_state().to_json()
    decide(runtime, run, granted=granted)
    async with door.attach(session, TASK, key="tea") as run:  # as another process would
        agent = agents.Agent("Buyer", model=model(run, "gpt-4o-mini"), tools=tools(run))
        state = await agents.RunState.from_json(agent, saved)
        result = await agents.Runner.run(agent, await settle(run, state))
        run.finish(result.final_output)
    if granted:
        assert run.order.output_result["text"] == SAID
    else:
        assert "Ada said no: no" in run.order.output_result["text"]
    check(runtime, run, ordered=granted)


@pytest.mark.parametrize("name", ["gpt-4o-mini", "claude-haiku-4-5"])
@pytest.mark.parametrize("granted", [True, False])
async def test_pydantic_ai(runtime: Runtime, door: Door, granted: bool, name: str) -> None:
    from pydantic_ai import Agent, DeferredToolRequests

    from remit_interop.pydantic_ai import model, settle, tools

    session = buyer(runtime).session()
    async with door.attach(session, TASK, key="tea") as run:
        agent = Agent(model(run, name), tools=tools(run), output_type=[str, DeferredToolRequests])
        result = await agent.run(TASK)
        assert isinstance(result.output, DeferredToolRequests)
        decide(runtime, run, granted=granted)
        results = await settle(run, result.output)
        result = await agent.run(
            message_history=result.all_messages(), deferred_tool_results=results
        )
        run.finish(result.output)
    if granted:
        assert run.order.output_result["text"] == SAID
    else:
        assert "Ada said no: no" in run.order.output_result["text"]
    check(runtime, run, ordered=granted)


@pytest.mark.parametrize("granted", [True, False])
def test_langgraph(runtime: Runtime, door: Door, granted: bool) -> None:
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition
    from langgraph.types import Command

    from remit_interop.langgraph import model, tools

    def graph(run: Run) -> Any:
        chat = model(run, "gpt-4o-mini").bind_tools(tools(run))
        made = StateGraph(MessagesState)
        made.add_node("model", lambda state: {"messages": [chat.invoke(state["messages"])]})
        made.add_node("tools", ToolNode(tools(run)))
        made.add_edge(START, "model")
        made.add_conditional_edges("model", tools_condition)
        made.add_edge("tools", "model")
        return made.compile(checkpointer=saver)

    saver, config = InMemorySaver(), {"configurable": {"thread_id": "1"}}
    session = buyer(runtime).session()
    with door.attach(session, TASK, key="tea") as run:
        state = graph(run).invoke({"messages": [("user", TASK)]}, config)
        (asked,) = state["__interrupt__"]
        assert asked.value["tool"] == "order_tea"
        assert asked.value["request_ids"] == [*run.waiting_for]
        state = graph(run).invoke(Command(resume="yes"), config)  # which is nobody's decision
        assert state["__interrupt__"]
    decide(runtime, run, granted=granted)
    with door.attach(session, TASK, key="tea") as run:
        state = graph(run).invoke(Command(resume=True), config)
        run.finish(state["messages"][-1].text)
    if granted:
        assert run.order.output_result["text"] == SAID
    else:
        assert "Ada said no: no" in run.order.output_result["text"]
    check(runtime, run, ordered=granted)


_CLAUDE = (
    '[[call mcp__remit__stock {"tea": "oolong"}]] '
    '[[call mcp__remit__order_tea {"tea": "oolong", "packets": 10}]]'
)


@pytest.fixture
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Claude Code with a home of its own that asks nothing of anyone else."""
    for name, value in {
        "HOME": str(tmp_path), "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    return {"cwd": str(tmp_path), "setting_sources": [], "model": "claude-haiku-4-5"}


async def _asked(prompt: str, options: Any) -> Any:
    import claude_agent_sdk

    async for message in claude_agent_sdk.query(prompt=prompt, options=options):
        if isinstance(message, claude_agent_sdk.ResultMessage):
            return message
    raise AssertionError("no result")


@pytest.mark.parametrize("granted", [True, False])
async def test_claude_agent(
    runtime: Runtime, door: Door, granted: bool, quiet: dict[str, Any]
) -> None:
    from remit_interop.claude_agent import options

    session = buyer(runtime).session()
    async with door.attach(session, _CLAUDE, key="tea") as run:
        result = await _asked(_CLAUDE, options(run, **quiet))
        assert result.deferred_tool_use.name == "mcp__remit__order_tea", result
    decide(runtime, run, granted=granted)
    async with door.attach(session, _CLAUDE, key="tea") as run:
        result = await _asked("", options(run, resume=result.session_id, **quiet))
        run.finish(result.result)
    check(runtime, run, ordered=granted, calls=run.order.cost.llm_calls)


async def test_claude_codes_own_tools(
    runtime: Runtime, door: Door, quiet: dict[str, Any], tmp_path: Path
) -> None:
    from remit_interop.claude_agent import builtin, options

    (tmp_path / "note.txt").write_text("oolong")
    read = f'[[call Read {{"file_path": "{tmp_path / "note.txt"}"}}]]'
    wrote = f'[[call Write {{"file_path": "{tmp_path / "new.txt"}", "content": "x"}}]]'
    agent = runtime.agent("fixer", tools=builtin("Read"))
    session = agent.session()
    async with door.attach(session, read) as run:
        result = await _asked(read, options(run, **quiet))
        assert "oolong" in result.result
        await _asked(wrote, options(run, **quiet))
    assert not (tmp_path / "new.txt").exists()
    found = list(runtime.ledger.query(session_id=run.session_id, event_type="TOOL_CALL"))
    assert [(e.metadata["tool_id"], e.metadata["status"]) for e in found] == [("Read", "ok")]
    assert "oolong" in str(found[0].metadata["result"])
    (report,) = check_gates(runtime.gate_context(), ["G2"], by="test").gates
    assert report.passed, report
    assert runtime.ledger.verify().verified


PAGE = Path(__file__).parents[3] / "docs/interop.md"
BLOCKS = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS)
def test_the_page_names_what_there_is(code: str) -> None:
    parsed = compile(code, "interop.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
    imports = [node for node in parsed.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert imports
    exec(compile(ast.Module(imports, []), "interop.md", "exec"), {})
