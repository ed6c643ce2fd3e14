"""Answers and schemas of MCP servers, as a model and a validator are given them."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.types import CallToolResult, TextContent

from remit.agents.tools import mcp_schema
from remit.agents.tools.mcp import McpServer
from remit.agents.tools.mcp.results import block_text, tool_output
from remit.kernel.schemas import first_problem, schema_problem
from remit.kernel.settings import McpServerSettings


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
    ],
)  # fmt: skip
def test_texts_and_structured_content_both_reach_the_model(
    texts: list[str], data: dict[str, Any] | None, shown: Any
) -> None:
    assert tool_output(_answer(*texts, data=data)) == shown


def test_questions_that_nobody_answered_are_named() -> None:
    assert isinstance(_answer("a").content[0], TextContent)
    assert "Which city?" in tool_output(_answer("a"), ["Which city?"])
    shown = tool_output(_answer("b", data={"a": 1}), ["Which city?"])
    assert shown["text"] == "b"
    assert shown["unanswered_questions"] == ["Which city?"]


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


def test_a_schema_without_old_keywords_keeps_its_form() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
              "properties": {"id": {"type": "string", "minLength": 1}}, "required": ["id"],
              "dependencies": {"a": ["b"]}}  # fmt: skip
    assert mcp_schema(schema) == schema


@pytest.mark.parametrize(
    ("name", "schema", "why"),
    [
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
    ],
)  # fmt: skip
def test_a_tool_that_cannot_be_used_is_named_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, schema: Any, why: str
) -> None:
    good = {"name": "good", "inputSchema": {"type": "object"}}
    bad = {"name": name, "inputSchema": {"type": "object", **schema}}
    file = tmp_path / "f.json"
    file.write_text(json.dumps({"tools/list": {"tools": [bad, good]}}))
    script = str(Path(__file__).parent / "scripted_server.py")
    settings = McpServerSettings(command=sys.executable, args=[script, str(file)])
    with caplog.at_level(logging.WARNING), McpServer("s", settings) as server:
        assert [tool.tool_id for tool in server.tools()] == ["s__good"]
    (said,) = caplog.messages
    assert said.startswith(f"ignored the tool {name[:200]}")
    assert why in said
    assert len(said) < 1_000
