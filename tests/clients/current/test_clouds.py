"""Clients of Claude on Bedrock and on Vertex AI: Anthropic's own, and Amazon's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import anthropic
import botocore.exceptions
import botocore.session
import pytest
from botocore.config import Config

from tests.clients.conftest import BEDROCK_CLAUDE, VERTEX_CLAUDE, Side, refusal

_CONVERSE_CLAUDE = f"eu.{BEDROCK_CLAUDE}"
_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_TOOL: Any = {"name": "get_weather", "description": "Weather of a city.", "input_schema": _SCHEMA}
_CALL = '[[call get_weather {"city": "Paris"}]]'
_TEXTS = pytest.mark.parametrize("text", ["hello", _CALL, "[[long]]"], ids=["text", "tool", "long"])


@pytest.fixture(params=["bedrock", "vertex"])
def claude(request: pytest.FixtureRequest, side: Side) -> tuple[Any, str]:
    """A client of Anthropic's and the name of its model."""
    if request.param == "bedrock":
        client: Any = anthropic.AnthropicBedrock(
            api_key=side.key, base_url=side.url, aws_region="us-east-1", max_retries=0
        )
        return client, BEDROCK_CLAUDE
    return anthropic.AnthropicVertex(
        access_token=side.key, base_url=f"{side.url}/v1", project_id="p", region="l", max_retries=0
    ), VERTEX_CLAUDE


def _ask(text: str) -> dict[str, Any]:
    return {"max_tokens": 800, "tools": [_TOOL], "messages": [{"role": "user", "content": text}]}


@_TEXTS
def test_answer(side: Side, claude: tuple[Any, str], text: str) -> Any:
    client, model = claude
    return client.messages.create(model=model, **_ask(text)).model_dump(mode="json")


@_TEXTS
def test_stream(side: Side, claude: tuple[Any, str], text: str) -> Any:
    client, model = claude
    with client.messages.create(model=model, stream=True, **_ask(text)) as events:
        return [event.model_dump(mode="json") for event in events]


def test_tool_round(side: Side, claude: tuple[Any, str]) -> Any:
    client, model = claude
    asked = _ask(_CALL)
    first = client.messages.create(model=model, **asked)
    call = next(block for block in first.content if block.type == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    asked["messages"] += [{"role": "assistant", "content": first.content},
                          {"role": "user", "content": [result]}]  # fmt: skip
    return client.messages.create(model=model, **asked).model_dump(mode="json")


def test_refusal_of_the_provider(side: Side, claude: tuple[Any, str]) -> Any:
    client, model = claude
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(model=model, max_tokens=50, messages=[])
    return refusal(caught.value)


@pytest.fixture
def runtime(side: Side) -> Iterator[Any]:
    """Amazon's own client, which sends a bearer token over TLS alone."""
    session = botocore.session.Session()
    session.set_credentials("AKIDEXAMPLE", "secret")
    opened = session.create_client(
        "bedrock-runtime", region_name="us-east-1", endpoint_url=side.url,
        config=Config(retries={"total_max_attempts": 1}),
    )  # fmt: skip

    def add_key(request: Any, **_: Any) -> None:
        del request.headers["authorization"]
        request.headers["authorization"] = f"Bearer {side.key}"

    opened.meta.events.register("before-send.bedrock-runtime", add_key)
    with closing(opened):
        yield opened


def _plain(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer without what HTTP added."""
    return {name: value for name, value in answer.items() if name != "ResponseMetadata"}


def _turns(text: str) -> dict[str, Any]:
    spec = {"name": "get_weather", "description": "Weather.", "inputSchema": {"json": _SCHEMA}}
    return {"messages": [{"role": "user", "content": [{"text": text}]}],
            "system": [{"text": "Be brief."}], "toolConfig": {"tools": [{"toolSpec": spec}]},
            "inferenceConfig": {"maxTokens": 800}}  # fmt: skip


@_TEXTS
def test_converse(side: Side, runtime: Any, text: str) -> Any:
    return _plain(runtime.converse(modelId=_CONVERSE_CLAUDE, **_turns(text)))


@_TEXTS
def test_converse_stream(side: Side, runtime: Any, text: str) -> Any:
    return list(runtime.converse_stream(modelId=_CONVERSE_CLAUDE, **_turns(text))["stream"])


def test_tool_round_of_converse(side: Side, runtime: Any) -> Any:
    asked = _turns(_CALL)
    message = runtime.converse(modelId=_CONVERSE_CLAUDE, **asked)["output"]["message"]
    call = next(block["toolUse"] for block in message["content"] if "toolUse" in block)
    result = {"toolUseId": call["toolUseId"], "content": [{"text": "sunny"}]}
    asked["messages"] += [message, {"role": "user", "content": [{"toolResult": result}]}]
    return _plain(runtime.converse(modelId=_CONVERSE_CLAUDE, **asked))


@_TEXTS
def test_invoke(side: Side, runtime: Any, text: str) -> Any:
    body = json.dumps({"anthropic_version": "bedrock-2023-05-31", **_ask(text)})
    answer = runtime.invoke_model(modelId=BEDROCK_CLAUDE, body=body)
    return json.loads(answer["body"].read())


@_TEXTS
def test_invoke_stream(side: Side, runtime: Any, text: str) -> Any:
    body = json.dumps({"anthropic_version": "bedrock-2023-05-31", **_ask(text)})
    events = runtime.invoke_model_with_response_stream(modelId=BEDROCK_CLAUDE, body=body)["body"]
    return [json.loads(event["chunk"]["bytes"]) for event in events]


def test_refusal_of_amazons_client(side: Side, runtime: Any) -> Any:
    body = json.dumps({"anthropic_version": "bedrock-2023-05-31", "max_tokens": 50, "messages": []})
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        runtime.invoke_model(modelId=BEDROCK_CLAUDE, body=body)
    said = caught.value.response["Error"]
    return {"refused": said["Code"], "body": said["Message"]}


def test_refusal_of_converse(side: Side, runtime: Any) -> Any:
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        runtime.converse(modelId=_CONVERSE_CLAUDE, messages=[])
    said = caught.value.response["Error"]
    return {"refused": said["Code"], "body": said["Message"]}
