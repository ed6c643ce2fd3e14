"""Narrowing a choice: generic, deterministic, and it never adds what was not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.agents.supervisor import ClassificationRules
from remit.agents.tools import Tool
from remit.agents.worker.english_words import narrow_schema
from remit.agents.worker.model_calls import with_distinct_ids
from remit.agents.worker.tool_candidates import choose
from remit.kernel.installed_files import InstalledFiles
from remit.testing import ScriptedModel
from tests.support.agents import TEXT
from tests.support.roots import new_root

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
CITY = {"properties": {"city": {"type": "string"}}, "required": ["city"]}


def _tool(
    tool_id: str, phrases: list[str], description: str, schema: dict[str, Any] = NOTHING
) -> Tool:
    examples = tuple((phrase, {}) for phrase in phrases)
    return Tool(tool_id, description, schema, print, examples)


TOOLS = {
    tool.tool_id: tool
    for tool in (
        _tool("weather", ["what is the weather in Rome?", "will it rain?"], "", CITY),
        _tool("timer", ["set a timer", "wake me in 5 minutes"], ""),
        _tool("sales", ["how many sales were there?", "list all sales"], "List sales."),
        _tool("refunds", ["list all refunds", "which refunds are open?"], "List refunds."),
    )
}
TALK = ["hello", "thank you"]
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


@pytest.mark.parametrize(
    ("message", "chosen"),
    [
        ("will it rain?", "weather"),
        ("what is the weather in Paris?", "weather"),  # an argument takes it
        ("wether in Rome?", "weather"),
        ("sales", "sales"),
        ("Could you please give me an overview of all the sales?", "sales"),
        ("shw the saless", "sales"),
        ("set a timer", "timer"),
        ("hello there", ""),
        ("who wrote Hamlet?", ""),
    ],
)
def test_a_tool_answers_what_it_accounts_for(message: str, chosen: str) -> None:
    assert choose(message, TOOLS, TALK).chosen == chosen


@pytest.mark.parametrize(
    "message",
    [
        "list all sales of yesterday",
        "who made the sales?",
        "why were there so many sales?",
        "which sales were not open?",
        "which refunds are not open?",
        "are you a sales person?",
        "should I list all sales?",
        "list all sales and refunds",
        "zeige alle sales",
        "how many sales will there be?",
        "list all sales for Bob",
        "17 sales",
    ],
)
def test_what_a_tool_does_not_account_for_it_does_not_answer(message: str) -> None:
    choice = choose(message, TOOLS, TALK)
    assert choice.chosen == ""
    assert not choice.between


@pytest.mark.parametrize(
    ("message", "near"),
    [
        ("will it rain and how many sales were there?", ("weather", "sales")),
        ("list all refunds, then list all sales", ("refunds", "sales")),
        ("list all sales and tell me who won the cup", ("sales",)),
    ],
)
def test_two_questions_are_not_answered_as_one(message: str, near: tuple[str, ...]) -> None:
    choice = choose(message, TOOLS, TALK)
    assert (choice.chosen, choice.near) == ("", near)


def test_arguments_come_from_the_message() -> None:
    schema = narrow_schema(SCHEMA, "show me 3 tool calls from 'notes.txt', not 700.")
    assert schema["properties"]["count"] == {"enum": [3]}
    assert schema["properties"]["kind"] == {"enum": ["TOOL_CALL"]}
    assert "notes.txt" in schema["properties"]["path"]["enum"]
    assert "note" not in schema["properties"]


# -- What a classified message comes to: its label is used, by rules of a package ----------------


LOOK = Tool("look", "Look.", TEXT, lambda text: text)


def _class(speech_act: str, ambiguity: str = "low") -> dict[str, str]:
    return {"speech_act": speech_act, "ambiguity": ambiguity}


def _asked(root: Path, *script: Any, **options: Any) -> tuple[list[Any], Any]:
    """The requests that one turn makes, and the turn."""
    model = ScriptedModel(*script)
    with Runtime.open(new_root(root), providers={"s": model}) as runtime:
        agent = runtime.agent("guide", tools=[LOOK], **options)
        result = agent.run("Well, hello there")
    return model.requests, result


@pytest.mark.parametrize(
    ("label", "tools", "asks_back"),
    [
        (_class("greeting"), False, False),
        (_class("reentry_greeting"), False, False),
        (_class("farewell"), False, False),
        (_class("question"), True, False),
        (_class("command", "medium"), True, False),
        (_class("command", "high"), False, True),
        (_class("greeting", "high"), False, True),
    ],
)
def test_it_is_used(tmp_path: Path, label: dict[str, str], tools: bool, asks_back: bool) -> None:
    (first, second), result = _asked(tmp_path / "r", label, "What do you mean?", classify=True)
    assert not first.tools
    assert bool(second.tools) is tools
    assert ("ask the user one short question" in str(second.messages)) is asks_back
    assert (result.classification, result.quality_gate_passed) == (label, True)


def test_off_no_model_call_precedes_the_turn(tmp_path: Path) -> None:
    (only,), result = _asked(tmp_path / "r", "Hello.")
    assert only.tools
    assert result.classification is None


def test_the_rules_are_a_file_of_the_supervisors_package(tmp_path: Path) -> None:
    root = new_root(tmp_path / "r")
    path = "HO2/documents/classification.json"
    files = InstalledFiles(root)
    assert files.owner(path) == "PKG-HO2-SUPERVISOR-001"
    rules = ClassificationRules.installed(files)
    assert [dict(rule.when) for rule in rules.rules] == [
        rule["when"] for rule in json.loads((root / path).read_text())["rules"]
    ]


def test_a_long_id_of_a_call_is_replaced() -> None:
    blocks = [{"type": "tool_use", "id": "i" * 100_000, "name": "a", "input": {}}] * 2
    assert [block["id"] for block in with_distinct_ids(blocks, [])] == ["call", "call_2"]
    kept = "signature" * 400
    assert with_distinct_ids([{**blocks[0], "id": kept}], [])[0]["id"] == kept
