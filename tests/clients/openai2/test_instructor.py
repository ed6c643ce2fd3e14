"""instructor: structured output in its several modes."""

from __future__ import annotations

from typing import Any

import anthropic
import instructor
import openai
import pytest
from pydantic import BaseModel

from tests.clients.conftest import Side


class Person(BaseModel):
    name: str
    age: int


def _ask(client: Any, **more: Any) -> Any:
    person = client.create(
        response_model=Person, messages=[{"role": "user", "content": "Ann is 41. JSON."}],
        max_retries=0, **more,
    )  # fmt: skip
    assert person.age == 41
    return person.model_dump()


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA", "RESPONSES_TOOLS"])
def test_openai(side: Side, mode: str) -> Any:
    client = instructor.from_openai(
        openai.OpenAI(**side.openai, max_retries=0), mode=instructor.Mode[mode]
    )
    return _ask(client, model="gpt-4o-mini")


def test_openai_partial(side: Side) -> Any:
    client = instructor.from_openai(openai.OpenAI(**side.openai, max_retries=0))
    partial = client.create_partial(
        response_model=Person, model="gpt-4o-mini",
        messages=[{"role": "user", "content": "Ann is 41."}],
    )  # fmt: skip
    return [each.model_dump() for each in partial]


def test_anthropic(side: Side) -> Any:
    client = instructor.from_anthropic(anthropic.Anthropic(**side.anthropic, max_retries=0))
    return _ask(client, model="claude-sonnet-4-5", max_tokens=500)
