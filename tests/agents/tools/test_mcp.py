"""Answers and schemas of MCP servers, as a model and a validator are given them."""

from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.types import CallToolResult, TextContent

from remit.agents.tools import ToolDispatcher, ToolResult, mcp_schema
from remit.agents.tools.mcp import McpServer
from remit.agents.tools.mcp.conversion import block_text, tool_output
from remit.agents.tools.result_conversion import Illustrated
from remit.agents.workorders import ToolProgress
from remit.kernel.schemas import first_problem, schema_problem
from remit.kernel.settings import McpServerSettings, default_settings
from tests.support.agents import Scripted
from tests.support.wire import message, tool_use


def _answer(*texts: str, data: dict[str, Any] | None = None) -> CallToolResult:
    content = [{"type": "text", "text": text} for text in texts]
    return CallToolResult.model_validate({"content": content, "structuredContent": data})


@pytest.mark.parametrize(
    ("texts", "data", "shown"),
    [
        (["12 degrees"], None, "12 degrees"),
        (['{"t": 12}'], {"t": 12}, {"t": 12}),
        ([], {"t": 12}, {"t": 12}),
        ([""], {"t": 12}, {"t": 12}),
        (["3"], {"result": 3}, {"result": 3}),
        (["three"], {"result": "three"}, {"result": "three"}),
        (["1", '{"a": 2}'], {"result": [1, {"a": 2}]}, {"result": [1, {"a": 2}]}),
        (["12 degrees; a storm is near"], {"t": 12},
         {"text": "12 degrees; a storm is near", "structuredContent": {"t": 12}}),
        (['{"t": 12}', "a storm is near"], {"t": 12},
         {"text": '{"t": 12}\na storm is near', "structuredContent": {"t": 12}}),
        (["3"], 3, 3),
        ([], "three", "three"),
        (["three"], "three", "three"),
        (["1", '{"a": 2}'], [1, {"a": 2}], [1, {"a": 2}]),
        (["none"], False, {"text": "none", "structuredContent": False}),
    ],
)  # fmt: skip
def test_texts_and_structured_content_both_reach_the_model(
    texts: list[str], data: Any, shown: Any
) -> None:
    assert tool_output(_answer(*texts, data=data)) == shown


def test_questions_that_nobody_answered_are_named() -> None:
    assert isinstance(_answer("a").content[0], TextContent)
    assert "Which city?" in tool_output(_answer("a"), ["Which city?"])
    shown = tool_output(_answer("b", data={"a": 1}), ["Which city?"])
    assert shown["text"] == "b"
    assert shown["unanswered_questions"] == ["Which city?"]
    shown = tool_output(_answer("3", data=3), ["Which city?"])
    assert shown == {"structuredContent": 3, "unanswered_questions": ["Which city?"]}


def test_the_description_of_a_linked_resource_reaches_the_model() -> None:
    link = {
        "type": "resource_link",
        "name": "plan",
        "uri": "file:///plan.pdf",
        "description": "The plan of the second floor",
        "mimeType": "application/pdf",
    }
    (block,) = CallToolResult.model_validate({"content": [link]}).content
    text = block_text(block)
    assert "The plan of the second floor" in text
    assert "file:///plan.pdf" in text


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"properties": {"n": {"minimum": 0, "exclusiveMinimum": True}}}, {"n": 1}, {"n": 0}),
        ({"properties": {"n": {"minimum": 0, "exclusiveMinimum": False}}}, {"n": 0}, {"n": -1}),
        ({"properties": {"n": {"maximum": 9, "exclusiveMaximum": True}}}, {"n": 8}, {"n": 9}),
        ({"properties": {"p": {"items": [{"type": "integer"}], "additionalItems": False}}},
         {"p": [1]}, {"p": [1, 2]}),
        ({"properties": {"p": {"items": [{"type": "integer"}]}}}, {"p": [1, "x"]}, {"p": ["x"]}),
        ({"properties": {"p": {"type": "string", "required": True}}}, {"p": "x"}, {"p": 1}),
    ],
)  # fmt: skip
def test_schemas_of_older_drafts_are_used(
    schema: dict[str, Any], good: dict[str, Any], bad: dict[str, Any]
) -> None:
    old = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", **schema}
    current = mcp_schema(old)
    assert schema_problem(old)
    assert not schema_problem(current)
    assert not first_problem(current, good)
    assert first_problem(current, bad)


