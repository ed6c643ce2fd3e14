"""What a replay compares of a request: all that the model gets; labels may differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.server.running import Served, prompt
from tests.server.test_replay import PATHS, TOML, replaying

__all__ = ["TOML"]

BEFORE = "strict"


def posted(served: Served, session: str, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
    found = served.ask(
        "POST", path, json.dumps(body).encode(), headers={"x-remit-session": session}
    )
    return found[0], found[1]


LABELLED: Any = [
    (PATHS["openai"], prompt("hi", user="a", metadata={"run": "1"}), ("user", "metadata")),
    (PATHS["anthropic"], prompt("hi claude", model="claude-sonnet-4-5",
                                metadata={"user_id": "a"}), ("metadata",)),
    ("/v1/responses", {"model": "gpt-4o-mini", "input": "hi", "prompt_cache_key": "a",
                       "safety_identifier": "b", "metadata": {"c": "d"}},
     ("prompt_cache_key", "safety_identifier", "metadata")),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "labels"), LABELLED)
def test_labels_may_differ(
    served: Served, session: str, path: str, body: dict[str, Any], labels: tuple[str, ...]
) -> None:
    """The most equal recorded call answers: one with the same labels, if there is one."""
    others = [
        {**body, label: "z" if isinstance(body[label], str) else {"user_id": "z"}}
        for label in labels
    ]
    recorded = [posted(served, session, path, one) for one in (body, *others)]
    assert {status for status, _ in recorded} == {200}
    with replaying(served, session) as (replay, recording):
        assert [posted(replay, session, path, one) for one in reversed(others)] == [
            *reversed(recorded[1:])
        ]
        changed = {**body, labels[0]: {"user_id": "x"} if labels[0] == "metadata" else "x"}
        assert posted(replay, session, path, changed) == recorded[0]
        recording.finish()


RESULTS: Any = [
    (PATHS["openai"], {"model": "gpt-4o-mini", "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "took 0.1 s"}]}),
    (PATHS["anthropic"], {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "toolu_1", "name": "run", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "took 0.1 s"}]}]}),
    ("/v1/responses", {"model": "gpt-4o-mini", "input": [
        {"role": "user", "content": "hi", "id": "msg_1"},
        {"type": "function_call", "call_id": "call_1", "name": "run", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "took 0.1 s"}]}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body"), RESULTS)
def test_results_of_tools_may_differ_if_that_is_accepted(
    served: Served, session: str, path: str, body: dict[str, Any]
) -> None:
    recorded = posted(served, session, path, body)
    assert recorded[0] == 200, recorded
    text = json.dumps(body)
    changed = json.loads(text.replace("took 0.1 s", "took 0.2 s").replace("msg_1", "msg_2"))
    with replaying(served, session) as (replay, recording):
        status, said = posted(replay, session, path, changed)
        assert (status, b"took 0.2 s" in said) == (422, True)
    with replaying(served, session, any_results=True) as (replay, recording):
        assert posted(replay, session, path, changed) == recorded
        recording.finish()
    for other in (text.replace("run", "walk"), text.replace("call_1", "call_2").replace(
            "toolu_1", "toolu_2"), text.replace('"hi"', '"ho"')):  # fmt: skip
        with replaying(served, session, any_results=True) as (replay, recording):
            assert posted(replay, session, path, json.loads(other))[0] == 422


def test_what_is_no_label_may_not_differ(served: Served, session: str) -> None:
    """The name of a label deeper in a message is a part of the message."""
    body = prompt("hi", user="a", temperature=0.5)
    assert posted(served, session, PATHS["openai"], body)[0] == 200
    for changed, field in (
        ({**body, "temperature": 0.25}, "/temperature"),
        ({**body, "user": "b", "messages": [{"role": "user", "content": "ho"}]},
         "/messages/0/content"),
        ({**body, "messages": [{"role": "user", "content": [
            {"type": "text", "text": "hi", "metadata": 1}]}]}, "/messages/0/content"),
    ):  # fmt: skip
        with replaying(served, session) as (replay, recording):
            assert posted(replay, session, PATHS["openai"], changed)[0] == 422
            assert recording.difference is not None
            assert recording.difference.field == field
