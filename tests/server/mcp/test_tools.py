"""The tools, and the parts that need no server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from mcp.types import TextContent

from remit.agents import ApprovalError, ApprovalQueue
from remit.agents.tools import Pins, Tool
from remit.gateway.auth import Identity
from remit.kernel.schemas import first_problem, schema_problem
from remit.kernel.settings import ApprovalSettings, McpServerSettings
from remit.ledger import LedgerClient, LedgerEntry
from remit.operations import name_of
from remit.routing.trail import create_thought_record
from remit.runtime import Runtime
from remit.server.mcp.callers import (
    Caller,
    CallerError,
    CallSlots,
    RateLimit,
    TaskOwners,
)
from remit.server.mcp.gateway.definitions import Definitions
from remit.server.mcp.gateway.rules import Rules
from remit.server.mcp.server import ToolRunner, all_tools
from remit.server.mcp.tools import McpTool
from tests.server.mcp.running import TOOLS, variables
from tests.support.commands import require_said
from tests.support.roots import new_root

WRITING = ("thought_record", "router_route")


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with Runtime.open(new_root(tmp_path_factory.mktemp("offers") / "root")) as opened:
        yield opened


@pytest.fixture(scope="module")
def tools(runtime: Runtime) -> dict[str, McpTool]:
    return {tool.tool.tool_id: tool for tool in all_tools(runtime)}


@pytest.mark.parametrize("name", TOOLS)
def test_a_model_can_use_it(tools: dict[str, McpTool], name: str) -> None:
    told = tools[name].definition().model_dump(by_alias=True, exclude_none=True)
    assert len(told["description"]) > 100
    hidden = ("query_ledger_full", "session_overview", "reconstruct_session", "this session when")
    assert not any(one in str(told) for one in hidden)
    assert told["annotations"] == {
        "title": told["title"],
        "readOnlyHint": name not in WRITING,
        "destructiveHint": False,
        "idempotentHint": name not in WRITING,
        "openWorldHint": name == "router_route",
    }
    for schema in (told["inputSchema"], told["outputSchema"]):
        assert schema["type"] == "object"
        assert schema_problem(schema) == ""
    assert told["inputSchema"]["additionalProperties"] is False
    for key, value in told["inputSchema"]["properties"].items():
        assert value["type"] in ("string", "integer"), key
        assert value["description"], key
        assert value["examples"], key
        for example in (*value["examples"], *([value["default"]] if "default" in value else ())):
            assert first_problem(value, example) == "", (key, example)
        bounds = {"minimum"} if value["type"] == "integer" else {"maxLength", "pattern", "enum"}
        assert bounds & value.keys(), key


def test_a_session_and_a_task_of_one_name_are_one_place(ledger: LedgerClient) -> None:
    owners, bob = TaskOwners(ledger), Caller(Identity("bob", "agent", key_id="KEY-3"))
    ann = Caller(Identity("ann", "agent", key_id="KEY-1", user_id="ann"))

    def claim(caller: Caller, task: str, session: str = "") -> bool:
        try:
            asyncio.run(owners.claim(caller, task, session))
        except CallerError:
            return False
        return True

    assert not any(claim(bob, reserved) for reserved in ("SES-1", "WO-1", "DEC-1", "LED-1"))
    # What is refused leaves nothing; nothing is given but the task.
    assert not claim(bob, "task", session="any-name")
    assert claim(ann, "any-name")
    assert claim(ann, "task")
    assert ledger.select("SELECT count(*) FROM session_owners") == [(0,)]
    ledger.transact(
        lambda tx: tx.execute("INSERT INTO session_owners VALUES ('bobs', 'key:KEY-3')")
    )
    assert claim(bob, "other", session="bobs")
    assert not claim(ann, "more", session="bobs")
    assert not claim(ann, "bobs")


def test_a_token_for_a_session_that_the_runtime_began(ledger: LedgerClient) -> None:
    owners = TaskOwners(ledger)
    for session in ("SES-1", "SES-2"):
        ledger.write(LedgerEntry(event_type="SESSION_START", submission_id=session,
                                 decision="started", reason="x",
                                 metadata={"session_id": session}))  # fmt: skip
    first, second = (
        Caller(Identity("scout", "agent", agents=("scout",), session_id=session))
        for session in ("SES-1", "SES-2")
    )
    asyncio.run(owners.claim(first, "mine", "SES-1"))
    with pytest.raises(CallerError, match="does not belong to this key"):
        asyncio.run(owners.claim(first, "more", "SES-2"))
    # The same agent in another session is another owner.
    with pytest.raises(CallerError):
        owners.require(second, "mine")
    with pytest.raises(CallerError):
        asyncio.run(owners.claim(second, "mine", "SES-2"))


def test_an_imported_task_is_nobodys(ledger: LedgerClient) -> None:
    """It has entries and no rows of the trail yet."""
    ledger.write(LedgerEntry(event_type="THOUGHT_RECORD", submission_id="payroll", decision="plan",
                             reason="Thought recorded"))  # fmt: skip
    owners, bob = TaskOwners(ledger), Caller(Identity("bob", "agent", key_id="KEY-B"))
    with pytest.raises(CallerError, match="belongs to another key"):
        asyncio.run(owners.claim(bob, "payroll", ""))
    with pytest.raises(CallerError):
        owners.require(bob, "payroll")


async def _call(runner: ToolRunner, caller: Caller, name: str, **arguments: Any) -> Any:
    result = await runner.call(caller, name, arguments)
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text if result.is_error else result.structured_content


async def test_an_agent_reads_what_it_wrote(runtime: Runtime, tools: dict[str, McpTool]) -> None:
    runner = ToolRunner(tools.values(), runtime.loaded.settings)
    ann = Caller(Identity("ann", "agent", key_id="KEY-A", user_id="ann"))
    other = Caller(Identity("ann", "agent", key_id="KEY-B", user_id="ann"))
    operator = Caller(Identity("op", "operator", key_id="KEY-O"))
    for who, content in ((ann, "1"), (operator, "the operator's"), (other, "2")):
        await _call(runner, who, "thought_record", type="plan", task_id="ours", content=content)
    # As routing does where a session has that name.
    create_thought_record(runtime.ledger, {"type": "decision", "task_id": "ours", "agent_id": "ann",
                                           "content": "a routed prompt"})  # fmt: skip

    async def contents(who: Caller, **page: int) -> tuple[list[str], int | None]:
        told = await _call(runner, who, "thought_record_list", task_id="ours", **page)
        assert told["count"] == len(told["thoughts"])
        return [one["content"] for one in told["thoughts"]], told["next_offset"]

    assert await contents(ann) == (["1", "2"], None)
    assert await contents(other, limit=2) == (["1"], 2)
    assert await contents(other, limit=2, offset=2) == (["2"], None)
    assert (await contents(operator))[0] == ["1", "the operator's", "2", "a routed prompt"]
    assert "lone surrogate" in await _call(
        runner, ann, "thought_record", type="plan", task_id="not yet", content="\ud800"
    )
    owned = "SELECT owner FROM task_owners WHERE task_id = ?"
    assert runtime.ledger.select(owned, ("not yet",)) == []


async def test_no_record_is_skipped_or_cut(runtime: Runtime, tools: dict[str, McpTool]) -> None:
    runner = ToolRunner(tools.values(), runtime.loaded.settings)
    operator = Caller(Identity("op", "operator", key_id="KEY-O"))
    task, agent = "\U0001f600" * 400, "\U0001f601" * 128
    made = [
        create_thought_record(
            runtime.ledger,
            {"type": "plan", "task_id": task, "agent_id": agent,
             "content": f"{number} " + "\U0001f600" * (number % 3) * 400},
        )
        for number in range(90)
    ]  # fmt: skip
    found: list[dict[str, Any]] = []
    offset: int | None = 0
    pages = 0
    while offset is not None:
        told = await _call(runner, operator, "thought_record_list", task_id=task, limit=100,
                           offset=offset)  # fmt: skip
        found += told["thoughts"]
        assert told["count"] == len(told["thoughts"]) > 0
        offset, pages = told["next_offset"], pages + 1
    assert pages > 1
    assert [one["id"] for one in found] == [one.id for one in made]
    assert {(one["task_id"], one["agent_id"]) for one in found} == {(task, agent)}
    assert [one["content"].split()[0] for one in found] == [str(number) for number in range(90)]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("thought_record", {"type": "plan", "task_id": "t\n", "content": "x"}),
        ("thought_record", {"type": "plan", "task_id": "t", "content": "x", "agent_id": "a\n"}),
        ("thought_record_list", {"offset": 10**30}),
        ("router_route", {"prompt": "x", "session_id": "SES-1\n"}),
        ("trace_prompt_journey", {"entry_id": "LED-00000000\n"}),
    ],
)  # fmt: skip
async def test_arguments_that_look_right(
    runtime: Runtime, tools: dict[str, McpTool], name: str, arguments: dict[str, Any]
) -> None:
    runner = ToolRunner(tools.values(), runtime.loaded.settings)
    told = await _call(runner, Caller(Identity("op", "operator")), name, **arguments)
    assert f"Wrong arguments for {name}" in told


def test_thoughts_a_minute() -> None:
    rate = RateLimit(3)
    for owner in ("a", "b"):
        for _ in range(3):
            rate.take(owner)
        with pytest.raises(CallerError, match="more than 3 thoughts in a minute"):
            rate.take(owner)


async def test_slots_of_calls() -> None:
    slots, running = CallSlots(at_once=3, per_caller=2, waiting=1), []
    release = asyncio.Event()

    async def call(owner: str) -> None:
        async with slots.of(owner):
            running.append(owner)
            await release.wait()

    calls = [asyncio.ensure_future(call("a")) for _ in range(4)]
    await asyncio.sleep(0)
    calls.append(asyncio.ensure_future(call("b")))
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    assert running == ["a", "a", "b"]
    assert isinstance(calls[3].exception(), CallerError)
    release.set()
    await asyncio.wait(calls)
    assert sorted(running) == ["a", "a", "a", "b"]
    async with slots.of("a"):
        pass


def test_two_keys_at_once_for_one_task(ledger: LedgerClient) -> None:
    owners = TaskOwners(ledger)
    callers = [Caller(Identity(f"k{n}", "agent", key_id=f"KEY-R{n}")) for n in range(8)]

    async def all_at_once() -> int:
        claims = (owners.claim(one, "contested", "") for one in callers)
        return sum(
            result is None for result in await asyncio.gather(*claims, return_exceptions=True)
        )

    assert asyncio.run(all_at_once()) == 1
    assert ledger.select("SELECT count(*) FROM task_owners") == [(1,)]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
_NAMES = st.sampled_from([
    "type", "task_id", "content", "agent_id", "session_id", "limit", "offset", "prompt", "task",
    "decision", "event_type", "max_entries", "work_order_id", "entry_id", "turn", "max_sessions",
])  # fmt: skip
_LIKELY = st.sampled_from([
    "plan", "t", "SES-1", "WO-1", "LED-00000000", "LED-ffffffffffffffffff", "EXCHANGE", "auto",
    "a\x00b", "\ud800", 1, 1.0, 10**30, -1, 1e300,
])  # fmt: skip


@given(
    name=st.sampled_from([name for name in TOOLS if name != "router_route"]),
    arguments=st.dictionaries(_NAMES, _JSON | _LIKELY, max_size=5),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_arguments_break_a_tool(
    runtime: Runtime, tools: dict[str, McpTool], name: str, arguments: dict[str, Any]
) -> None:
    runner = ToolRunner(tools.values(), runtime.loaded.settings)
    caller = Caller(Identity("op", "operator", key_id="KEY-F"))
    (content,) = asyncio.run(runner.call(caller, name, arguments)).content
    assert isinstance(content, TextContent)
    assert "Remit itself failed" not in content.text
    assert "raised" not in content.text


def test_without_the_extra(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    code = (
        "import sys; sys.modules['mcp'] = None\n"
        "from remit.cli import main\n"
        f"main(['mcp', '--root', {str(root)!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables(), input="", capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    require_said(done, "requires the extra 'mcp'", "pip install 'remit[mcp]'")


_TOOL = Tool("files__write", "Writes.", {"type": "object"}, print)


_EMPTY: dict[str, Any] = {"type": "object"}


async def test_a_key_without_a_user_cannot_approve_what_it_asked_for(ledger: LedgerClient) -> None:
    people = {"tools": {_TOOL.tool_id: {"people": 1}}}
    queue = ApprovalQueue(ledger, ApprovalSettings.model_validate(people))
    key = Identity("ops", "operator", key_id="KEY-1")
    person = queue.person_behind(key.key_id, key.user_id, key.name)
    asked = queue.request(_TOOL, {}, session_id="SES-A", agent_id="ops", requested_by=person)
    with pytest.raises(ApprovalError, match="cannot approve it"):  # as POST /api/approvals does
        queue.decide(asked.request_id, granted=True, by=name_of(key), person=person)


async def test_a_tool_listed_twice_is_shown_as_it_was_pinned(ledger: LedgerClient) -> None:
    async def ask(_: str, __: Mapping[str, Any]) -> dict[str, Any]:
        raise AssertionError


async def test_a_servers_output_schema_runs_no_patterns_here(ledger: LedgerClient) -> None:
    endless = {"properties": {"a": {"type": "string", "pattern": "^(?=(a+)+$)"}}}
    tool = {"name": "read", "inputSchema": _EMPTY, "outputSchema": endless}

    async def ask(_: str, __: Mapping[str, Any]) -> dict[str, Any]:
        return {"tools": [tool]}

    definitions = Definitions("files", lambda: "here", Pins(ledger))
    found = await definitions.find("read", ask, None)
    assert found is not None
    assert found.output_schema == {"properties": {"a": {"type": "string"}}}


def test_a_pattern_that_allows_is_not_evaded_by_what_is_no_text() -> None:
    below = {"properties": {"path": {"pattern": "^/srv/[a-z]+$"}}, "required": ["path"]}
    both = {"allOf": [below], "properties": {"not": {"not": {"pattern": "^x"}}}}
    rule = {"effect": "allow", "tools": ["write"], "arguments": both}
    settings = McpServerSettings.model_validate({"command": "x", "rules": [rule]})
    rules, key = Rules("files", settings), Identity("k", "agent")
    for path in ("/etc", ["/etc"], {"x": "/etc"}, 5, None, True, "/srv/a\n", "/srv/../etc"):
        assert rules.decide(key, "write", {"path": path}).effect == "deny", path
    assert rules.decide(key, "write", {"path": "/srv/a"}).effect == "allow"
    assert rules.decide(key, "write", {"path": "/srv/a", "not": ["x"]}).effect == "deny"
