"""The tools, and the parts that need no server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp.types import TextContent

from remit.agents import ApprovalError, ApprovalQueue
from remit.agents.tools import Tool
from remit.gateway.auth import Identity
from remit.kernel.schemas import first_problem, schema_problem
from remit.kernel.settings import ApprovalSettings
from remit.ledger import LedgerClient
from remit.operations import name_of
from remit.routing.trail import create_thought_record
from remit.runtime import Runtime
from remit.server.mcp.callers import (
    Caller,
)
from remit.server.mcp.server import ToolRunner, all_tools
from remit.server.mcp.tools import McpTool
from tests.server.mcp.running import TOOLS, variables
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
    assert done.returncode == 1
    assert "requires the extra 'mcp'" in done.stderr
    assert "pip install 'remit[mcp]'" in done.stderr


_TOOL = Tool("files__write", "Writes.", {"type": "object"}, print)


async def test_a_key_without_a_user_cannot_approve_what_it_asked_for(ledger: LedgerClient) -> None:
    people = {"tools": {_TOOL.tool_id: {"people": 1}}}
    queue = ApprovalQueue(ledger, ApprovalSettings.model_validate(people))
    key = Identity("ops", "operator", key_id="KEY-1")
    person = queue.person_behind(key.key_id, key.user_id, key.name)
    asked = queue.request(_TOOL, {}, session_id="SES-A", agent_id="ops", requested_by=person)
    with pytest.raises(ApprovalError, match="cannot approve it"):  # as POST /api/approvals does
        queue.decide(asked.request_id, granted=True, by=name_of(key), person=person)
