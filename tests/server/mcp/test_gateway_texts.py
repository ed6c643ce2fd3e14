"""The gateway in front of a server whose texts change, and whose numbers are great."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError

from remit.agents.tools import Pins
from tests.agents.tools.test_pinned_texts import CHANGES, EVIL, TEXTS, _changed
from tests.server.mcp.running import TOP, Served, serving
from tests.server.mcp.test_gateway import at
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
