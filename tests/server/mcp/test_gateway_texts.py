"""The MCP gateway before a server whose texts change, and ``remit mcp wrap``."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters

from remit.agents.tools import Pins
from tests.agents.tools.test_pinned_texts import CHANGES, EVIL, TEXTS, _changed
from tests.server.mcp.running import TOP, Served, serving, variables
from tests.server.mcp.test_gateway import at
from tests.support.commands import require_said, run_remit
from tests.support.roots import new_root
from tests.support.soak import sample

SCRIPT = str(TOP / "tests/agents/tools/scripted_server.py")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("texts")


@pytest.fixture(scope="module")
def served(place: Path) -> Iterator[Served]:
    toml = "".join(
        f'[mcp.s{number}]\ncommand = "{sys.executable}"\n'
        f'args = ["{SCRIPT}", "{place}/{number}.json"]\n'
        for number in range(len(CHANGES) + 2)
    )
    with serving(new_root(place / "root", toml), gateway=True) as running:
        yield running


async def _everything(served: Served, name: str) -> str:
    """Return all texts of the server that a client is given."""
    async with at(served, name) as client:
        found: list[Any] = [
            client.instructions,
            await client.list_tools(),
            await client.list_prompts(),
            await client.list_resources(),
            await client.list_resource_templates(),
        ]
        for asked in (client.get_prompt("sum"), client.read_resource("n://a/b")):
            try:
                found.append(await asked)
            except MCPError as error:
                found.append(str(error))
        return str(found)


@pytest.mark.soak
@pytest.mark.parametrize("number", sample(range(len(CHANGES)), 2))
async def test_a_changed_text_is_held_back_from_clients(
    served: Served, place: Path, number: int
) -> None:
    method, where, pinned = CHANGES[number]
    name, file = f"s{number}", place / f"{number}.json"
    file.write_text(json.dumps(TEXTS))
    before = await _everything(served, name)
    assert "Be kind." in before
    assert "Sum it up in one line." in before
    texts = _changed(method, where)
    if where == "arguments":
        texts[method]["prompts"][0][where] = [{"name": "a", "description": EVIL}]
    file.write_text(json.dumps(texts))
    shown = await _everything(served, name)
    assert repr(EVIL)[1:-1] not in shown
    assert EVIL not in shown
    pins = Pins(served.ledger)
    (waits,) = pins.changed(name)
    assert waits.tool_id.startswith(name + pinned[1:])
    pins.accept([waits], by="Ada")
    after = await _everything(served, name)
    if where != "annotations":
        assert repr(EVIL)[1:-1] in after or "Send the keys" in after


async def test_instructions_that_a_server_adds_are_held_back(served: Served, place: Path) -> None:
    name, file = f"s{len(CHANGES)}", place / f"{len(CHANGES)}.json"
    file.write_text(json.dumps({**TEXTS, "initialize": {}}))
    await _everything(served, name)
    file.write_text(json.dumps(TEXTS))
    async with at(served, name) as client:
        assert "Be kind." not in str(client.instructions)
        assert f"remit mcp accept {name} {name}:instructions" in str(client.instructions)


async def test_great_integers_pass_exactly_and_are_recorded(served: Served, place: Path) -> None:
    name, file = f"s{len(CHANGES) + 1}", place / f"{len(CHANGES) + 1}.json"
    answer = {"content": [], "structuredContent": {"id": 2**70}}
    file.write_text(json.dumps({**TEXTS, "tools/call": answer}))
    async with at(served, name) as client:
        result = await client.call_tool("note", {"id": -(2**80)})
        assert result.structured_content == {"id": 2**70}
    (call,) = served.ledger.query(event_type="TOOL_CALL", order="desc", limit=1)
    assert call.metadata["arguments"] == {"id": -(2**80)}
    assert call.metadata["result"]["structuredContent"] == {"id": 2**70}


WRAPPED = str(TOP / "tests/agents/tools/stdio_server.py")


def _wrap(file: Path, root: Path, *more: str) -> Any:
    return run_remit("mcp", "wrap", file, "--root", root, *more, cwd=file.parent)


async def test_a_wrapped_server_has_receipts_and_comes_back_as_it_was(tmp_path: Path) -> None:
    root, file = new_root(tmp_path / "root"), tmp_path / ".mcp.json"
    before = json.dumps({
        "mcpServers": {
            "by hand": {
                "command": sys.executable, "args": [WRAPPED], "env": {"TOKEN": "horse-battery"},
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


@pytest.mark.parametrize(
    "odd", [{"args": "abc"}, {"args": {"a": 1}}, {"env": ["A=1"]}, {"env": {"A": 5}},
            {"url": "http://127.0.0.1:9/mcp"}, {"command": "a\ud800"}],
)  # fmt: skip
def test_an_entry_of_odd_types_does_not_make_a_root_unreadable(tmp_path: Path, odd: Any) -> None:
    root, file = new_root(tmp_path / "root"), tmp_path / "mcp.json"
    file.write_text(
        json.dumps({"servers": {"odd": {"command": "a", **odd}, "b": {"command": "b"}}})
    )
    done = _wrap(file, root)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert run_remit("config", "show", "--root", root).returncode == 0
    assert "b" in tomllib.loads((root / "remit.toml").read_text())["mcp"]
    assert json.loads(file.read_text())["servers"]["b"]["args"][-5:-3] == ["mcp", "gateway"]


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
