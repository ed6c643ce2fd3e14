"""``docs/mcp.md`` is held to the code; its Python for the SDK is run with that of all pages."""

from __future__ import annotations

import re
from pathlib import Path

from remit.gateway.auth import ROLES, Identity
from remit.runtime import Runtime
from remit.server.mcp.callers import Caller
from remit.server.mcp.server import all_tools
from tests.server.mcp.running import TOP
from tests.support.roots import new_root

PAGE = (TOP / "docs/mcp.md").read_text("utf-8")


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
