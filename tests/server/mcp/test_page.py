"""``docs/mcp.md`` is held to the code; its Python for the SDK is run with that of all pages."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from click.testing import CliRunner

from remit.cli.mcp import mcp
from remit.gateway.auth import ROLES, Identity
from remit.kernel.settings import McpServerSettings, default_settings
from remit.runtime import Runtime
from remit.server.mcp.callers import Caller
from remit.server.mcp.gateway.rules import Rules
from remit.server.mcp.server import all_tools
from tests.server.mcp.running import TOP
from tests.support.roots import new_root

PAGE = (TOP / "docs/mcp.md").read_text("utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


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


def test_the_table_of_limits() -> None:
    own = default_settings().mcp_server.model_dump()
    rows = _rows(3)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
    assert len(named) > 5
    assert named == [name for name in own if name in named]
    for names, values, _ in rows:
        for name, value in zip(re.findall(r"`(\w+)`", names), values.split(","), strict=False):
            shown = value.strip(" `")
            assert shown == "none" or str(own[name]).removesuffix(".0") == shown, name


def test_the_configurations_can_be_read() -> None:
    blocks = [json.loads(block) for block in _blocks("json")]
    assert len(blocks) == 5
    options = CliRunner().invoke(mcp, ["--help"]).output
    for block in blocks:
        for server in (block.get("mcpServers") or block["servers"]).values():
            if "url" in server:
                assert server["url"] == "http://127.0.0.1:4001/mcp"
                assert server["headers"]["Authorization"].startswith("Bearer ${")
            elif server["command"].endswith("remit"):
                assert server["args"][:2] == ["mcp", "--root"]
    assert "--root" in options
    toml, rules = _blocks("toml")
    files = McpServerSettings.model_validate(tomllib.loads(rules)["mcp"]["files"])
    key = Identity("ci-1", "agent")
    allowed = {"path": "/srv/data/build/x"}
    decided = [
        Rules("files", files).decide(key, tool, arguments).effect
        for tool, arguments in (
            ("delete_file", {}), ("write_file", allowed), ("write_file", {"path": "/etc/passwd"}),
        )
    ]  # fmt: skip
    assert decided == ["deny", "allow", "deny"]
    assert (
        tomllib.loads(toml)["mcp_server"].keys()
        <= default_settings().mcp_server.model_dump().keys()
    )
    for block in _blocks("py"):
        compile(block, "docs/mcp.md", "exec")