UNUSABLE: list[tuple[str, dict[str, Any], str]] = [
    ("loops", {"$ref": "#"}, "a '$ref' leads back to itself"),
    ("circles", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"},
                                                "b": {"$ref": "#/$defs/a"}}},
     "a '$ref' leads back to itself"),
    ("far", {"properties": {"a": {"$ref": "https://example.com/s.json"}}},
     "the reference 'https://example.com/s.json' leads to another document"),
    ("near", {"properties": {"a": {"$ref": "#/$defs/none"}}},
     "the reference '#/$defs/none' leads to nothing"),
    ("typed", {"properties": {"a": {"type": "strange"}}},
     "not a JSON Schema: properties/a/type: 'strange' is not valid"),
    ("n" * 100_000, {"$ref": "#"}, "a '$ref' leads back to itself"),
]  # fmt: skip


def test_tools_that_cannot_be_used_are_named_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tools = [
        {"name": name, "inputSchema": {"type": "object", **schema}} for name, schema, _ in UNUSABLE
    ]
    file = tmp_path / "f.json"
    file.write_text(json.dumps({"tools/list": {"tools": [*tools, TOOL]}}))
    settings = McpServerSettings(command=sys.executable, args=[SCRIPT, str(file)])
    with caplog.at_level(logging.WARNING), McpServer("s", settings) as server:
        assert [tool.tool_id for tool in server.tools()] == ["s__look"]
    for (name, _, why), said in zip(UNUSABLE, caplog.messages, strict=True):
        assert said.startswith(f"ignored the tool {name[:200]}")
        assert why in said
        assert len(said) < 1_000


# Images, audio and great integers of MCP servers, from the server to the model and the record.


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
def test_an_image_reaches_its_model(scripted: Scripted, tmp_path: Path, takes: bool) -> None:
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


@contextmanager
def _scripted_server(file: Path, result: dict[str, Any]) -> Iterator[McpServer]:
    _serve(file, result)
    settings = McpServerSettings(command=sys.executable, args=[SCRIPT, str(file)])
    with McpServer("s", settings) as server:
        yield server


def _look(server: McpServer) -> tuple[str, Any, str]:
    used = ToolDispatcher(server.tools(), BOUNDS).execute("s__look", {})
    return used.status, used.output, used.error


