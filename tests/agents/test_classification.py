"""What a classified message comes to: its label is used, by rules of a package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.agents.supervisor import ClassificationRules
from remit.agents.tools import Tool
from remit.kernel.installation import InstalledFiles
from remit.testing import ScriptedModel
from tests.support.agents import TEXT
from tests.support.roots import new_root

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
def test_its_result_is_used(
    tmp_path: Path, label: dict[str, str], tools: bool, asks_back: bool
) -> None:
    (first, second), result = _asked(tmp_path / "r", label, "What do you mean?", classify=True)
    assert not first.tools
    assert bool(second.tools) is tools
    assert ("ask the user one short question" in str(second.messages)) is asks_back
    assert (result.classification, result.quality_gate_passed) == (label, True)


def test_off_no_model_call_precedes_the_turn(tmp_path: Path) -> None:
    (only,), result = _asked(tmp_path / "r", "Hello.")
    assert only.tools
    assert result.classification is None


def test_a_demanded_tool_is_kept(tmp_path: Path) -> None:
    requests, _ = _asked(
        tmp_path / "r", _class("greeting"), "Hello.", classify=True, max_retries=0,
        acceptance={"tools_used": ["look"]},
    )  # fmt: skip
    assert requests[1].tools


def test_a_classification_that_fails_changes_nothing(tmp_path: Path) -> None:
    requests, result = _asked(tmp_path / "r", "no label", "Hello.", classify=True)
    assert requests[-1].tools
    assert (result.classification, result.response) == (None, "Hello.")


def test_the_rules_are_a_file_of_the_supervisors_package(tmp_path: Path) -> None:
    root = new_root(tmp_path / "r")
    path = "HO2/documents/classification.json"
    files = InstalledFiles(root)
    assert files.owner(path) == "PKG-HO2-SUPERVISOR-001"
    rules = ClassificationRules.installed(files)
    assert [dict(rule.when) for rule in rules.rules] == [
        rule["when"] for rule in json.loads((root / path).read_text())["rules"]
    ]
