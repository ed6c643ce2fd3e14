"""``remit mcp gateway`` in front of servers that behave, and of one that does everything wrong."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp.types import CreateMessageResult, ElicitResult, TextContent

from remit.agents import ApprovalQueue
from remit.kernel.budget_values import BudgetLimits
from remit.ledger import LedgerClient, LedgerEntry, is_authentic
from tests.server.mcp.running import TOP, Served, serving, variables
from tests.support.processes import Program, run_program
from tests.support.roots import new_root
from tests.support.secrets import KEYS

HOSTILE = str(TOP / "tests/agents/tools/stdio_server.py")
RULES = """
[mcp.reference]
url = "{url}"

[[mcp.reference.rules]]
effect = "deny"
tools = ["test_audio_content"]

[[mcp.reference.rules]]
effect = "allow"
keys = ["narrow"]
tools = ["json_schema_2020_12_tool"]
arguments = {{ type = "object", properties = {{ name = {{ pattern = "^[a-z]+$" }} }}, required = ["name"] }}

[[mcp.reference.rules]]
effect = "allow"
keys = ["narrow"]
tools = ["test_simple_text"]
price_usd = 0.25

[[mcp.reference.rules]]
effect = "allow"
keys = ["narrow"]
tools = ["test_image_content"]
calls_per_minute = 2

[[mcp.reference.rules]]
effect = "ask"
tools = ["test_multiple_content_types"]

[[mcp.reference.rules]]
effect = "ask"
keys = ["careful"]
tools = ["json_schema_2020_12_tool"]

[mcp.hostile]
command = "{python}"
args = ["{hostile}"]
env = {{ TOKEN = "correct-horse-battery" }}
timeout_s = 3.0
stop_timeout_s = 0.5
max_message_bytes = 1000000

[mcp.changing]
command = "{python}"
args = ["{changing}", "{tools}"]
"""  # noqa: E501


@pytest.fixture(scope="module")
def reference() -> Iterator[str]:
    """The address of the reference server."""
    line = ("-m", "tests.server.mcp.reference", "--http")
    with Program(*line, environment=os.environ, cwd=TOP) as process:
        yield process.stdout.readline().strip()
        process.kill()


@pytest.fixture(scope="module")
def root(reference: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("gateway")
    tools = place / "tools.json"
    tools.write_text(json.dumps({"swap": "Swaps.", "plain": "As it was."}))
    changing = TOP / "tests/agents/tools/changing_server.py"
    toml = RULES.format(
        url=reference, python=sys.executable, hostile=HOSTILE, changing=changing, tools=tools
    )
    return new_root(place / "root", toml)


@pytest.fixture(scope="module")
def served(root: Path) -> Iterator[Served]:
    with serving(root, gateway=True) as running:
        yield running


@asynccontextmanager
async def at(served: Served, name: str, token: str | None = None, **more: Any) -> Any:
    """A client of the SDK's at one of the servers."""
    own = replace(served, url=f"{served.url.rsplit('/', 1)[0]}/{name}")
    client = own.client(token, mode="legacy")
    for key, value in more.items():
        setattr(client, key, value)
    async with client:
        yield client


def entries(root: Path, event_type: str) -> list[LedgerEntry]:
    with LedgerClient(str(root / "ledger.db")) as ledger:
        return list(ledger.query(event_type=event_type, order="desc", limit=20))


def named(served: Served, name: str, **more: Any) -> str:
    from remit.gateway.auth import KeyStore
    from remit.gateway.budget import TokenBudgeter

    with KeyStore(served.ledger) as keys:
        limits = BudgetLimits(**more)
        in_transaction = TokenBudgeter(served.ledger).for_new_key(limits, by="ann")
        return keys.create(name, role="agent", in_transaction=in_transaction).key


