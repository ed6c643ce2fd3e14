"""What is asked of every server, whatever it is reached over."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import orjson
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult, TextContent

from remit.routing.trail import hash_thought
from tests.server.mcp.doubled import SECRET
from tests.server.mcp.running import TOOLS


def text(result: CallToolResult) -> str:
    """The one text of a result."""
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def ok(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """What a call that works gives: the same as data and as text."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, text(result)
    assert result.structured_content is not None
    assert orjson.loads(text(result)) == result.structured_content
    return result.structured_content


async def wrong(client: Client, name: str, **arguments: Any) -> str:
    """What is told of a call that does not work, to the model that made it."""
    result = await client.call_tool(name, arguments)
    assert result.is_error
    assert result.structured_content is None
    told = text(result)
    assert "Traceback" not in told
    assert SECRET not in told
    return told


async def every_tool(client: Client, agent_id: str) -> None:
    """Lists and calls all of them, as an operator may."""
    assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
    task = f"task {uuid.uuid4()}"
    first = await ok(client, "thought_record", type="plan", task_id=task, content="Look first.")
    second = await ok(
        client, "thought_record", type="decision", task_id=task, content="Go left.",
        agent_id="walker", session_id="SES-WALK1",
    )  # fmt: skip
    assert first["prev_hash"] == "0" * 64
    assert second["prev_hash"] == first["hash"]
    assert (first["agent_id"], second["agent_id"]) == (agent_id, "walker")
    listed = await ok(client, "thought_record_list", task_id=task)
    assert listed["count"] == 2
    assert listed["next_offset"] is None
    assert [one["content"] for one in listed["thoughts"]] == ["Look first.", "Go left."]
    for one, made in zip(listed["thoughts"], (first, second), strict=True):
        assert {name: one[name] for name in made} == made
        told = (one[name] for name in ("id", "type", "task_id", "content", "timestamp",
                                       "prev_hash"))  # fmt: skip
        assert hash_thought(*told) == one["hash"]
    page = await ok(client, "thought_record_list", task_id=task, limit=1.0)
    assert (page["count"], page["next_offset"]) == (1, 1)
    rest = await ok(client, "thought_record_list", task_id=task, limit=1, offset=1)
    assert rest["thoughts"] == listed["thoughts"][1:]
    verified = await ok(client, "thought_verify", task_id=task)
    assert verified == {"verified": True, "records": 2, "tasks": 1, "erased": 0, "problems": [],
                        "first_bad": None}  # fmt: skip
    assert (await ok(client, "thought_verify"))["records"] >= 2

    routed = await ok(client, "router_route", prompt="hello", max_tokens=7, agent_id="walker")
    assert routed["response"] == "answer to hello"
    assert routed["asked"]["max_tokens"] == 7
    assert routed["asked"]["agent_id"] == "walker"
    scored = await ok(client, "router_score", prompt="hello", task="code")
    assert scored["winner"] == "m-1"
    assert (await ok(client, "router_status"))["models"] == ["m-1"]

    entries = await ok(client, "query_ledger", event_type="THOUGHT_RECORD", max_entries=2)
    assert [one["id"] for one in entries["entries"]] == [second["entry_id"], first["entry_id"]]
    sessions = await ok(client, "list_sessions")
    assert sessions["sessions"] == []
    assert "session_id" in await wrong(client, "trace_prompt_journey")
    assert "SES-NONE" in await wrong(client, "trace_prompt_journey", session_id="SES-NONE")


async def mistakes(client: Client) -> None:
    """What goes wrong is told, with what to do, and nothing else."""
    for name, arguments in (
        ("thought_record", {"type": "dream", "task_id": "t", "content": "x"}),
        ("thought_record", {"type": "plan", "task_id": "", "content": "x"}),
        ("thought_record", {"type": "plan", "task_id": "t"}),
        ("thought_record", {"type": "plan", "task_id": "t", "content": "x", "hash": "0"}),
        ("thought_record_list", {"limit": 0}),
        ("thought_record_list", {"limit": 1.5}),
        ("thought_record_list", {"offset": -1}),
        ("router_route", {}),
        ("router_route", {"prompt": 7}),
        ("router_route", {"prompt": "x", "session_id": "no session"}),
        ("router_score", {"prompt": "x", "session_id": "SES-1"}),
        ("query_ledger", {"event_type": "NO_SUCH_EVENT"}),
        ("trace_prompt_journey", {"entry_id": "' OR 1=1"}),
    ):
        told = await wrong(client, name, **arguments)
        assert told.startswith(f"Wrong arguments for {name}: "), told
        assert "call the tool again" in told
    assert await wrong(client, "router_route", prompt="fail") == (
        "All models failed. Look at router_status."
    )
    assert "Remit failed internally" in await wrong(client, "router_route", prompt="crash")
    assert "no decision 'DEC-9'" in await wrong(client, "router_explain", decision="DEC-9")
    with pytest.raises(MCPError) as unknown:
        await client.call_tool("rm_rf", {})
    assert unknown.value.code == -32602
    assert "rm_rf" in unknown.value.message
    big = await ok(client, "router_route", prompt="big")
    assert "more characters]" in big["response"]
    assert len(big["response"]) < 70_000
    assert big["exchange_entry_id"]


async def side_by_side(client: Client) -> None:
    """Forty thoughts at once make one chain, beside a call that blocks."""
    task = f"task {uuid.uuid4()}"
    blocked = asyncio.ensure_future(ok(client, "router_score", prompt="block"))
    made = await asyncio.gather(
        *(
            ok(client, "thought_record", type="analysis", task_id=task, content=f"{number}")
            for number in range(40)
        )
    )
    assert len({one["prev_hash"] for one in made}) == 40
    verified = await ok(client, "thought_verify", task_id=task)
    assert (verified["verified"], verified["records"]) == (True, 40)
    await blocked


async def cancelling(client: Client) -> None:
    """A call that is given up ends on the server too."""
    before = await ok(client, "router_status")
    slow = asyncio.ensure_future(client.call_tool("router_route", {"prompt": "slow"}))
    while (await ok(client, "router_status"))["begun"] == before["begun"]:
        await asyncio.sleep(0.05)
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
    async with asyncio.timeout(120):
        while (await ok(client, "router_status"))["cancelled"] == before["cancelled"]:
            await asyncio.sleep(0.05)
