"""With a model that may not speak for the system, all that is said comes from code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agents.phrases import FILES, measure
from tests.agents.test_local_model import WHY_NOT
from tests.support.agents import Scripted
from tests.support.wire import message

LIE = "There are 12 packages, all gates pass, and it cost 4.20 dollars."
FLAGS = {"providers.anthropic.prose": False, "supervisor.classify": False}


def _first_allowed(body: dict[str, Any]) -> dict[str, Any]:
    """A model that lies in prose, and takes the first thing it may choose."""
    schema = body.get("output_config", {}).get("format", {}).get("schema", {})
    return message(json.dumps(schema["enum"][0]) if "enum" in schema else LIE)


def test_nothing_that_the_model_says_is_shown(scripted: Scripted) -> None:
    with scripted(_first_allowed, flags=FLAGS) as (runtime, _):
        with runtime.session() as session:
            said = {
                phrase: session.turn(phrase)
                for phrase in (
                    "hello",
                    "list all installed packages",
                    "query the ledger for TURN_RECORDED events",
                    "read the file nowhere.txt",
                    "why did you choose this model?",
                    "what did that cost?",
                    "who won the world cup in 1998?",
                    "restart the packages",
                    "Which files exist under HO1?",
                    "list the files of yesterday",
                    "is PKG-NOWHERE-404 installed?",
                    "what can you do?",
                )
            }
        calls = [e.metadata for e in runtime.ledger.read_by_event_type("TOOL_CALL")]
        verified = runtime.ledger.verify().verified
    assert all(LIE not in result.response for result in said.values())
    assert said["hello"].response.startswith("Hello!")
    packages = said["list all installed packages"]
    assert "PKG-KERNEL-001" in packages.response
    assert packages.response.startswith("list_packages (list all installed packages):\n")
    assert packages.quality_gate_passed
    assert said["restart the packages"].response.startswith("I cannot answer that")
    assert "HO1/contracts/PRC-EXECUTE-001.json" in said["Which files exist under HO1?"].response
    unsure = said["list the files of yesterday"].response
    assert unsure.startswith("I cannot answer that: no tool here mentions 'yesterday'. I can:")
    assert "ask 'list the files'" in unsure
    absent = said["is PKG-NOWHERE-404 installed?"].response
    assert absent.startswith("I cannot answer that from list_packages")
    assert absent.endswith("the result does not mention PKG-NOWHERE-404.")
    assert [call["tool_id"] for call in calls] == [
        "list_packages", "query_ledger", "read_file", "explain_route", "usage", "list_files",
        "list_packages",
    ]  # fmt: skip
    assert calls[1]["arguments"] == {"event_type": "TURN_RECORDED"}
    assert "read_file failed" in said["read the file nowhere.txt"].response
    assert "This session:" in said["what did that cost?"].response
    assert said["who won the world cup in 1998?"].response.startswith("I cannot answer that")
    assert verified


def test_what_it_can_do_is_said_by_code_with_any_model(scripted: Scripted) -> None:
    with scripted(message(LIE), flags={"supervisor.classify": False}) as (runtime, server):
        with runtime.session() as session:
            for phrase in ("what can you do?", "Which tools do you have?", "help"):
                said = session.turn(phrase)
                assert said.response.startswith("I answer from ")
                assert "- list all installed packages: ask" in said.response
                assert "(verify_ledger)" in said.response
                assert said.quality_gate_passed
        assert server.calls == []
        guide = runtime.agent("guide").session()
        assert guide.turn("what can you do?").response == LIE  # a program's agent: its model's


def test_what_was_just_said_is_a_tools_result(scripted: Scripted) -> None:
    odd = "My  order\nis \u2116 7, \u201cquoted\u201d."
    with scripted(_first_allowed, flags=FLAGS) as (runtime, server):
        with runtime.session() as session:
            first = session.turn("what did I just say?")
            assert first.response.endswith("\nNothing was said before that in this session.")
            said = session.turn(odd)
            assert session.turn("What did I just say?").response.endswith(f"\nYou said: {odd}")
            before = session.turn("what did you say before that?")
            assert before.response.endswith(f"\nI said: {said.response}")
            assert before.tool_results[0]["tool_id"] == "recall_turn"
        assert all("What did I just say?" not in str(call.body) for call in server.calls)
        gates = runtime.ledger.read_by_event_type("WO_QUALITY_GATE")
        guide = runtime.agent("guide").session()
        assert guide.turn("Show my last message").response == LIE  # a program's agent: its model's
    assert [gate.metadata["verdict"] for gate in gates] == ["accept"] * 4


def test_what_must_not_be_said_is_not_recalled(scripted: Scripted) -> None:
    acceptance = {"must_not_contain": ["4111 1111"]}
    with scripted(message("4111 1111"), flags=FLAGS) as (runtime, _):
        session = runtime.agent("guide", acceptance=acceptance, max_retries=0).session()
        session.turn("My card is 4111 1111 1111 1111.")
        shown = session.turn("Show my last message")
    assert (shown.quality_gate_passed, shown.notice) == (False, True)
    assert "4111" not in shown.response


@pytest.mark.local_model
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is here")
def test_a_few_phrases_of_each_kind_with_the_small_model(tmp_path: Path) -> None:
    cases = [case for file in FILES.values() for case in json.loads(file.read_text())[::14]]
    found = [(outcome, case["phrase"]) for case, outcome, _ in measure(cases, tmp_path / "root")]
    assert [phrase for outcome, phrase in found if outcome == "invented"] == []
    assert sum(outcome == "right" for outcome, _ in found) > len(found) / 2
