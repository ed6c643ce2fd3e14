"""MCP servers over streamable HTTP, with a key."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from remit.agents.tools import Context, McpServer, ToolDispatcher, ToolError
from remit.kernel.settings import McpServerSettings, default_settings

SCRIPT = str(Path(__file__).parent / "web_server.py")
BOUNDS = default_settings().tools.model_copy(update={"timeout_s": 20.0})
KEY = "key-of-the-door"


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def _running(port: int, *more: str) -> Iterator[None]:
    command = [sys.executable, SCRIPT, str(port), KEY, *more]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            for _ in range(1000):
                with socket.socket() as trying:
                    if trying.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.02)
            yield
        finally:
            process.kill()


def _settings(port: int, **more: object) -> McpServerSettings:
    values = {
        "url": f"http://127.0.0.1:{port}/mcp",
        "headers": {"Authorization": SecretStr("Bearer ${DOOR_KEY}")},
        "start_timeout_s": 10.0,
        "max_message_bytes": 1_000_000,
        **more,
    }
    return McpServerSettings(**values)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOOR_KEY", KEY)


@pytest.mark.parametrize("form", ["events", "json"])
def test_tools_behind_a_door(form: str) -> None:
    port = _free_port()
    with _running(port, form), McpServer("web", _settings(port, timeout_s=2.0)) as server:
        dispatcher = ToolDispatcher(server.tools(), BOUNDS)
        assert dispatcher.execute("web__add", {"a": 2, "b": 3}).output == {"result": 5}
        call = Context("web__meta", "key-7", "WO-1", "SES-1")
        assert dispatcher.execute("web__meta", {}, call=call).output == {"result": "key-7"}
        for number in (2**53 + 1, 2**63, -(2**64) - 1, 10**400):
            used = dispatcher.execute("web__double", {"number": number})
            assert used.output == {"number": number, "double": 2 * number}
        huge = dispatcher.execute("web__huge", {})
        assert huge.status == "unknown"
        hanging = dispatcher.execute("web__hang", {})
        assert hanging.status == "timeout"
        assert dispatcher.execute("web__add", {"a": 1, "b": 1}).status == "ok"


def test_a_wrong_key_is_told_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    port = _free_port()
    monkeypatch.setenv("DOOR_KEY", "wrong-key-123")
    with _running(port), McpServer("web", _settings(port)) as server:
        with pytest.raises(ToolError, match="did not start") as caught:
            server.tools()
        assert "wrong-key-123" not in f"{caught.value!r}{server!r}"


def test_a_server_that_dies_and_comes_back() -> None:
    port = _free_port()
    with McpServer("web", _settings(port)) as server:
        with _running(port):
            dispatcher = ToolDispatcher(server.tools(), BOUNDS)
            assert dispatcher.execute("web__add", {"a": 2, "b": 3}).status == "ok"
            began = time.monotonic()
            assert dispatcher.execute("web__die", {}).status == "unknown"
            assert dispatcher.execute("web__add", {"a": 2, "b": 3}).status == "error"
            assert time.monotonic() - began < 60
        with _running(port):
            results = [dispatcher.execute("web__add", {"a": 2, "b": 3}) for _ in range(2)]
            assert results[1].output == {"result": 5}
            assert server.tools()[0].tool_id == "web__add"


SESSIONS = """\
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

KNOWN = set()
RESULTS = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                   "serverInfo": {"name": "s", "version": "1"}},
    "tools/list": {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]},
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    calls = 0

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, session = message.get("method"), self.headers.get("mcp-session-id", "")
        status, answer = 200, {"result": RESULTS.get(method, {})}
        if method == "initialize":
            session = f"s{len(KNOWN)}"
            KNOWN.add(session)
        elif method == "server/discover":
            answer = {"error": {"code": -32601, "message": "Unknown."}}
        elif session not in KNOWN:
            status, answer = 404, {"error": {"code": -32001, "message": "Session not found"}}
        elif method == "tools/call":
            Handler.calls += 1
            text = f"call {Handler.calls}"
            answer = {"result": {"content": [{"type": "text", "text": text}]}}
            if not message["params"].get("arguments"):
                KNOWN.clear()  # As after a restart.
                KNOWN.add("nobody")
        body = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), **answer}).encode()
        if "id" not in message:
            status, body = 202, b""
        kind, asked = "application/json", (message.get("params") or {}).get("arguments") or {}
        if "status" in asked:
            status, kind, body = asked["status"], asked["kind"], asked["body"].encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("mcp-session-id", session)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.send_error(405)

    do_DELETE = do_GET

    def log_message(self, *_):
        pass


HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def _sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "sessions.py"
    script.write_text(SESSIONS)
    monkeypatch.setitem(globals(), "SCRIPT", str(script))


_OWN = '{"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "busy"}}'


@pytest.mark.usefixtures("_sessions")
@pytest.mark.parametrize(
    ("status", "kind", "body", "outcome"),
    [
        (502, "text/html", "<html>Bad Gateway</html>", "unknown"),
        (503, "text/plain", "", "unknown"),
        (504, "application/json", '{"message": "Endpoint request timed out"}', "unknown"),
        (504, "application/json", "[" * 5000, "unknown"),
        (504, "text/event-stream", "data: ", "unknown"),
        (503, "application/json", _OWN.replace("-32000", "-32050"), "error"),
        (429, "text/plain", "slowly", "error"),
    ],
)
def test_a_call_whose_answer_a_proxy_lost_has_an_unknown_outcome(
    status: int, kind: str, body: str, outcome: str
) -> None:
    port = _free_port()
    with _running(port), McpServer("web", _settings(port)) as server:
        dispatcher = ToolDispatcher(server.tools(), BOUNDS)
        used = dispatcher.execute("web__work", {"status": status, "kind": kind, "body": body})
        assert used.status == outcome
        if outcome == "unknown":
            assert f"(HTTP {status}); the call may have taken effect" in used.error
        assert dispatcher.execute("web__work", {}).output == "call 2"


@pytest.mark.usefixtures("_sessions")
def test_a_server_that_forgot_the_session_gets_a_new_one_and_each_call_once() -> None:
    port = _free_port()
    with _running(port), McpServer("web", _settings(port)) as server:
        dispatcher = ToolDispatcher(server.tools(), BOUNDS)
        used = [dispatcher.execute("web__work", {}) for _ in range(3)]
    assert [(one.status, one.output) for one in used] == [
        ("ok", "call 1"), ("ok", "call 2"), ("ok", "call 3"),
    ]  # fmt: skip
