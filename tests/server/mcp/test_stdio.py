"""``remit mcp`` over standard input and output."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from remit.ledger import LedgerClient
from tests.server.mcp import calls
from tests.server.mcp.running import DOUBLED, TOP, stdio, variables
from tests.support.commands import require_said, run_remit
from tests.support.processes import Program
from tests.support.roots import new_root

LIMIT = "\n[mcp_server]\nmax_message_bytes = 65536\n"
START = {"protocolVersion": "2025-06-18", "capabilities": {},
         "clientInfo": {"name": "raw", "version": "1"}}  # fmt: skip
STARTED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_every_tool_mistakes_and_calls_at_once(root: Path, mode: str) -> None:
    async with stdio(root, mode=mode) as client:
        assert client.server_info is not None
        assert client.server_info.name == "remit"
        await calls.every_tool(client, "local-operator")
        await calls.mistakes(client)
        if mode == "legacy":
            await calls.side_by_side(client)
            await calls.cancelling(client)


def _message(number: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


class Raw:
    """A server that is spoken to line by line."""

    def __init__(self, process: Program, errors: Path) -> None:
        self.process = process
        self.stdin: Any = process.stdin.buffer
        self.stdout: Any = process.stdout.buffer
        self.errors = errors

    def send(self, line: Any) -> None:
        """Send a line, or a message."""
        data = line if isinstance(line, bytes) else json.dumps(line).encode()
        self.stdin.write(data + b"\n")
        self.stdin.flush()

    def receive(self) -> Any:
        return json.loads(self.stdout.readline())

    def ask(self, number: int, method: str, **params: Any) -> Any:
        self.send(_message(number, method, **params))
        return self.receive()

    def initialize(self) -> None:
        assert self.ask(0, "initialize", **START)["result"]["serverInfo"]["name"] == "remit"
        self.send(STARTED)


@contextmanager
def raw(root: Path, *program: str) -> Iterator[Raw]:
    line = [*(program or DOUBLED[1:]), "mcp", "--root", str(root)]
    errors = root.parent / "errors"
    with Program(*line, environment=variables(), cwd=TOP, errors=errors) as process:
        try:
            server = Raw(process, errors)
            server.initialize()
            yield server
        finally:
            process.kill()


def test_junk_is_survived(tmp_path: Path) -> None:
    with raw(new_root(tmp_path / "root", LIMIT)) as server:
        for junk in (
            b"hello",
            b"{",
            b"\xff\xfe",
            b"[" * 60_000,
            b'{"jsonrpc": "1.0"}',
            b"[1, 2]",
            b"",
        ):
            server.send(junk)
        half = b'{"jsonrpc": "2.0", "id": 9, "method": "ping", "params": {"x": "\\ud800"}}'
        server.send(half)
        assert server.receive()["id"] == 9
        assert server.ask(1, "ping") == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert server.ask(2, "no/such")["error"]["code"] == -32601
        assert server.ask(3, "tools/call", name=5)["error"]["code"] == -32602
        with suppress(BrokenPipeError):
            server.send(b"x" * 1_000_000)  # above the limit: the server ends
        assert server.process.wait(120) == 0


@pytest.mark.parametrize("end", ["eof", signal.SIGINT])
def test_it_ends_cleanly(root: Path, end: Any) -> None:
    with raw(root) as server:
        told = server.ask(
            1, "tools/call", name="thought_record",
            arguments={"type": "plan", "task_id": "end", "content": "The last words."},
        )  # fmt: skip
        slow = {"name": "router_route", "arguments": {"prompt": "slow"}}
        server.send(_message(2, "tools/call", **slow))
        while server.ask(3, "tools/call", name="router_status", arguments={})["result"][
            "structuredContent"
        ]["begun"] == 0:  # fmt: skip
            pass
        if end == "eof":
            server.stdin.close()
        else:
            server.process.send_signal(end)
        assert server.process.wait(120) == 0
        for line in server.stdout.read().splitlines():
            assert json.loads(line)["jsonrpc"] == "2.0"
        assert server.errors.read_bytes() == b""
    with LedgerClient(str(root / "ledger.db")) as ledger:
        entry_id = told["result"]["structuredContent"]["entry_id"]
        assert ledger.read(entry_id).metadata["content"] == "The last words."
        assert ledger.verify().verified


def test_stdout_is_the_protocols_alone(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    script = (
        "import os, subprocess, sys\n"
        "from tests.server.mcp.doubled import RouterDouble, put\n"
        "class Printing(RouterDouble):\n"
        "    def status(self):\n"
        "        print('by hand', flush=True)\n"
        "        os.write(1, b'by descriptor\\n')\n"
        "        subprocess.run(['echo', 'by a child'])\n"
        "        return {'read': sys.stdin.read()}\n"
        "put(Printing())\n"
        "from remit.cli import main\n"
        "main()\n"
    )
    with raw(root, "-c", script) as server:
        told = server.ask(1, "tools/call", name="router_status")
        server.stdin.close()
        assert server.process.wait(120) == 0
        assert server.stdout.read() == b""
        said = server.errors.read_bytes()
    assert (told["id"], told["result"]["structuredContent"]) == (1, {"read": ""})
    for words in (b"by hand", b"by descriptor", b"by a child"):
        assert words in said


def test_wrong_use(tmp_path: Path) -> None:
    nowhere = run_remit("mcp", "--root", tmp_path / "none")
    assert (nowhere.returncode, nowhere.stdout) == (1, "")
    assert "There is no root" in nowhere.stderr
    require_said(run_remit("mcp", "--port", "1"), "require --http", code=2)
