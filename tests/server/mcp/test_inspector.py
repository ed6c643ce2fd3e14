"""The MCP inspector's command line, a client of another make, over both transports.

Each look of the inspector is a process of Node's, and over stdio one of Remit's: over HTTP every
tool is called, over stdio those that show that the transport carries both directions.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.server.mcp.running import TOOLS, serving, variables
from tests.support.roots import new_root
from tests.support.upstream import upstream

PACKAGE = "@modelcontextprotocol/inspector@2.12.0"
REMIT = (sys.executable, "-m", "remit")


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


def ask(inspector: str, before: list[str], method: str, *arguments: str, after: list[str]) -> Any:
    """Run the inspector once; what it printed."""
    done = subprocess.run(
        [inspector, "--cli", *before, "--method", method, *arguments, *after],
        env=variables(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout.strip().startswith("{"), (done.stdout, done.stderr)
    return json.loads(done.stdout)


def test_every_tool_over_http(inspector: str, tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    with (
        upstream() as provider,
        serving(
            root,
            command=REMIT,
            env={"OPENAI_BASE_URL": f"{provider.url}/v1", "OPENAI_API_KEY": "sk-upstream"},
        ) as served,
    ):
        made = subprocess.run(
            [*REMIT, "key", "create", "--root", str(root), "--name", "inspector", "--role",
             "operator", "--budget-usd", "5", "--json"],
            env=variables(), check=True, capture_output=True, text=True,
        )  # fmt: skip
        header = f"Authorization: Bearer {json.loads(made.stdout)['key']}"
        after = ["--transport", "http", "--header", header]

        def call(name: str, **arguments: Any) -> dict[str, Any]:
            pairs = [word for key, value in arguments.items()
                     for word in ("--tool-arg", f"{key}={value}")]  # fmt: skip
            called = ("tools/call", "--tool-name", name, *pairs)
            answer = ask(inspector, [served.url], *called, after=after)
            assert not answer.get("isError"), answer
            found: dict[str, Any] = answer["structuredContent"]
            assert json.loads(answer["content"][0]["text"]) == found
            return found

        recorded = call("thought_record", type="decision", task_id="inspected", content="It works.")
        thoughts = call("thought_record_list", task_id="inspected", limit=100)["thoughts"]
        assert thoughts[-1]["hash"] == recorded["hash"]
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
        assert call("list_sessions")["status"] == "ok"
        traced = call("trace_prompt_journey", entry_id=routed["exchange_entry_id"])
        assert routed["exchange_entry_id"] in json.dumps(traced)


def test_the_list_and_a_mistake_over_stdio(inspector: str, tmp_path: Path) -> None:
    command = [*REMIT, "mcp", "--root", str(new_root(tmp_path / "root"))]
    listed = ask(inspector, command, "tools/list", after=[])["tools"]
    assert [tool["name"] for tool in listed] == TOOLS
    assert all(tool["annotations"]["destructiveHint"] is False for tool in listed)
    answer = ask(
        inspector, command, "tools/call", "--tool-name", "thought_record", "--tool-arg",
        "type=dream", "--tool-arg", "task_id=t", "--tool-arg", "content=x", after=[],
    )  # fmt: skip
    assert answer["isError"] is True
    assert "'dream' is not one of" in answer["content"][0]["text"]
