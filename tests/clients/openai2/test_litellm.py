"""LiteLLM's client."""

from __future__ import annotations

from typing import Any

import litellm
import pytest

from tests.clients.conftest import Side

MODELS = ["openai/gpt-4o-mini", "openai/gpt-5-mini", "anthropic/claude-sonnet-4-5"]
TOOL: dict[str, Any] = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
}  # fmt: skip


def _given(side: Side, model: str) -> dict[str, Any]:
    base = side.url if model.startswith("anthropic") else f"{side.url}/v1"
    return {"model": model, "api_base": base, "api_key": side.key, "num_retries": 0}


def _told(answer: Any) -> Any:
    choice = answer.choices[0]
    return [choice.message.content, str(choice.message.tool_calls), choice.finish_reason,
            answer.usage.prompt_tokens, answer.usage.completion_tokens]  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_completion(side: Side, model: str) -> Any:
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": "hello"}]
    return _told(litellm.completion(messages=messages, **_given(side, model)))


@pytest.mark.parametrize("model", MODELS)
def test_stream(side: Side, model: str) -> Any:
    messages = [{"role": "user", "content": "hello"}]
    stream = litellm.completion(messages=messages, stream=True, **_given(side, model))
    return [chunk.choices[0].delta.content for chunk in stream]


@pytest.mark.parametrize("model", MODELS)
def test_tools(side: Side, model: str) -> Any:
    messages: list[Any] = [{"role": "user", "content": '[[call get_weather {"city": "Bern"}]]'}]
    given = {"tools": [TOOL], **_given(side, model)}
    first = litellm.completion(messages=messages, **given)
    message = first.choices[0].message
    messages += [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id,
                           "content": "sunny"}]  # fmt: skip
    last = litellm.completion(messages=messages, **given)
    assert last.choices[0].message.content == "The tools said: sunny"
    return [_told(first), _told(last)]


def test_responses(side: Side) -> Any:
    answer = litellm.responses(input="hello", **_given(side, "openai/gpt-4o-mini"))
    return answer.output[0].content[0].text


def test_embedding(side: Side) -> Any:
    given = _given(side, "openai/text-embedding-3-small")
    return litellm.embedding(input=["hello", "there"], **given).data