def remit(root: Path, *words: str) -> str:
    """The command; it has to succeed."""
    done = run_program("-m", "remit", *words, "--root", str(root), environment=variables())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_a_call_is_on_record_before_and_after_with_a_receipt(served: Served) -> None:
    async with at(served, "reference") as client:
        result = await client.call_tool("test_simple_text", {"a": 1})
    assert result.content == [TextContent(text="This is a simple text response for testing.")]
    receipt = result.meta["remit/receipt"]
    intent, call = served.ledger.read(receipt["intent"]), served.ledger.read(receipt["call"])
    assert (intent.event_type, call.event_type) == ("TOOL_INTENT", "TOOL_CALL")
    assert int(intent.id[4:], 16) < int(call.id[4:], 16)
    for entry in (intent, call):
        assert entry.metadata["tool_id"] == "reference__test_simple_text"
        assert entry.metadata["arguments"] == {"a": 1}
        assert entry.metadata["provenance"]["session_id"] == receipt["session"]
        assert entry.metadata["key_id"].startswith("KEY-")
    assert call.metadata["status"] == "ok"
    assert call.metadata["result"]["content"][0]["text"].startswith("This is a simple")
    assert len(intent.metadata["tool_digest"]) == 64
    proof = served.root.parent / "receipt.tlog-proof"
    remit(served.root, "ledger", "prove", call.id, "--out", str(proof))
    assert proof.read_text().startswith("c2sp.org/tlog-proof@v1")
    handed = json.loads(remit(served.root, "receipt", call.id, "--format", "agentboundary"))
    assert handed["tool"]["name"] == "reference__test_simple_text"
    assert handed["target"]["system"] == "reference"
    assert handed["actor"] == {"type": "agent", "id": call.metadata["key_id"]}
    assert handed["policy"]["version"] == intent.metadata["tool_digest"][:12]


async def test_everything_else_passes_both_ways(served: Served) -> None:
    async def sampled(*_: Any) -> CreateMessageResult:
        return CreateMessageResult(
            role="assistant", content=TextContent(text="sampled"), model="own"
        )

    async def elicited(*_: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"response": "elicited"})

    logged: list[Any] = []
    progress: list[float] = []

    async def log(params: Any) -> None:
        logged.append(params.data)

    async def progressed(done: float, *_: Any) -> None:
        progress.append(done)

    more = {"sampling_callback": sampled, "elicitation_callback": elicited, "logging_callback": log}
    async with at(served, "reference", **more) as client:
        assert client.server_info.name == "reference"
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "test_simple_text" in names
        assert "test_audio_content" not in names  # a rule forbids it
        said = await client.call_tool("test_sampling", {"prompt": "x"})
        assert "sampled" in said.content[0].text
        said = await client.call_tool("test_elicitation", {"message": "x"})
        assert "elicited" in said.content[0].text
        await client.call_tool("test_tool_with_logging", {})
        await client.call_tool("test_tool_with_progress", {}, progress_callback=progressed)
        read = await client.read_resource("test://static-text")
        assert "test://static-text" in read.contents[0].text
        prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        assert "arg1='a'" in prompt.messages[0].content.text
        failed = await client.call_tool("test_error_handling", {})
        assert failed.is_error
    assert len(logged) == 3
    assert progress[:2] == [0, 50]
    methods = {entry.metadata["method"] for entry in entries(served.root, "MCP_MESSAGE")}
    assert {"sampling/createMessage", "elicitation/create", "notifications/message",
            "resources/read", "prompts/get"} <= methods  # fmt: skip


async def test_rules_of_a_key(served: Served) -> None:
    token = named(served, "narrow", nano=600_000_000)
    async with at(served, "reference", token) as client:

        async def call(name: str, /, **arguments: Any) -> str:
            result = await client.call_tool(name, arguments)
            return result.content[0].text if result.is_error else ""

        assert not await call("json_schema_2020_12_tool", name="abc")
        assert "are not allowed" in await call("json_schema_2020_12_tool", name="ABC")
        assert "are not allowed" in await call("json_schema_2020_12_tool")
        assert not await call("test_simple_text")
        assert not await call("test_simple_text")
        assert "has 0.100000 USD left" in await call("test_simple_text")
        await client.call_tool("test_image_content", {})
        await client.call_tool("test_image_content", {})
        assert "more than 2" in await call("test_image_content")
        with pytest.raises(MCPError, match="no tool 'test_audio_content'"):
            await call("test_audio_content")
        with pytest.raises(MCPError, match="no tool"):
            await call(KEYS[0])
    refused = [
        entry.metadata
        for entry in entries(served.root, "TOOL_CALL")
        if entry.metadata["status"] == "refused"
    ]
    assert {"reference__json_schema_2020_12_tool", "reference__test_simple_text",
            "reference__test_image_content", "reference__test_audio_content"} <= {
        one["tool_id"] for one in refused
    }  # fmt: skip
    assert not any(KEYS[0][-20:] in str(one) for one in refused)
    debits = [entry.metadata for entry in entries(served.root, "BUDGET_DEBIT")]
    assert [debit["cost_usd"] for debit in debits] == [0.25, 0.25]
    remit(served.root, "budget", "check")


