"""Narrowing a choice: generic, deterministic, and it never adds what was not there."""

from __future__ import annotations

from typing import Any

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from remit.agents.worker.candidates import named, narrow, narrowed_schema, only_value

EXAMPLES = {
    "none": ["hello", "thank you"],
    "weather": ["what is the weather in Rome?", "will it rain?"],
    "timer": ["set a timer", "wake me in 5 minutes"],
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "kind": {"enum": ["TOOL_CALL", "EXCHANGE"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 100},
        "note": {"type": "string"},
    },
    "required": ["path"],
}


def test_the_likeliest_class_comes_first() -> None:
    rain = narrow("will it rain in Paris?", EXAMPLES, {})
    assert (rain.classes[0], rain.alike, rain.clear) == ("weather", True, True)
    assert narrow("hello there", EXAMPLES, {}).classes[0] == "none"
    assert not narrow("who wrote Hamlet?", EXAMPLES, {}).alike


def test_a_name_typed_as_it_stands_is_for_a_tool_that_takes_it() -> None:
    schemas: dict[str, Any] = {
        "file": {"properties": {"path": {"type": "string"}}},
        "log": {"properties": {"event": {"enum": ["TURN_RECORDED", "EXCHANGE"]}}},
        "talk": {"properties": {"session": {"type": "string", "pattern": "^SES-[0-9A-Z]+$"}}},
        "all": {"properties": {}},
    }
    assert named(schemas, "query it for TURN_RECORDED events") == ["log"]
    assert named(schemas, "open SES-4B8QW2ZZ, please") == ["talk"]
    assert named(schemas, "read src/main.py") == ["file"]
    assert named(schemas, "list all") == [*schemas]
    event = narrowed_schema(schemas["log"], "query it for TURN_RECORDED events, not of an exchange")
    assert only_value(event) == {"event": "TURN_RECORDED"}


@given(st.text())
def test_two_classes_and_only_their_examples(message: str) -> None:
    narrowed = narrow(message, EXAMPLES, {})
    assert len(set(narrowed.classes)) == 2
    assert set(narrowed.classes) <= set(EXAMPLES)
    assert all(phrase in EXAMPLES[name] for phrase, name in narrowed.examples)
    assert narrow(message, EXAMPLES, {}) == narrowed


def test_arguments_come_from_the_message() -> None:
    schema = narrowed_schema(SCHEMA, "show me 3 tool calls from 'notes.txt', not 700.")
    assert schema["properties"]["count"] == {"enum": [3]}
    assert schema["properties"]["kind"] == {"enum": ["TOOL_CALL"]}
    assert "notes.txt" in schema["properties"]["path"]["enum"]
    assert "note" not in schema["properties"]


def test_a_required_value_stays_when_nothing_is_said() -> None:
    assert narrowed_schema(SCHEMA, "?!")["properties"] == {"path": {"enum": ["?!"]}}
    needs_number = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert narrowed_schema(needs_number, "some")["properties"] == {"n": {"type": "integer"}}


@given(st.text())
def test_what_it_leaves_is_a_valid_schema(message: str) -> None:
    jsonschema.Draft202012Validator.check_schema(narrowed_schema(SCHEMA, message))