def test_a_servers_structured_content_need_not_be_an_object(tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    fresh = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    current = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    answer = {"content": [], "structuredContent": [1, "two"], "resultType": "complete"}
    methods = {"server/discover": current, "tools/list": {"tools": [TOOL]}}
    script = {name: {**result, **fresh} for name, result in methods.items()}
    with _scripted_server(file, answer) as server:
        file.write_text(json.dumps({**script, "tools/call": answer}))
        assert _look(server)[:2] == ("ok", [1, "two"])


ODD_RESULTS = {
    "no content": ({"structuredContent": {"n": 1}}, {"n": 1}),
    "null content": ({"content": None, "structuredContent": {"n": 1}}, {"n": 1}),
    "content is a text": ({"content": "warm"}, "warm"),
    "content is one block": ({"content": {"type": "text", "text": "warm"}}, "warm"),
    "a block of another kind": (
        {"content": [{"type": "video", "data": "AAAA"}, {"type": "text", "text": "warm"}]},
        '{"type": "video", "data": "AAAA"}\nwarm',
    ),
    "structured content of an old protocol is no object": (
        {"content": [], "structuredContent": [1, 2]}, "[1, 2]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD_RESULTS)
def test_a_tool_that_ran_did_not_fail_for_the_form_of_its_result(tmp_path: Path, case: str) -> None:
    sent, shown = ODD_RESULTS[case]
    with _scripted_server(tmp_path / "f.json", sent) as server:
        assert _look(server)[:2] == ("ok", shown)


def test_an_output_schema_that_cannot_be_used_hides_no_result(tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    answer = {"content": [], "structuredContent": {"n": 1}}
    dangling = {"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}}
    with _scripted_server(file, answer) as server:
        listed = {"tools": [{**TOOL, "outputSchema": dangling}]}
        file.write_text(json.dumps({"tools/list": listed, "tools/call": answer}))
        status, output, _ = _look(server)
    assert (status, output["structuredContent"]) == ("ok", {"n": 1})
    assert "/$defs/N" in output["text"]


def test_a_malformed_tool_hides_no_other(tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    odd = [
        {"name": "free", "inputSchema": {}},
        {"name": "nothing", "inputSchema": None},
        {"name": "nullable", "inputSchema": {"type": ["object", "null"]}},
        {**TOOL, "name": "noted", "annotations": "none", "outputSchema": {"type": "array"}},
        {"name": "text", "inputSchema": {"type": "string"}},
        {"description": "Has no name.", "inputSchema": {"type": "object"}},
        7,
    ]
    with _scripted_server(file, {}) as server:
        file.write_text(json.dumps({"tools/list": {"tools": [*odd, TOOL]}}))
        found = {tool.tool_id: tool.input_schema for tool in server.tools()}
    kept = ["s__free", "s__nothing", "s__nullable", "s__noted", "s__look"]
    assert found == {tool_id: {"type": "object"} for tool_id in kept}


LISTS = {
    "the same cursor again": [([TOOL], "0")],
    "the same page under other cursors": [([TOOL], "1"), ([TOOL], "0")],
    "an empty cursor for none": [([TOOL], "")],
    "a tool on two pages": [([TOOL, TOOL], "1"), ([TOOL], None)],
}


@pytest.mark.parametrize("case", LISTS)
def test_a_list_that_repeats_itself_ends_with_each_tool_once(tmp_path: Path, case: str) -> None:
    file = tmp_path / "f.json"
    pages = [
        {"tools": tools, **({} if cursor is None else {"nextCursor": cursor})}
        for tools, cursor in LISTS[case]
    ]
    with _scripted_server(file, {}) as server:
        file.write_text(json.dumps({"tools/list": pages}))
        assert [tool.tool_id for tool in server.tools()] == ["s__look"]


def test_an_empty_cursor_leads_to_the_next_page_unless_the_server_refuses_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "f.json"
    more = {**TOOL, "name": "more"}
    by_cursor = {"": {"tools": [more]}, "0": {"tools": [TOOL], "nextCursor": ""}}
    with _scripted_server(file, {}) as server:
        file.write_text(json.dumps({"tools/list": {"CURSORS": by_cursor}}))
        assert [tool.tool_id for tool in server.tools()] == ["s__look", "s__more"]
        by_cursor[""] = {"ERROR": {"code": -32602, "message": "Invalid cursor."}}
        file.write_text(json.dumps({"tools/list": {"CURSORS": by_cursor}}))
        assert [tool.tool_id for tool in server.tools()] == ["s__look"]


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
    raw = '{"content": [], "structuredContent": {"id": ' + "9" * 5000 + "}}"
    with _scripted_server(tmp_path / "f.json", {"RAW": raw}) as server:
        status, _, error = _look(server)
        assert status == "unknown"  # the tool may have taken effect
        assert "too many digits" in error
        _serve(tmp_path / "f.json", {"RAW": r'{"content": [{"type": "text", "text": "a\ud83d"}]}'})
        assert _look(server)[:2] == ("ok", "a\ufffd")  # half an emoji is replaced


# What MCP servers have beside tools: progress, and questions to a person.


CONTEXT_SCRIPT = str(Path(__file__).parent / "context_server.py")
SETTINGS = McpServerSettings(command=sys.executable, args=[CONTEXT_SCRIPT])


@pytest.fixture(scope="module")
def server() -> Iterator[McpServer]:
    with McpServer("c", SETTINGS) as server:
        yield server


def _use(server: McpServer, tool: str, /, **given: Any) -> ToolResult:
    return ToolDispatcher(server.tools(), BOUNDS).execute(f"c__{tool}", given)


def test_a_question_to_the_person_is_declined_and_the_model_hears_of_it(server: McpServer) -> None:
    painted = _use(server, "paint")
    assert painted.status == "ok"
    assert "decline" in str(painted.output)
    assert "Which colour?" in str(painted.output)
    insisted = _use(server, "insist")
    assert insisted.status == "error"
    assert "Which colour?" in insisted.error
    assert "Which colour?" not in str(_use(server, "count").output)


def test_progress_is_in_the_stream_of_a_turn(scripted: Scripted) -> None:
    flags = {
        "supervisor.classify": False,
        "mcp.c.command": sys.executable,
        "mcp.c.args": [CONTEXT_SCRIPT],
    }
    script = (message("I will.", tool_use("c__count", {"steps": 2}, "t1")), message("Done."))
    heard: list[Any] = []
    with scripted(*script, flags=flags) as (runtime, _):
        agent = runtime.agent("counter", instructions="Count.", mcp=["c"])
        with agent.session() as session:
            result = session.turn("count", on_event=heard.append)
    assert result.response == "Done."
    steps = [event for event in heard if isinstance(event, ToolProgress)]
    assert steps  # a fast server's later ones may be left out
    assert (steps[0].tool_id, steps[0].done, steps[0].total) == ("c__count", 1.0, 2.0)
    assert steps[0].text == "step 1"
