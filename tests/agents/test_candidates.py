"""Narrowing a choice: generic, deterministic, and it never adds what was not there."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.agents.worker.candidates import (
    asks_to_act,
    named,
    narrow,
    narrowed_schema,
    only_value,
)

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


def test_a_misspelt_word_is_known_and_words_of_grammar_say_little() -> None:
    spelt = narrow("wether in Rome?", EXAMPLES, {})
    assert (spelt.classes[0], spelt.clear) == ("weather", True)
    assert not narrow("what is the capital in 12?", EXAMPLES, {}).alike


def test_what_a_class_hardly_speaks_of_is_not_clearly_its_own() -> None:
    assert not narrow("timer wombat quokka lemur gibbon otter stoat", EXAMPLES, {}).clear


def test_the_own_example_of_a_class_is_clearly_its_own() -> None:
    examples = {**EXAMPLES, "clock": ["set a clock", "set a watch", "set a timer or clock"]}
    own = narrow("set a timer", examples, {})
    assert (own.classes[0], own.clear) == ("timer", True)


@pytest.mark.parametrize(
    ("message", "acts"),
    [
        ("delete the file", True),
        ("Could you please restart it?", True),
        ("check the gates and delete what fails", True),
        ("send the letter", False),  # a tool speaks of it
        ("what was deleted?", False),
        ("is there a change?", False),
    ],
)
def test_an_order_that_no_tool_speaks_of_is_known(message: str, acts: bool) -> None:
    assert asks_to_act(message, ["send_mail", "Send a letter.", "check all"]) is acts


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
