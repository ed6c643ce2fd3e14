"""Agents behind ``/a2a/NAME``: bytes as they came, under keys and prices, on record."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aiohttp import web
from tests.server.running import Served, new_session, serving
from tests.support.waiting import until

from remit.packages.gates import check_gates
from remit.runtime import Runtime
from remit.views import prompt_journey

_CARD = (
    b'{ "name": "T\\u00e9a",\n "url": "http://elsewhere/", "signatures": [ {"protected":"x"} ] }\n'
)
_ASKED = (
    b'{"jsonrpc": "2.0", "id" : 7, "method": "SendMessage", '
    b'"params": {"message": {"parts": [{"text": "tea?"}]}, "x": 1e400}}'
)
_ANSWERED = (
    b'{"jsonrpc":"2.0",  "id":7, '
    b'"result": {"message": {"parts": [{"text": "t\\u00e9a"}]}, "n": 12345678901234567890}}'
)
_EVENTS = [b'data: {"jsonrpc": "2.0", "id": 7, "result": {"n": %d}}\r\n\r\n' % n for n in range(3)]


class Agent:
    """An A2A agent that answers as it is told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.seen: list[tuple[dict[str, str], bytes]] = []
        self.go_on = threading.Event()

    async def rpc(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        self.seen.append(({k.lower(): v for k, v in request.headers.items()}, raw))
        method = json.loads(raw).get("method")
        if method == "SendStreamingMessage":
            stream = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await stream.prepare(request)
            for event in _EVENTS:
                await stream.write(event)
                if event is _EVENTS[0]:
                    await asyncio.to_thread(self.go_on.wait, 30)
            await stream.write_eof()
            return stream
        if method == "cut":
            stream = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await stream.prepare(request)
            await stream.write(_EVENTS[0])
            assert request.transport is not None
            request.transport.abort()
            return stream
        if method == "flood":
            stream = web.StreamResponse(headers={"content-type": "application/json"})
            await stream.prepare(request)
            while True:
                await stream.write(b"x" * 2**20)
        if method == "move":
            raise web.HTTPFound("http://127.0.0.1:1/")
        if method == "fail":
            return web.Response(status=500, text="no")
        if method == "html":
            return web.Response(text="<p>no JSON", content_type="text/html")
        if method == "unheard":
            error = {"code": -32601, "message": "Method not found"}
            return web.json_response({"jsonrpc": "2.0", "id": 7, "error": error})
        return web.Response(body=_ANSWERED, content_type="application/json")

    async def card(self, request: web.Request) -> web.Response:
        return web.Response(body=_CARD, content_type="application/json", headers={"etag": '"one"'})


@contextmanager
def running(agent: Agent) -> Iterator[str]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> tuple[web.AppRunner, str]:
        app = web.Application()
        app.router.add_post("/rpc", agent.rpc)
        app.router.add_get("/.well-known/agent-card.json", agent.card)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, "http://{}:{}".format(*runner.addresses[0][:2])

    runner, url = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    yield url
    agent.go_on.set()
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(70)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.fixture(scope="module")
def agent() -> Agent:
    return Agent()


@pytest.fixture(scope="module")
def served(agent: Agent, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running(agent) as url:
        toml = f"""
[gateway]
failure_threshold = 1000
[a2a.tea]
url = "{url}/rpc"
api_key = "sk-agent-secret"
price_usd = 0.25
[a2a.gone]
url = "http://127.0.0.1:9/rpc"
"""
        root = tmp_path_factory.mktemp("a2a") / "root"
        with serving(root, "http://127.0.0.1:9", toml=toml) as opened:
            yield opened


def _rpc(method: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": {}}).encode()


def test_a_message_and_its_answer_are_bytes_and_on_record(served: Served, agent: Agent) -> None:
    session = new_session()
    agent.seen.clear()
    status, raw, headers = served.ask(
        "POST", "/a2a/tea", _ASKED,
        headers={"x-remit-session": session, "a2a-version": "1.0", "x-remit-agent": "asker"},
    )  # fmt: skip
    assert (status, raw) == (200, _ANSWERED)
    ((sent, body),) = agent.seen
    assert body == _ASKED
    assert sent["authorization"] == "Bearer sk-agent-secret"
    assert sent["a2a-version"] == "1.0"
    assert not any(name.startswith("x-remit") for name in sent)
    assert headers["x-remit-cost-usd"] == "0.250000000"
    found = served.exchange(session)
    data = found.metadata
    assert (data["wire"], data["model_id"], data["agent_id"]) == ("a2a.jsonrpc", "tea", "asker")
    assert (data["cost_usd"], data["cost_certainty"]) == (0.25, "measured")
    exact = served.ledger.exact(found.id, ("prompt", "parameters", "answer"))
    assert exact["answer"] == _ANSWERED
    ((name, at),) = data["cut"]
    assert exact["parameters"][:at] + exact[name] + exact["parameters"][at + 2 :] == _ASKED
    (turn,) = prompt_journey(served.ledger, session_id=session)["turns"]
    assert "tea" in json.dumps(turn, default=str)


def test_a_stream_comes_as_it_is_said(served: Served, agent: Agent) -> None:
    import http.client

    session = new_session()
    agent.go_on.clear()
    connection = http.client.HTTPConnection(*served.address, timeout=60)
    connection.request(
        "POST", "/a2a/tea/", _rpc("SendStreamingMessage"),
        {"authorization": f"Bearer {served.token}", "x-remit-session": session},
    )  # fmt: skip
    reply = connection.getresponse()
    assert reply.headers["content-type"] == "text/event-stream"
    assert reply.read(len(_EVENTS[0])) == _EVENTS[0]  # while the agent still works
    assert served.entries("DISPATCH", session)
    assert not served.entries("EXCHANGE", session)
    agent.go_on.set()
    assert reply.read() == b"".join(_EVENTS[1:])
    connection.close()
    found = served.exchange(session)
    assert found.metadata["answer"] == b"".join(_EVENTS).decode()
    assert found.metadata["cost_usd"] == 0.25


def test_a_card_is_served_byte_for_byte(served: Served) -> None:
    path = "/a2a/tea/.well-known/agent-card.json"
    status, raw, headers = served.ask("GET", path)
    assert (status, raw) == (200, _CARD)
    assert headers["content-type"].startswith("application/json")
    assert headers["etag"] == '"one"'
    assert served.ask("GET", path, token="sk-remit-wrong")[0] == 401
    status, raw, _ = served.ask("GET", "/a2a/gone/.well-known/agent-card.json")
    assert status == 502
    assert b"127.0.0.1" not in raw


def test_only_messages_have_the_price(served: Served) -> None:
    session = new_session()
    assert served.ask(
        "POST", "/a2a/tea", _rpc("GetTask"), headers={"x-remit-session": session}
    )[0] == 200  # fmt: skip
    assert served.exchange(session).metadata["cost_usd"] == 0


def test_a_budget_holds(served: Served, agent: Agent) -> None:
    key = served.key(usd_nano=600_000_000).key
    agent.seen.clear()
    got = [served.ask("POST", "/a2a/tea", _ASKED, token=key) for _ in range(4)]
    assert [status for status, _, _ in got] == [200, 200, 402, 402]
    assert len(agent.seen) == 2
    said = json.loads(got[-1][1])
    assert said["jsonrpc"] == "2.0"
    assert said["error"]["data"][0]["reason"] == "BUDGET_EXHAUSTED"


def test_who_may_not(served: Served, agent: Agent) -> None:
    agent.seen.clear()
    models = served.key(models=("gpt-*",)).key
    assert served.ask("POST", "/a2a/tea", _ASKED, token=models)[0] == 403
    assert served.ask("GET", "/a2a/tea/.well-known/agent-card.json", token=models)[0] == 403
    assert served.ask("POST", "/a2a/tea", _ASKED, token="sk-remit-wrong")[0] == 401
    assert served.ask("POST", "/a2a/unheard", _ASKED)[0] == 404
    assert agent.seen == []
    named = served.key(models=("a2a/tea",)).key
    assert served.ask("POST", "/a2a/tea", _ASKED, token=named)[0] == 200


@pytest.mark.parametrize("body", [b"", b"[]", b"not json", b"{" * 3000, b'"text"'])
def test_what_is_no_request_is_not_sent(served: Served, agent: Agent, body: bytes) -> None:
    agent.seen.clear()
    status, raw, _ = served.ask("POST", "/a2a/tea", body)
    assert status == 400
    assert json.loads(raw)["error"]["code"] == -32600
    assert agent.seen == []


@pytest.mark.parametrize(
    ("method", "status"), [("fail", 500), ("move", 502), ("html", 200), ("unheard", 200),
                           ("flood", 502)],
)  # fmt: skip
def test_hostile_agents_do_no_harm(served: Served, method: str, status: int) -> None:
    session = new_session()
    got, raw, _ = served.ask("POST", "/a2a/tea", _rpc(method), headers={"x-remit-session": session})
    assert got == status, raw[:500]
    assert b"sk-agent-secret" not in raw
    assert served.exchange(session).metadata["model_id"] == "tea"
    assert served.ask("POST", "/a2a/tea", _ASKED)[0] == 200


def test_a_stream_that_breaks_off_is_on_record(served: Served) -> None:
    session = new_session()
    sent = (
        f"POST /a2a/tea HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {served.token}\r\n"
        f"x-remit-session: {session}\r\ncontent-length: {len(_rpc('cut'))}\r\n\r\n"
    )
    came = served.raw(sent.encode() + _rpc("cut"))
    assert _EVENTS[0].strip() in came
    assert not came.endswith(b"0\r\n\r\n")  # its end is missing, and can be seen to be
    until(lambda: served.entries("EXCHANGE", session))
    found = served.exchange(session)
    assert found.metadata["outcome"] == "error"
    assert "result" in str(found.metadata["answer"])


def test_an_agent_that_cannot_be_reached(served: Served) -> None:
    status, raw, _ = served.ask("POST", "/a2a/gone", _ASKED)
    assert status == 502
    assert b"127.0.0.1" not in raw


def test_the_gate_passes(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    with Runtime.open(served.root) as runtime:
        for report in check_gates(runtime.gate_context(), ["G2", "G6"], by="test").gates:
            assert report.passed, report
