"""The MCP inspector's command line, a client of another make, over both transports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.mcp.running import TOOLS, serving, variables
from tests.support.roots import new_root
from tests.support.upstream import upstream

PACKAGE = "@modelcontextprotocol/inspector@2.12.0"
REMIT = (sys.executable, "-m", "remit")
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The inspector's command, in a folder of its own."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("npx") is None or shutil.which("node") is None:
        pytest.skip("there is no npx here")
    place = tmp_path_factory.mktemp("inspector")
    try:
        done = subprocess.run(
            [npm, "install", "--prefix", str(place), "--no-audit", "--no-fund", PACKAGE],
            env={**os.environ, "npm_config_cache": str(place / "cache")},
            cwd=place, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.skip("the inspector could not be fetched in time")
    if done.returncode:
        pytest.skip(f"the inspector cannot be installed here: {done.stderr[-300:]}")
    return str(place / "node_modules" / ".bin" / "mcp-inspector")


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A root, and the environment in which its router has a model to ask."""
    root = new_root(tmp_path_factory.mktemp("inspected") / "root")
    with upstream() as running:
        yield root, {"OPENAI_BASE_URL": f"{running.url}/v1", "OPENAI_API_KEY": "sk-upstream"}


@pytest.fixture(scope="module", params=["stdio", "http"])
def ask(
    request: pytest.FixtureRequest, inspector: str, routed: tuple[Path, dict[str, str]]
) -> Iterator[Ask]:
    """Runs the inspector once, and gives what it printed."""
    root, env = routed

    def run(where: list[str], more: list[str], method: str, *arguments: str) -> Any:
        done = subprocess.run(
            [inspector, "--cli", *where, "--method", method, *arguments, *more],
            env=variables(env), capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.stdout.strip().startswith("{"), (done.stdout, done.stderr)
        return json.loads(done.stdout)

    if request.param == "stdio":
        named = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
        command = [*named, *REMIT, "mcp", "--root", str(root)]
        yield lambda *asked: run(command, [], *asked)
        return
    with serving(root, command=REMIT, env=env) as served:
        key = json.loads(
            subprocess.run(
                [*REMIT, "key", "create", "--root", str(root), "--name", "inspector", "--role",
                 "operator", "--budget-usd", "5", "--json"],
                env=variables(), check=True, capture_output=True, text=True,
            ).stdout
        )["key"]  # fmt: skip
        header = ["--transport", "http", "--header", f"Authorization: Bearer {key}"]
        yield lambda *asked: run([served.url], header, *asked)


def test_every_tool(ask: Ask) -> None:
    listed = ask("tools/list")["tools"]
    assert [tool["name"] for tool in listed] == TOOLS
    assert all(tool["annotations"]["destructiveHint"] is False for tool in listed)

    def call(name: str, **arguments: Any) -> dict[str, Any]:
        pairs = [word for key, value in arguments.items()
                 for word in ("--tool-arg", f"{key}={value}")]  # fmt: skip
        answer = ask("tools/call", "--tool-name", name, *pairs)
        assert not answer.get("isError"), answer
        told: dict[str, Any] = answer["structuredContent"]
        assert json.loads(answer["content"][0]["text"]) == told
        return told

    made = call("thought_record", type="decision", task_id="inspected", content="It works.")
    thoughts = call("thought_record_list", task_id="inspected", limit=100)["thoughts"]
    assert thoughts[-1]["hash"] == made["hash"]
    assert call("thought_verify")["verified"] is True
    scored = call("router_score", prompt="Say hello.")
    routed = call("router_route", prompt="Say hello.", max_tokens=20)
    assert routed["model_id"] in scored["chain"]
    assert routed["response"]
    assert "auto" in [route["name"] for route in call("router_status")["routes"]]
    explained = call("router_explain", decision=routed["decision_id"])
    assert explained["chosen_model_id"] == routed["model_id"]
    entries = call("query_ledger", event_type="EXCHANGE", max_entries=1)["entries"]
    assert entries[0]["id"] == routed["exchange_entry_id"]
    sessions = call("list_sessions")
    assert sessions["status"] == "ok"
    traced = call("trace_prompt_journey", entry_id=routed["exchange_entry_id"])
    assert routed["exchange_entry_id"] in json.dumps(traced)


def test_a_mistake(ask: Ask) -> None:
    answer = ask("tools/call", "--tool-name", "thought_record", "--tool-arg", "type=dream",
                 "--tool-arg", "task_id=t", "--tool-arg", "content=x")  # fmt: skip
    assert answer["isError"] is True
    assert "'dream' is not one of" in answer["content"][0]["text"]
