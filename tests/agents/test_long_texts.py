"""Long texts of models in the wrong place: no error, prompt or reason repeats more than a part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from remit import Runtime, tool
from remit.agents.worker.model_answer import with_distinct_ids
from remit.kernel.errors import excerpt
from remit.providers import ProviderResponse
from remit.testing import ScriptedModel, ToolUse
from remit.tools import Tool
from tests.support.roots import new_root

LONG = "n" * 200_000
_MOST = 5_000  # characters of any error, reason, or text of Remit's in a prompt


class Total(BaseModel):
    """A typed answer."""

    model_config = {"extra": "forbid"}
    amount: int


@tool
def visit(city: str) -> str:
    """Visit a city."""
    return "done"


def _tools() -> list[Tool]:
    words = {"kind": {"enum": ["a"]}, "code": {"pattern": "^a$"}, "days": {"type": "integer"}}
    schema = {"type": "object", "properties": words, "additionalProperties": False}
    return [visit, Tool("sweep", "Sweep.", schema, lambda **_: "done")]


ODD: dict[str, Any] = {
    "the name of a tool": ToolUse(LONG, {}),
    "the name of an argument, by a schema": ToolUse("sweep", {LONG: 1}),
    "the name of an argument, by a function": ToolUse("visit", {LONG: 1}),
    "many names": ToolUse("sweep", {f"n{number}": 1 for number in range(20_000)}),
    "many names, by a function": ToolUse("visit", {f"n{number}": 1 for number in range(20_000)}),
    "an argument of another type": ToolUse("sweep", {"days": LONG}),
    "an argument that is none of a few": ToolUse("sweep", {"kind": LONG}),
    "an argument without its pattern": ToolUse("sweep", {"code": LONG}),
    "an argument in a list": ToolUse("visit", {"city": [LONG]}),
    "a number without a source": f"Your order is {'7' * 200_000}.",
    "an error marker": f"Error: {LONG}",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root for all tests of the module: each makes sessions of its own."""
    return new_root(tmp_path_factory.mktemp("long") / "root")


def _play(root: Path, *answers: Any, **options: Any) -> tuple[str, list[str], list[str]]:
    """Return the caller's error, what prompts say that is not the model's, and what is recorded."""
    prompts: list[Any] = []

    def last(request: Any) -> str:
        prompts.extend(request.messages)
        return '{"amount": 1}' if "output_type" in options else "fine"

    model = ScriptedModel(*answers, *[last] * 3)
    with Runtime.open(root, providers={"s": model}) as runtime:
        session = runtime.agent(
            "a", max_retries=1, session_tokens=10**9, order_tokens=10**8, **options
        ).session()
        result = session.turn("go")
        entries = list(runtime.ledger.query(session_id=session.session_id))
    said = [
        block if isinstance(block, str) else str(block.get("content", block.get("text", "")))
        for message in prompts if message["role"] != "assistant"
        for block in ([message["content"]] if isinstance(message["content"], str)
                      else message["content"])
    ]  # fmt: skip
    said += [
        block["name"] for message in prompts if isinstance(message["content"], list)
        for block in message["content"] if block["type"] == "tool_use"
    ]  # fmt: skip
    recorded = [entry.reason for entry in entries]
    for entry in entries:
        for name in ("tool_id", "tool_error", "error_message", "reasons", "error", "detail"):
            recorded.append(str(entry.metadata.get(name, "")))
        result_of = entry.metadata.get("output_result")
        if isinstance(result_of, dict):
            recorded += [f"{one['tool_id']}{one['error']}" for one in result_of["tool_results"]]
    return result.error_detail or "", said, recorded


@pytest.mark.parametrize("name", ODD)
def test_a_long_text_of_a_model_is_quoted_in_part(root: Path, name: str) -> None:
    detail, prompts, recorded = _play(root, ODD[name], tools=_tools())
    assert prompts
    assert max(map(len, [detail, *prompts, *recorded])) < _MOST


@pytest.mark.parametrize(
    "answer",
    [f'{{"{LONG}": 1}}', f'{{"amount": "{LONG}"}}', f'{{"{LONG}": 1, "{LONG}": 2}}', LONG],
)
def test_a_typed_answer_that_does_not_fit_is_quoted_in_part(root: Path, answer: str) -> None:
    detail, prompts, recorded = _play(root, answer, output_type=Total)
    assert prompts
    assert max(map(len, [detail, *prompts, *recorded])) < _MOST
    detail, _, recorded = _play(root, *[answer] * 4, output_type=Total)
    assert detail
    assert max(map(len, [detail, *recorded])) < _MOST


@pytest.mark.parametrize("reason", ["length", "content_filter", "network_error"])
def test_the_words_of_an_answer_that_stopped_are_quoted_in_part(root: Path, reason: str) -> None:
    class Stops:
        def send(self, request: Any) -> ProviderResponse:
            use = {"type": "tool_use", "id": "c", "name": "visit", "input": {}}
            blocks = ({"type": "text", "text": LONG}, use)
            return ProviderResponse(LONG, "m", 1, 1, reason, content_blocks=blocks)

    with Runtime.open(root, providers={"s": Stops()}, flags={"gateway.max_retries": 0}) as runtime:
        session = runtime.agent("a", tools=[visit], max_retries=0).session()
        result = session.turn("go")
        reasons = [entry.reason for entry in runtime.ledger.query(session_id=session.session_id)]
    assert result.failed
    assert LONG[:400] in (result.error_detail or "")
    assert max(map(len, [result.error_detail or "", *reasons])) < _MOST


def test_a_long_id_of_a_call_is_replaced() -> None:
    blocks = [{"type": "tool_use", "id": LONG, "name": "a", "input": {}}] * 2
    assert [block["id"] for block in with_distinct_ids(blocks, [])] == ["call", "call_2"]
    kept = "signature" * 400
    assert with_distinct_ids([{**blocks[0], "id": kept}], [])[0]["id"] == kept


def test_an_excerpt_says_that_there_is_more() -> None:
    assert excerpt("a" * 200) == "a" * 200
    assert excerpt("a" * 201) == "a" * 200 + "…"