async def test_a_call_that_a_person_approves_runs_once(served: Served) -> None:
    token = named(served, "asking")

    async def call(**arguments: Any) -> Any:
        async with at(served, "reference", token) as client:  # each time another MCP session
            return await client.call_tool("test_multiple_content_types", arguments)

    waits = await call(a=1)
    assert waits.is_error
    request = waits.meta["remit/approval"]["request"]
    assert f"remit approve {request}" in waits.content[0].text
    assert (await call(a=1)).meta["remit/approval"]["request"] == request  # not asked twice
    ApprovalQueue(served.ledger).decide(request, granted=True, by="ann")
    other = await call(a=2)
    assert other.meta["remit/approval"]["request"] != request
    ran = await call(a=1)
    assert not ran.is_error
    again = await call(a=1)
    assert again.meta["remit/approval"]["request"] not in (request, other)
    queue = ApprovalQueue(served.ledger)
    assert queue.get(request).used_by == ran.meta["remit/receipt"]["intent"]
    edited = again.meta["remit/approval"]["request"]
    queue.decide(edited, granted=True, by="ann", arguments={"a": 7})
    queue.decide(other.meta["remit/approval"]["request"], granted=False, by="ann", reason="no")
    changed = await call(a=1)
    assert "changed the arguments to {'a': 7}" in changed.content[-1].text
    intent = served.ledger.read(changed.meta["remit/receipt"]["intent"])
    assert intent.metadata["arguments"] == {"a": 7}


async def test_a_call_that_cannot_run_is_no_question_for_a_person(served: Served) -> None:
    before = len(entries(served.root, "APPROVAL_REQUESTED"))
    async with at(served, "reference", named(served, "careful")) as client:
        refused = await client.call_tool("json_schema_2020_12_tool", {"name": 5})
    assert refused.is_error
    assert "5 is not of type 'string'" in refused.content[0].text
    assert "remit/approval" not in refused.meta
    assert len(entries(served.root, "APPROVAL_REQUESTED")) == before


def test_without_a_key(served: Served) -> None:
    base, _, _ = served.url.partition("/mcp")
    url = f"{base}/mcp/reference"
    answer = httpx2.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert answer.status_code == 401
    metadata = f"{base}/.well-known/oauth-protected-resource/mcp/reference"
    assert f'resource_metadata="{metadata}"' in answer.headers["www-authenticate"]
    assert httpx2.get(metadata).json()["resource"] == url
    assert httpx2.get(metadata, headers={"host": "evil.example"}).status_code == 421
    assert httpx2.get(f"{base}/.well-known/oauth-protected-resource/mcp/none").status_code == 404


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("hang", "did not answer tools/call within 3 s"),
        ("die", "does not answer"),
        ("huge", "more than 1,000,000 bytes"),
        ("protocol_error", "no such thing"),
    ],
)
async def test_a_hostile_server_harms_nobody_else(served: Served, tool: str, said: str) -> None:
    async with at(served, "reference") as good, at(served, "hostile") as bad:
        with pytest.raises(MCPError, match=said):
            await bad.call_tool(tool, {})
        assert not (await good.call_tool("test_simple_text", {})).is_error
    last = next(
        entry.metadata
        for entry in entries(served.root, "TOOL_CALL")
        if entry.metadata["tool_id"] == f"hostile__{tool}"
    )
    assert last["status"] == {"hang": "timeout", "protocol_error": "error"}.get(tool, "unknown")
    assert said.split()[-1] in last["tool_error"]


