"""``remit mcp`` over standard input and output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remit.ledger import LedgerClient
from tests.server.mcp import calls
from tests.server.mcp.running import DOUBLED, TOP, stdio, variables
from tests.support.commands import require_said, run_remit
from tests.support.processes import Program, run_program
from tests.support.roots import new_root
from tests.support.waiting import until

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


def test_junk_is_answered_and_survived(tmp_path: Path) -> None:
    with raw(new_root(tmp_path / "root", LIMIT)) as server:
        for junk in (b"hello", b"{", b"\xff\xfe", b"[" * 60_000):
            server.send(junk)
            told = server.receive()
            assert told["error"]["code"] == -32700
            assert told.get("id") is None
        for line, answered in (
            (b'{"jsonrpc": "1.0"}', None),
            (b"[1, 2]", None),
            (b'{"jsonrpc": "1.0", "id": 9, "method": "ping"}', 9),
            (b'{"jsonrpc": "2.0", "id": "nine", "method": "ping", "params": 9}', "nine"),
            (b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}', None),
            (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', None),
            (b'{"jsonrpc": "2.0", "id": 9, "method": "ping", "params": {"x": "\\ud800"}}', 9),
        ):
            server.send(line)
            told = server.receive()
            assert told["error"]["code"] == -32600
            assert told.get("id") == answered
        server.send(b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": '
                    b'{"requestId": [1]}}')  # fmt: skip
        server.send(b"")
        server.send(b"x" * 1_000_000)
        assert server.receive()["error"]["code"] == -32600
        assert server.ask(1, "ping") == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert server.ask(2, "no/such")["error"]["code"] == -32601
        assert server.ask(3, "tools/call", name=5)["error"]["code"] == -32602
        # A ping is answered while a tool blocks.
        blocking = {"name": "router_score", "arguments": {"prompt": "block"}}
        server.send(_message(4, "tools/call", **blocking))
        assert server.ask(5, "ping")["id"] == 5
        assert server.receive()["id"] == 4


def test_a_batch_is_refused_and_cancelled_requests_are_not_waited_for(root: Path) -> None:
    with raw(root) as server:
        server.send([_message(1, "ping"), _message(2, "ping")])
        error = server.receive()["error"]
        assert error["code"] == -32600
        assert "Send each message separately" in error["message"]
        server.send(_message(8, "tools/call", name="router_route", arguments={"prompt": "slow"}))
        cancel = {"requestId": 8}
        server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel})
        assert server.ask(10, "ping")["id"] == 10


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


def test_a_client_that_is_gone(root: Path) -> None:
    with raw(root) as server:
        server.stdout.close()
        server.send(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}')
        until(lambda: server.process.poll() is not None)
        assert server.process.returncode == 0


def test_a_client_that_never_reads_is_not_listened_to_either(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root", "\n[mcp_server]\nmax_unread = 8\n")
    with raw(root) as server:
        line = b'{"jsonrpc": "2.0", "id": %d, "method": "tools/list"}'
        lines = b"".join(line % number + b"\n" for number in range(5000))  # more than pipes hold
        sending = server.stdin.fileno()
        os.set_blocking(sending, False)
        sent, end = 0, time.monotonic() + 4
        while time.monotonic() < end:
            try:
                sent += os.write(sending, lines[sent : sent + 65536])
            except BlockingIOError:
                time.sleep(0.05)
        assert 0 < sent < len(lines)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(120) == 0
        assert server.errors.read_bytes() == b""


def test_sigterm_with_a_thousand_answers_unread(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root", "\n[mcp_server]\nmax_unread = 100000\n")
    with raw(root) as server:
        for number in range(1000):
            server.send(b'{"jsonrpc": "2.0", "id": %d, "method": "tools/list"}' % number)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(120) == 0
        assert server.errors.read_bytes() == b""


def test_input_that_ends_right_after_a_call(root: Path) -> None:
    call = {"name": "thought_record",
            "arguments": {"type": "plan", "task_id": "fin", "content": "x"}}  # fmt: skip
    lines = [_message(0, "initialize", **START), STARTED, _message(1, "tools/call", **call)]
    done = run_program(
        *DOUBLED[1:], "mcp", "--root", str(root), environment=variables(), cwd=TOP,
        stdin="".join(f"{json.dumps(line)}\n" for line in lines),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["id"] for one in told] == [0, 1]
    assert told[1]["result"]["structuredContent"]["task_id"] == "fin"


@pytest.mark.parametrize("closing", ["<&-", ">&-"])
def test_there_is_no_client(root: Path, closing: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closing}', "sh", sys.executable, "-m", "remit", "mcp", "--root",
         str(root)],
        env=variables(), stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert b"Standard input or output is closed" in done.stderr
    assert b"Traceback" not in done.stderr


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


def test_integers_come_in_and_go_out_exactly_or_end_their_message_alone(root: Path) -> None:
    with raw(root) as server:
        for power in (63, 64, 1_000, 14_000):
            number = 2**power + 1
            told = server.ask(
                1, "tools/call", name="router_score", arguments={"prompt": str(number)}
            )
            assert told["result"]["structuredContent"]["scores"] == {"m-1": number}
            assert json.loads(told["result"]["content"][0]["text"])["scores"] == {"m-1": number}
            arguments = {"max_entries": number}
            told = server.ask(2, "tools/call", name="query_ledger", arguments=arguments)
            (block,) = told["result"]["content"]
            assert told["result"]["isError"] is True
            assert f"max_entries: {str(number)[:100]}" in block["text"]
            assert "is greater than the maximum of 100" in block["text"]
        call = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"n": %b}}'
        server.send(call % (b"9" * 4_301))
        told = server.receive()
        assert told["error"]["code"] == -32700
        assert "an integer has 4,301 digits, and at most 4,300 can be read" in str(told["error"])
        assert server.ask(2, "ping") == {"jsonrpc": "2.0", "id": 2, "result": {}}
