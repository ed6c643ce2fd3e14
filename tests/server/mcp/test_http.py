"""``remit mcp --http``: keys, roles, sessions, strangers, and the page on MCP."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from remit.gateway.auth import ROLES, AgentTokens, Identity, agent_secret
from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.runtime import Runtime
from remit.server.mcp import serve_http
from remit.server.mcp.callers import Caller
from remit.server.mcp.server import all_tools
from tests.server.mcp import calls
from tests.server.mcp.calls import ok, wrong
from tests.server.mcp.running import TOOLS, TOP, Served, serving
from tests.support.roots import new_root
from tests.support.waiting import until

MODES = ["legacy", "auto"]
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
SESSION = "mcp-session-id"
FOR_AGENTS = ["thought_record", "thought_record_list", "thought_verify", "router_route",
              "router_score"]  # fmt: skip
FOR_AUDITORS = [name for name in TOOLS if name not in ("thought_record", "router_route")]


def ask(
    served: Served,
    body: Any = PING,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    method: str = "POST",
    path: str = "/mcp",
) -> tuple[int, bytes, dict[str, str]]:
    """One request, byte by byte as it is said here."""
    parts = urlsplit(served.url)
    token = served.token if token is None else token
    sent = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        **({"authorization": f"Bearer {token}"} if token else {}),
        **(headers or {}),
    }
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    try:
        connection.request(method, path, data, sent)
        reply = connection.getresponse()
        raw = reply.read()
        return reply.status, raw, {name.lower(): value for name, value in reply.getheaders()}
    finally:
        connection.close()


def begun(served: Served, token: str | None = None) -> str:
    """The id of a new MCP session."""
    status, _, headers = ask(served, INITIALIZE, token)
    assert status == 200
    return headers[SESSION]


@pytest.mark.parametrize("mode", MODES)
async def test_every_tool_mistakes_and_calls_side_by_side(served: Served, mode: str) -> None:
    async with served.client(served.key(agents=["teller", "walker"]).key, mode=mode) as client:
        await calls.every_tool(client, "teller")
    async with served.client(mode=mode) as client:
        await calls.mistakes(client)
        await calls.side_by_side(client)
        await calls.cancelling(client)


async def test_an_agent_sees_its_own_tasks_alone(served: Served) -> None:
    mine, other, operator = served.key("agent"), served.key("agent"), served.key("operator")
    task, elsewhere = f"task {uuid.uuid4()}", f"task {uuid.uuid4()}"
    async with served.client(operator.key) as client:
        await ok(client, "thought_record", type="plan", task_id=elsewhere, content="the operator's")
    async with served.client(mine.key) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == FOR_AGENTS
        made = await ok(client, "thought_record", type="plan", task_id=task, content="a secret")
        assert made["agent_id"] == mine.name
        await ok(client, "thought_record", type="reflection", task_id=task, content="more")
        assert (await ok(client, "thought_record_list", task_id=task))["count"] == 2
        assert (await ok(client, "thought_verify", task_id=task))["records"] == 2
        for name in ("thought_record_list", "thought_verify"):
            assert "Name the task with task_id" in await wrong(client, name)
        for name in ("query_ledger", "list_sessions", "router_status"):
            told = await wrong(client, name)
            assert "role agent may not use" in told
            assert "read" in told
        told = await wrong(
            client, "thought_record", type="plan", task_id=elsewhere, content="mine now"
        )
        assert "belongs to another key" in told
        told = await wrong(client, "thought_record", type="plan", task_id="SES-X", content="mine")
        assert "does not begin with" in told
    async with served.client(other.key) as client:
        for name in ("thought_record_list", "thought_verify"):
            told = await wrong(client, name, task_id=task)
            assert "may not read tasks of other keys" in told
            # Whether there is such a task is not told either.
            assert told == await wrong(client, name, task_id="no such task")
        assert "belongs to another key" in await wrong(
            client, "thought_record", type="plan", task_id=task, content="in between"
        )
        told = await wrong(client, "thought_record", type="plan", task_id="own", content="x",
                           session_id=f"SES-{task[-12:]}")  # fmt: skip
        assert "does not belong to this key" in told
    async with served.client(operator.key) as client:
        assert (await ok(client, "thought_verify", task_id=task))["records"] == 2
        assert (await ok(client, "thought_verify", task_id=elsewhere))["records"] == 1


async def test_an_agent_speaks_in_no_other_agents_name(served: Served) -> None:
    key, plain = served.key("agent", agents=["scout"]), served.key("agent")
    async with served.client(key.key) as client:
        task = f"task {uuid.uuid4()}"
        made = await ok(client, "thought_record", type="plan", task_id=task, content="x")
        assert made["agent_id"] == "scout"
        told = await wrong(
            client, "thought_record", type="plan", task_id=task, content="x", agent_id="general"
        )
        assert "may not act as the agent 'general'" in told
        assert "general" in await wrong(client, "router_route", prompt="x", agent_id="general")
        assert (await ok(client, "thought_verify", task_id=task))["records"] == 1
    async with served.client(plain.key) as client:  # The router is told who asks.
        asked = (await ok(client, "router_route", prompt="x"))["asked"]
        assert [asked[name] for name in ("session_id", "agent_id", "identity")] == [
            "", plain.name, plain.name,
        ]  # fmt: skip


async def test_an_auditor_reads_and_verifies(served: Served) -> None:
    async with served.client(served.key("auditor").key) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == FOR_AUDITORS
        assert (await ok(client, "thought_verify"))["verified"]
        assert (await ok(client, "query_ledger"))["status"] == "ok"
        told = await wrong(client, "thought_record", type="plan", task_id="t", content="x")
        assert "role auditor may not use" in told
        assert "role auditor may not use" in await wrong(client, "router_route", prompt="x")


@pytest.mark.parametrize("body", [PING, INITIALIZE, LIST])
def test_without_a_key(served: Served, body: Any) -> None:
    host = served.url.removesuffix("/mcp")
    metadata = f"{host}/.well-known/oauth-protected-resource/mcp"
    challenge = f'Bearer realm="remit", resource_metadata="{metadata}"'
    assert httpx2.get(metadata).json()["resource"] == served.url
    for token, end in (
        ("", ""),
        ("sk-remit-" + "A" * 43, ', error="invalid_token"'),
        ("rat1.x.y", ', error="invalid_token"'),
    ):
        status, raw, headers = ask(served, body, token)
        assert status == 401
        assert headers["www-authenticate"] == challenge + end
        assert headers["cache-control"] == "no-store"
        told = json.loads(raw)
        assert told["error"] == "invalid_token"
        assert not token or token not in raw.decode()
    status, _, _ = ask(served, body, "", {"authorization": "Basic eDp5"})
    assert status == 401


def test_a_session_is_its_keys_alone_and_ends_with_it(served: Served) -> None:
    mine, other = served.key("operator"), served.key("operator").key
    session = {SESSION: begun(served, mine.key)}
    for token, status in (("", 401), (other, 404)):
        assert ask(served, token=token, headers=session)[0] == status
        for method in ("GET", "DELETE"):
            assert ask(served, None, token, session, method)[0] == status
    assert ask(served, token=other, headers={SESSION: "0" * 32})[0] == 404
    assert ask(served, token=mine.key, headers=session)[0] == 200
    assert ask(served, None, mine.key, session, "DELETE")[0] == 200
    assert ask(served, token=mine.key, headers=session)[0] == 404
    session = {SESSION: begun(served, mine.key)}
    served.revoke(mine)
    until(lambda: ask(served, token=mine.key, headers=session)[0] == 401)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example:4001"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:3000"}, 200),
        ({"content-type": "text/plain"}, 400),
        ({"accept": "text/html"}, 406),
    ],
)
def test_whom_it_was_meant_for(served: Served, headers: dict[str, str], status: int) -> None:
    assert ask(served, INITIALIZE, headers=headers)[0] == status


def test_bodies_are_bounded(tmp_path: Path) -> None:
    toml = "\n[mcp_server]\nmax_message_bytes = 65536\nallowed_hosts = ['remit.example']\n"
    huge = json.dumps({**PING, "params": {"_meta": {"x": "y" * 65536}}}).encode()
    with serving(new_root(tmp_path / "root", toml)) as strict:
        assert ask(strict, INITIALIZE, headers={"host": "remit.example"})[0] == 200
        status, raw, headers = ask(strict, huge)
        assert (status, headers["connection"], b"65,536" in raw) == (413, "close", True)
        parts = urlsplit(strict.url)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        headers = {"authorization": f"Bearer {strict.token}"}
        body = iter([b"x" * 70_000])  # in one go: the server hangs up at 65,536
        with contextlib.closing(connection):
            connection.request("POST", "/mcp", body, headers, encode_chunked=True)
            assert connection.getresponse().status == 413
        assert ask(strict, huge, "")[0] == 401  # before anything of it is read


def test_a_key_has_a_share_of_sessions_which_ends_with_it(tmp_path: Path) -> None:
    toml = "\n[mcp_server]\nmax_sessions = 3\nsessions_per_caller = 2\n"
    with serving(new_root(tmp_path / "root", toml)) as served:
        hog = served.key("agent")
        sessions = [begun(served, hog.key) for _ in range(2)]
        status, raw, _ = ask(served, INITIALIZE, hog.key)
        assert (status, b"the maximum" in raw) == (503, True)
        begun(served)
        assert ask(served, INITIALIZE)[0] == 503  # there are three
        parts = urlsplit(served.url)
        stream = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        stream.request("GET", "/mcp", headers={
            "accept": "text/event-stream", "authorization": f"Bearer {hog.key}",
            SESSION: sessions[0]})  # fmt: skip
        reply = stream.getresponse()
        assert reply.status == 200
        served.revoke(hog)
        reply.read()  # ends, instead of waiting for what may come
        stream.close()
        other = served.key("operator").key
        until(lambda: ask(served, INITIALIZE, other)[0] == 200)
        assert ask(served, headers={SESSION: sessions[1]}, token=other)[0] == 404
        # What its client ends counts no more either.
        mine = begun(served, other)
        assert ask(served, INITIALIZE, other)[0] == 503
        assert ask(served, None, other, {SESSION: mine}, "DELETE")[0] == 200
        begun(served, other)


async def test_dev_mode_asks_nobody(tmp_path: Path) -> None:
    with serving(new_root(tmp_path / "root"), "--dev") as served:
        async with served.client("") as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
            made = await ok(client, "thought_record", type="plan", task_id="t", content="x")
            assert made["agent_id"] == "developer"
            asked = (await ok(client, "router_route", prompt="x"))["asked"]
            assert asked["identity"] == "developer"
        assert ask(served, INITIALIZE, "", {"host": "evil.example"})[0] == 421
        assert ask(served, INITIALIZE, "", {"origin": "http://evil.example"})[0] == 403
        assert "DEV MODE" in served.errors.read_text()


async def test_a_token_of_one_agent_and_session(served: Served) -> None:
    key = served.key("agent")
    tokens = AgentTokens(agent_secret(Root(served.root)))
    token = tokens.issue("scout", session_id="SES-SCOUT1", key_id=key.key_id, ttl_s=600)
    assert ask(served, token=key.key)[0] == 400  # no session yet; by now the key is known
    async with served.client(token) as client:
        task = f"task {uuid.uuid4()}"
        made = await ok(client, "thought_record", type="plan", task_id=task, content="x")
        assert (made["agent_id"], made["session_id"]) == ("scout", "SES-SCOUT1")
        told = await wrong(client, "thought_record", type="plan", task_id=task, content="x",
                           session_id="SES-OTHER1")  # fmt: skip
        assert "another session" in told
    # What a narrower token began, the key behind it does not go on in.
    session = begun(served, token)
    assert ask(served, token=token, headers={SESSION: session})[0] == 200
    assert ask(served, token=key.key, headers={SESSION: session})[0] == 404


def test_whom_it_was_meant_for_and_how_much_it_takes(tmp_path: Path) -> None:
    toml = """
    [mcp_server]
    max_message_bytes = 65536
    max_sessions = 6
    sessions_per_caller = 2
    allowed_hosts = ["remit.example"]
    allowed_origins = ["https://page.example"]
    """
    with serving(new_root(tmp_path / "root", toml)) as strict:
        for headers, status in (
            ({"host": "remit.example:4001", "origin": "https://page.example"}, 200),
            ({"origin": "http://localhost:3000"}, 200), ({"host": "evil.example"}, 421),
            ({"host": "127.0.0.1.evil.example"}, 421), ({"origin": "null"}, 403),
            ({"origin": "https://evil.example"}, 403),
        ):  # fmt: skip
            assert ask(strict, INITIALIZE, strict.key().key, headers)[0] == status, headers
        huge = json.dumps({**PING, "params": {"_meta": {"x": "y" * 65536}}}).encode()
        assert [ask(strict, huge, token)[0] for token in (None, "")] == [413, 401]
        hog = strict.key("agent")
        sessions = [begun(strict, hog.key) for _ in range(2)]
        assert ask(strict, INITIALIZE, hog.key)[0] == 503
        begun(strict)
        strict.revoke(hog)
        other = strict.key("operator").key
        until(lambda: ask(strict, INITIALIZE, other)[0] == 200)
        assert ask(strict, headers={SESSION: sessions[1]}, token=other)[0] == 404


def test_dev_mode_listens_on_loopback_alone(served: Served) -> None:
    with pytest.raises(RemitError, match="listens only on loopback"):
        serve_http(served.root, dev=True, flags={"mcp_server.host": "0.0.0.0"}, ready=print)


def test_where_it_cannot_listen(served: Served) -> None:
    with pytest.raises(RemitError, match="listens only on loopback") as refused:
        serve_http(served.root, dev=True, flags={"mcp_server.host": "0.0.0.0"}, ready=print)
    assert "without dev mode" in refused.value.next_step
    port = urlsplit(served.url).port
    with pytest.raises(RemitError, match="is in use"):
        serve_http(served.root, dev=False, flags={"mcp_server.port": port}, ready=print)


PAGE = (TOP / "docs/mcp.md").read_text("utf-8")


def _rows(columns: int) -> list[list[str]]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in PAGE.splitlines() if line.startswith("| `")]  # fmt: skip
    return [row for row in rows if len(row) == columns]


def test_the_table_of_tools(tmp_path: Path) -> None:
    with Runtime.open(new_root(tmp_path / "root")) as runtime:
        told = {
            tool.tool.tool_id: (
                {role for role in ROLES if tool.allows(Caller(Identity("x", role)))},
                "yes" if tool.writes else "no",
            )
            for tool in all_tools(runtime)
        }
    rows = _rows(4)
    assert [row[0].strip("`") for row in rows] == list(told)
    for name, _, roles, writes in rows:
        assert (set(re.findall(r"`(\w+)`", roles)), writes) == told[name.strip("`")]
