"""Images, audio and great integers of MCP servers, from the server to the model and the record."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.types import CallToolResult

from remit.agents.tools import McpServer, ToolDispatcher
from remit.agents.tools.mcp.results import tool_output
from remit.agents.tools.output import Illustrated
from remit.kernel.settings import McpServerSettings, default_settings
from remit.runtime import Runtime
from tests.support.agents import Scripted
from tests.support.roots import new_root
from tests.support.wire import completion, message, serve, tool_use

SCRIPT = str(Path(__file__).parent / "scripted_server.py")
BOUNDS = default_settings().tools.model_copy(update={"timeout_s": 60.0})
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(60)).decode()
TOOL = {"name": "look", "description": "Look.", "inputSchema": {"type": "object"}}
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
EMBEDDED = {
    "type": "resource",
    "resource": {"uri": "file:///p.png", "mimeType": "image/png", "blob": PNG},
}


def _result(*content: dict[str, Any], **more: Any) -> CallToolResult:
    return CallToolResult.model_validate({"content": content, **more})


@pytest.mark.parametrize("block", [IMAGE, EMBEDDED, {**IMAGE, "mimeType": "text/plain"}])
def test_an_image_is_a_block_of_the_type_that_its_data_is(block: dict[str, Any]) -> None:
    found = tool_output(_result({"type": "text", "text": "Here."}, block, AUDIO))
    assert isinstance(found, Illustrated)
    (image,) = found.images
    assert image["source"] == {"type": "base64", "media_type": "image/png", "data": PNG}
    assert "Here." in found.value
    assert "[audio, audio/wav, 3 bytes, not shown]" in found.value
    assert "file:///p.png" in found.value or "[image, " in found.value


@pytest.mark.parametrize(
    "data", ["not base64!", "", "AAAA", base64.b64encode(b"<svg/>").decode(), PNG[:7], "\u202e"]
)
def test_what_is_no_image_is_named(data: str) -> None:
    found = tool_output(_result({**IMAGE, "data": data}))
    assert isinstance(found, str)
    assert found.startswith("[image, image/png, ")
    assert found.endswith("not shown]")


def test_an_image_with_structured_content() -> None:
    found = tool_output(_result(IMAGE, structuredContent={"a": 2**70}))
    assert found.value["structuredContent"] == {"a": 2**70}
    assert len(found.images) == 1


def test_a_result_holds_a_bounded_number_of_images() -> None:
    assert len(tool_output(_result(*[IMAGE] * 100)).images) == 20


def _serve(file: Path, result: dict[str, Any]) -> dict[str, Any]:
    file.write_text(json.dumps({"tools/list": {"tools": [TOOL]}, "tools/call": result}))
    return {
        "supervisor.classify": False,
        "mcp.s.command": sys.executable,
        "mcp.s.args": [SCRIPT, str(file)],
    }


@pytest.mark.parametrize("takes", [True, False])
def test_an_image_reaches_a_model_that_takes_images(
    scripted: Scripted, tmp_path: Path, takes: bool
) -> None:
    content = [{"type": "text", "text": "A cat."}, IMAGE, AUDIO]
    flags = _serve(tmp_path / "f.json", {"content": content})
    flags["providers.anthropic.images"] = takes
    script = (message("I look.", tool_use("s__look", {}, "t1")), message("A cat."))
    with scripted(*script, flags=flags) as (runtime, wire):
        assert runtime.agent("a", instructions="Look.", mcp=["s"]).run("look").response == "A cat."
        (block,) = wire.calls[-1].body["messages"][-1]["content"]
        (call,) = runtime.ledger.query(event_type="TOOL_CALL")
        recorded = call.metadata["result"]
    assert "[image, image/png, 68 bytes]" in recorded
    assert "[audio, audio/wav, 3 bytes, not shown]" in recorded
    if takes:
        text, image = block["content"]
        assert text["text"] == recorded
        assert image["source"]["data"] == PNG
    else:
        assert PNG not in json.dumps(block)
        assert "this model accepts none" in json.dumps(block)


@pytest.mark.parametrize("takes", [True, False])
def test_an_image_reaches_a_model_of_chat_completions(tmp_path: Path, takes: bool) -> None:
    content = [{"type": "text", "text": "A cat."}, IMAGE]
    flags = _serve(tmp_path / "f.json", {"content": content})
    flags.pop("supervisor.classify")
    look = {"id": "t1", "type": "function", "function": {"name": "s__look", "arguments": "{}"}}
    with serve(completion("I look.", [look]), completion("A cat.")) as wire:
        flags |= {
            "providers.odd.kind": "openai", "providers.odd.base_url": f"{wire.url}/v1",
            "providers.odd.default_model": "m", "providers.odd.images": takes,
            "gateway.max_retries": 0,
        }  # fmt: skip
        with Runtime.open(new_root(tmp_path / "root"), flags=flags, model="odd/m") as runtime:
            agent = runtime.agent("a", instructions="Look.", mcp=["s"])
            assert agent.run("look").response == "A cat."
        sent = json.dumps(wire.calls[-1].body)
    assert (f"data:image/png;base64,{PNG}" in sent) is takes
    assert ("this model accepts none" in sent) is not takes


GREAT = 2**64 + 1, -(2**70), 10**400


@pytest.mark.parametrize("number", GREAT)
def test_integers_beyond_64_bits_travel_exactly_to_model_and_record(
    scripted: Scripted, tmp_path: Path, number: int
) -> None:
    flags = _serve(tmp_path / "f.json", {"content": [], "structuredContent": {"id": number}})
    script = (message("I look.", tool_use("s__look", {"id": 7}, "t1")), message("Done."))
    with scripted(*script, flags=flags) as (runtime, wire):
        runtime.agent("a", instructions="Look.", mcp=["s"]).run("look")
        assert str(number) in json.dumps(wire.calls[-1].body)
        (call,) = runtime.ledger.query(event_type="TOOL_CALL")
        assert call.metadata["result"] == {"id": number}


def test_a_number_that_cannot_be_read_ends_its_call_alone(tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    raw = '{"content": [], "structuredContent": {"id": ' + "9" * 5000 + "}}"
    _serve(file, {"RAW": raw})
    settings = McpServerSettings(command=sys.executable, args=[SCRIPT, str(file)])
    with McpServer("s", settings) as server:
        used = ToolDispatcher(server.tools(), BOUNDS).execute("s__look", {})
        assert used.status == "unknown"  # the tool may have taken effect
        assert "too many digits" in used.error
        _serve(file, {"content": [{"type": "text", "text": "well"}]})
        again = ToolDispatcher(server.tools(), BOUNDS).execute("s__look", {})
        assert (again.status, again.output) == ("ok", "well")


def test_half_an_emoji_in_an_answer_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    _serve(file, {"RAW": r'{"content": [{"type": "text", "text": "a\ud83d"}]}'})
    settings = McpServerSettings(command=sys.executable, args=[SCRIPT, str(file)])
    with McpServer("s", settings) as server:
        used = ToolDispatcher(server.tools(), BOUNDS).execute("s__look", {})
        assert (used.status, used.output) == ("ok", "a\ufffd")
