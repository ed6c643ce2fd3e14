"""``remit mcp wrap``: a client's configuration goes through the gateway, and back again."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.server.mcp.running import TOP, variables
from tests.support.commands import require_said, run_remit
from tests.support.roots import new_root

SCRIPT = str(TOP / "tests/agents/tools/stdio_server.py")


def _wrap(file: Path, root: Path, *more: str) -> Any:
    return run_remit("mcp", "wrap", file, "--root", root, *more, cwd=file.parent)


async def test_a_wrapped_server_has_receipts_and_comes_back_as_it_was(tmp_path: Path) -> None:
    root, file = new_root(tmp_path / "root"), tmp_path / ".mcp.json"
    before = json.dumps({
        "mcpServers": {
            "by hand": {
                "command": sys.executable, "args": [SCRIPT], "env": {"TOKEN": "horse-battery"},
                "disabled": False, "alwaysAllow": ["echo"], "x-own": {"a": [1]},
            },
            "web": {
                "type": "http", "url": "http://127.0.0.1:9/mcp",
                "headers": {"Authorization": "Bearer ${KEY}"}, "timeout": 60,
            },
            "old": {"type": "sse", "url": "http://127.0.0.1:9/sse"},
            "workspace": {"command": "run", "args": ["${workspaceFolder}"]},
        },
        "other": [1],
    }, indent=4)  # fmt: skip
    file.write_text(before)
    file.chmod(0o600)
    done = _wrap(file, root)
    assert "now uses the gateway: by hand" in done.stderr + done.stdout
    assert "unchanged: old: the transport" in done.stderr + done.stdout
    assert "unchanged: workspace" in done.stderr + done.stdout
    assert file.stat().st_mode & 0o777 == 0o600
    config = json.loads(file.read_text())
    assert config["other"] == [1]
    assert config["mcpServers"]["workspace"]["command"] == "run"
    own = tomllib.loads((root / "remit.toml").read_text())["mcp"]
    assert own["by hand"]["env"] == {"TOKEN": "${TOKEN}"}
    assert "horse-battery" not in (root / "remit.toml").read_text()
    web = config["mcpServers"]["web"]
    assert web["env"] == {"MCP_WEB_AUTHORIZATION": "Bearer ${KEY}"}
    assert own["web"]["headers"] == {"Authorization": "${MCP_WEB_AUTHORIZATION}"}

    assert web["timeout"] == 60
    assert "url" not in web

    entry = config["mcpServers"]["by hand"]
    assert entry["alwaysAllow"] == ["echo"]
    assert entry["disabled"] is False
    assert entry["x-own"] == {"a": [1]}
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "remit", *entry["args"][-5:]],
        env=variables(entry["env"]),
        cwd=str(TOP),
    )
    async with Client(server, mode="legacy", cache=None) as client:
        result = await client.call_tool("echo", {"value": 1})
        assert result.meta["remit/receipt"]["call"].startswith("LED-")

    assert "Nothing to do" in _wrap(file, root).stdout
    _wrap(file, root, "--undo")
    assert file.read_text() == before
    require_said(_wrap(file, root, "--undo"), "is not next to")


@pytest.mark.parametrize("text", ["{} // no", "[]", '{"mcpServers": {"a": 1}}', "{}", "\x00"])
def test_a_file_of_another_kind_is_left_alone(tmp_path: Path, text: str) -> None:
    root, file = new_root(tmp_path / "root"), tmp_path / "mcp.json"
    file.write_text(text)
    toml = (root / "remit.toml").read_text()
    assert _wrap(file, root).returncode == 1
    assert (file.read_text(), (root / "remit.toml").read_text()) == (text, toml)
    assert {path.name for path in tmp_path.iterdir()} == {"root", "mcp.json"}


def test_what_was_edited_since_stays(tmp_path: Path) -> None:
    root, file = new_root(tmp_path / "root"), tmp_path / "mcp.json"
    file.write_text(json.dumps({"servers": {"a": {"command": "a"}}}))
    _wrap(file, root)
    config = json.loads(file.read_text())
    config["servers"]["b"] = {"command": "b"}
    file.write_text(json.dumps(config))
    _wrap(file, root, "--undo")
    assert json.loads(file.read_text()) == {
        "servers": {"a": {"command": "a"}, "b": {"command": "b"}}
    }
