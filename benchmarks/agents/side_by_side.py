"""The same program in Remit, Pydantic AI and OpenAI's Agents SDK: run, killed, resumed, counted.

The programs are in :mod:`benchmarks.agents.runners.programs`, each run in an environment of its own
against a local server that speaks Chat Completions and Responses. Each is killed with SIGKILL while
it waits for a person, started again, and must come to the typed answer. Counted are lines that are
not blank, files, and concepts: names imported from the framework, and attributes and keyword
arguments used with what it gives.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from typing_extensions import override

from benchmarks.agents import peers
from benchmarks.gateways import environments
from benchmarks.gateways.report import table
from benchmarks.rounds import new_directory

PROGRAMS = Path(__file__).parent / "runners" / "programs"
MESSAGE = "Order 1002 came broken.\n"
ANSWER = {"text": "Order 1002 is refunded.", "refunded": True}
_OURS = frozenset({"STATE", "asyncio", "json", "sys"})  # not the framework's
_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Program:
    """One of the programs.

    Attributes:
        file: below ``runners/programs``.
        frameworks: the packages whose names it imports.
        environment: of :mod:`benchmarks.gateways.environments`; empty for the one that runs this.
    """

    file: str
    frameworks: tuple[str, ...]
    environment: str = ""


ALL = {
    "Remit": Program("remit_program.py", ("remit",)),
    "Pydantic AI": Program("pydantic_program.py", ("pydantic_ai",), "pydantic-ai"),
    "OpenAI Agents SDK": Program("openai_program.py", ("agents",), "openai-agents"),
}


@dataclass
class Outcome:
    """What came of a program.

    Attributes:
        printed: its last line.
        calls: requests that the model got, over both processes.
    """

    lines: int
    files: int
    concepts: int
    printed: str = ""
    calls: int = 0


def counted(program: Program) -> Outcome:
    """The program's size."""
    text = (PROGRAMS / program.file).read_text()
    tree = ast.parse(text)
    concepts: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "") in program.frameworks:
            concepts |= {name.name for name in node.names}
        elif isinstance(node, ast.Attribute) and not _is_ours(node):
            concepts.add(node.attr)
        elif isinstance(node, ast.Call):
            concepts |= {f"{keyword.arg}=" for keyword in node.keywords if not _is_ours(node.func)}
    return Outcome(sum(1 for line in text.splitlines() if line.strip()), 1, len(concepts))


def _is_ours(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in _OURS


def run(program: Program, directory: Path) -> Outcome:
    """Run it, kill it while it waits, run it again.

    Raises:
        UnavailableError: it did not come to the answer.
    """
    outcome = counted(program)
    python: Path = Path(sys.executable)
    if program.environment:
        environments.prepare(program.environment)
        python = environments.python_environment(program.environment) / "python"
    with _model() as (url, calls):
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("REMIT_", "ANTHROPIC_"))},
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "sk-test",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "REMIT_PRICES": "",
        }
        command = [str(python), str(PROGRAMS / program.file)]
        first = _begin(command, directory, environment)
        _until_asked(first, MESSAGE)
        first.kill()
        first.communicate()
        second = _begin(command, directory, environment)
        printed, errors = second.communicate("yes\n", timeout=_PATIENCE_S)
        if second.returncode or "refunded=True" not in printed:
            raise environments.UnavailableError(f"{program.file}: {printed}{errors}"[-2000:])
        outcome.calls = len(calls)
    outcome.printed = printed.strip().splitlines()[-1].rpartition("? ")[2]
    return outcome


def _begin(
    command: list[str], directory: Path, environment: dict[str, str]
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, cwd=directory, env=environment, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def _until_asked(process: subprocess.Popen[str], message: str) -> None:
    """Give the message; return when the person is asked about the refund."""
    assert process.stdin is not None
    assert process.stdout is not None
    timer = threading.Timer(_PATIENCE_S, process.kill)
    timer.start()
    process.stdin.write(message)
    process.stdin.flush()
    printed = ""
    while not printed.endswith("? "):
        letter = process.stdout.read(1)
        if not letter:
            raise environments.UnavailableError(f"it ended early: {printed}{process.communicate()}")
        printed += letter
    timer.cancel()


@contextmanager
def _model() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A model that looks the order up, refunds it, and answers; gives its URL and its requests."""
    calls: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        @override
        def log_message(self, format: str, *args: Any) -> None: ...

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            calls.append(body)
            answer = _response(body) if self.path.endswith("/responses") else _completion(body)
            raw = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", calls
    finally:
        server.shutdown()
        server.server_close()


def _next(results: int) -> tuple[str, dict[str, Any]]:
    """The tool that is due, or the answer, after so many results."""
    if results < 2:
        return ("look_up_order", "refund")[results], {"order_id": 1002}
    return "", ANSWER


def _completion(body: dict[str, Any]) -> dict[str, Any]:
    results = sum(message["role"] == "tool" for message in body["messages"])
    name, data = _next(results)
    if not name and "response_format" not in body:
        name = body["tools"][-1]["function"]["name"]  # it takes its output by a tool
    said: dict[str, Any] = {"role": "assistant", "content": None if name else json.dumps(data)}
    if name:
        function = {"name": name, "arguments": json.dumps(data)}
        said["tool_calls"] = [{"id": f"call_{results}", "type": "function", "function": function}]
    finish = "tool_calls" if name else "stop"
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": body["model"],
        "choices": [{"index": 0, "message": said, "finish_reason": finish}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30},
    }  # fmt: skip


def _response(body: dict[str, Any]) -> dict[str, Any]:
    items = body["input"] if isinstance(body["input"], list) else []
    results = sum(item.get("type") == "function_call_output" for item in items)
    name, data = _next(results)
    if name:
        item: dict[str, Any] = {
            "type": "function_call", "id": f"fc_{results}", "call_id": f"call_{results}",
            "name": name, "arguments": json.dumps(data), "status": "completed",
        }  # fmt: skip
    else:
        text = {"type": "output_text", "text": json.dumps(data), "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [text]}  # fmt: skip
    usage = {"input_tokens": 20, "output_tokens": 10, "total_tokens": 30,
             "input_tokens_details": {"cached_tokens": 0},
             "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
    return {
        "id": "resp_1", "object": "response", "created_at": 1, "model": body["model"],
        "status": "completed", "output": [item], "usage": usage, "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": [],
    }  # fmt: skip


def measure(scratch: Path, given: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """All programs; the table, and its figures."""
    _ = given, peers  # peers names the environments
    skipped = environments.Skipped()
    found: dict[str, Outcome] = {}
    for name, program in ALL.items():
        with skipped.at(name):
            found[name] = run(program, new_directory(scratch))
    rows = [
        [name, one.lines, one.files, one.concepts, one.calls, one.printed]
        for name, one in found.items()
    ]
    head = ["", "lines", "files", "concepts", "model calls", "printed after kill -9 and resume"]
    text = "\n".join([table(head, [[str(cell) for cell in row] for row in rows]), *skipped.lines()])
    return text, {name: asdict(one) for name, one in found.items()}
