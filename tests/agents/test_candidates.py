"""Narrowing a choice: generic, deterministic, and it never adds what was not there."""

from __future__ import annotations

from typing import Any

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from remit.agents.worker.candidates import narrow, narrowed_schema

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


def test_the_likeliest_class_comes_first_and_none_contests_a_clear_one() -> None:
    assert narrow("will it rain in Paris?", EXAMPLES, {}, "none")[0] == ["weather", "none"]
    assert narrow("hello there", EXAMPLES, {}, "none")[0][0] == "none"


@given(st.text())
def test_two_classes_and_only_their_examples(message: str) -> None:
    candidates, shown = narrow(message, EXAMPLES, {}, "none")
    assert len(set(candidates)) == 2
    assert set(candidates) <= set(EXAMPLES)
    assert all(phrase in EXAMPLES[name] for phrase, name in shown)
    assert narrow(message, EXAMPLES, {}, "none") == (candidates, shown)


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
