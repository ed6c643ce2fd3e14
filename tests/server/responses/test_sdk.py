"""The official SDK's helpers for Responses, with providers of both dialects."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.server.strict import CLAUDE, GPT

both = pytest.mark.parametrize("model", [GPT, CLAUDE])


class Bird(BaseModel):
    name: str
    legs: int


TOOL: Any = {
    "type": "function", "name": "get_weather", "strict": True,
    "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        "additionalProperties": False,
    },
}  # fmt: skip


@both
def test_parse(client: openai.OpenAI, model: str) -> None:
    answer = client.responses.parse(model=model, input="A heron has 2 legs.", text_format=Bird)
    assert answer.output_parsed == Bird(name="the name", legs=2)
    after = client.responses.parse(
        model=model, input="A cat has 4.", text_format=Bird, previous_response_id=answer.id
    )
    assert after.output_parsed is not None


@both
def test_a_loop_of_tools_by_ids(client: openai.OpenAI, model: str) -> None:
    asked: Any = '[[call get_weather {"city": "Ulm"}]] [[call get_weather {"city": "Bonn"}]]'
    answer = client.responses.create(model=model, input=asked, tools=[TOOL])
    for _ in range(3):
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            break
        results: Any = [
            {"type": "function_call_output", "call_id": call.call_id,
             "output": json.loads(call.arguments)["city"] + " 20 C"}
            for call in calls
        ]  # fmt: skip
        answer = client.responses.create(
            model=model, input=results, tools=[TOOL], previous_response_id=answer.id
        )
    assert "Ulm 20 C" in answer.output_text
    assert "Bonn 20 C" in answer.output_text


@both
def test_a_loop_of_tools_in_a_stream_with_all_items(client: openai.OpenAI, model: str) -> None:
    """As agents do that keep the conversation themselves, and store nothing."""
    items: Any = [{"role": "user", "content": '[[call get_weather {"city": "Ulm"}]]'}]
    for _ in range(3):
        stream = client.responses.create(
            model=model, input=items, tools=[TOOL], store=False, stream=True
        )
        last: Any = list(stream)[-1]
        answer = last.response
        items += [item.to_dict() for item in answer.output]
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            break
        for call in calls:
            items.append(
                {"type": "function_call_output", "call_id": call.call_id, "output": "20 C"}
            )
    assert "20 C" in answer.output_text