async def test_lies_and_secrets_of_a_hostile_server(served: Served) -> None:
    async with at(served, "hostile") as client:
        lie = await client.call_tool("grow", {})
        assert lie.is_error
        assert "does not match its output schema" in lie.content[0].text
        told = await client.call_tool("fails", {})
        assert told.is_error
        assert "correct-horse" not in told.content[0].text
        bare = await client.call_tool("echo", {"value": "é", "bare": True})
        assert not bare.is_error
        assert bare.structured_content == {"value": "é"}
        assert [block.text for block in bare.content] == ['{"value": "é"}']
        echoed = await client.call_tool("meta", {})
        assert "remit/idempotency_key" in json.loads(echoed.content[0].text)
    assert all("correct-horse" not in json.dumps(entry.metadata["result"])
               for entry in entries(served.root, "TOOL_CALL"))  # fmt: skip


async def test_a_tool_that_changes_is_refused_before_it_is_called(served: Served) -> None:
    async with at(served, "changing") as client:
        assert not (await client.call_tool("plain", {})).is_error
        assert not (await client.call_tool("swap", {})).is_error
        before = served.ledger.count()
        refused = await client.call_tool("plain", {})
        assert refused.is_error
        assert "has changed since it was pinned" in refused.content[0].text
        shown = {tool.name: tool.description for tool in (await client.list_tools()).tools}
        assert shown == {"swap": "Swaps.", "plain": "As it was."}
        later = [entry.event_type for entry in served.ledger.query(after=before - 1)]
        assert "TOOL_INTENT" not in later  # nothing was asked of the server
    remit(served.root, "mcp", "accept", "changing", "plain", "--by", "ann", "--yes")
    async with at(served, "changing") as client:
        assert not (await client.call_tool("plain", {})).is_error


async def test_a_server_that_floods(served: Served) -> None:
    async with at(served, "reference", named(served, "flooded")) as client:
        result = await client.call_tool("flood", {})
        assert result.content[0].text == "flooded"
        session = result.meta["remit/receipt"]["session"]
    noted = list(served.ledger.query(event_type="MCP_MESSAGE", session_id=session))
    begun = list(served.ledger.query(event_type="SESSION_START", session_id=session))
    assert 0 < len(noted) <= 200
    assert len(begun) == 1
    assert all(map(is_authentic, [*noted, *begun]))


async def test_over_stdio(root: Path) -> None:
    """Started by a client; it asks for the present protocol first, which this server knows not."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "remit", "mcp", "gateway", "hostile", "--root", str(root)],
        env=variables(),
        cwd=str(TOP),
    )
    async with Client(server, mode="auto", cache=None) as client:
        assert client.protocol_version == "2025-06-18"
        result = await client.call_tool("echo", {"value": 3})
        assert result.structured_content == {"value": 3}
        assert result.meta["remit/receipt"]["intent"].startswith("LED-")


async def test_cancelled_and_killed_calls_are_on_record(root: Path) -> None:
    """What the client gave up, and what nobody can know: the gateway was killed in between."""
    with serving(root, gateway=True) as running:
        async with at(running, "reference") as client:
            call = asyncio.ensure_future(client.call_tool("wait", {}))
            while not (begun := entries(root, "TOOL_INTENT")) or not begun[0].metadata[
                "tool_id"
            ].endswith("wait"):
                await asyncio.sleep(0.05)
            call.cancel()
            await asyncio.wait({call})
            while "reference__wait" not in [
                one.metadata["tool_id"] for one in entries(root, "TOOL_CALL")[:1]
            ]:
                await asyncio.sleep(0.05)
            assert "cancelled" in entries(root, "TOOL_CALL")[0].metadata["tool_error"]
            call = asyncio.ensure_future(client.call_tool("wait", {}))
            while (latest := entries(root, "TOOL_INTENT")[0]).id == begun[0].id:
                await asyncio.sleep(0.05)
            os.kill(running.process.pid, signal.SIGKILL)
            running.process.wait()
            call.cancel()
            await asyncio.wait({call})
    keys = [entry.metadata["idempotency_key"] for entry in entries(root, "TOOL_CALL")]
    assert latest.metadata["idempotency_key"] not in keys
    with LedgerClient(str(root / "ledger.db")) as ledger:
        assert ledger.verify_chain() == (True, [])
