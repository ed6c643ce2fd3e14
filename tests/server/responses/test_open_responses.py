"""Open Responses: answers and events of each kind of provider fit the specification's types."""

from __future__ import annotations

import base64
import http.client
import json
from contextlib import closing
from typing import Any

import openresponses_types as spec
import pytest
from pydantic import TypeAdapter
from websockets.sync.client import connect

from tests.server.conftest import QUICK
from tests.server.running import Served
from tests.server.strict import CLAUDE, GPT

CHAT = "chat/gpt-4o-mini"
TOML = (
    QUICK
    + """
[providers.chat]
kind = "openai"
base_url = "{url}/v1"
api_key = "sk-strict"
default_model = "gpt-4o-mini"
responses = false
[providers.gemini]
kind = "gemini"
base_url = "{url}/v1beta"
api_key = "sk-strict"
default_model = "gemini-2.5-flash"
[providers.bedrock]
kind = "anthropic"
cloud = "aws"
base_url = "{url}"
api_key = "sk-strict"
default_model = "anthropic.claude-sonnet-4-5-20250929-v1:0"
[providers.vertex]
kind = "anthropic"
cloud = "google"
base_url = "{url}/v1/projects/p/locations/l"
api_key = "sk-strict"
default_model = "claude-sonnet-4-5@20250929"
"""
)
_EVENTS = {
    model.model_fields["type"].annotation: TypeAdapter(model)
    for name, model in vars(spec).items()
    if name.endswith("StreamingEvent")
}
_PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 40).decode()
_WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Return the weather of a place.",
    "parameters": {
        "type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"],
    },
}  # fmt: skip


def _said(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


CASES: dict[str, dict[str, Any]] = {
    "text": {"input": [_said("user", "Say hello in three words.")]},
    "system prompt": {"input": [_said("system", "Talk like a pirate."), _said("user", "Hello.")]},
    "tool": {"input": [_said("user", "How is the weather in Rome?")], "tools": [_WEATHER],
             "tool_choice": "required"},
    "image": {"input": [_said("user", [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{_PNG}"}])]},
    "several turns": {"input": [_said("user", "My name is Alice."),
                                _said("assistant", "Hello Alice!"),
                                _said("user", "What is my name?")]},
}  # fmt: skip
cases = pytest.mark.parametrize("case", CASES)
models = pytest.mark.parametrize("model", [
    GPT, CLAUDE, CHAT, "gemini/gemini-2.5-flash",
    "bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0", "vertex/claude-sonnet-4-5@20250929",
])  # fmt: skip


def _checked(response: dict[str, Any], case: str) -> None:
    spec.ResponseResource.model_validate(response)
    assert response["status"] == "completed"
    wanted = "function_call" if case == "tool" else "message"
    assert wanted in [item["type"] for item in response["output"]]


def _checked_events(events: list[dict[str, Any]], case: str) -> None:
    for event in events:
        _type_of(event).validate_python(event)
    numbers = [event["sequence_number"] for event in events]
    assert numbers == sorted(set(numbers))
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    part = "function_call_arguments" if case == "tool" else "output_text"
    assert {f"response.{part}.delta", f"response.{part}.done", "response.output_item.added",
            "response.output_item.done"} <= set(kinds)  # fmt: skip
    _checked(events[-1]["response"], case)


def _type_of(event: dict[str, Any]) -> TypeAdapter[Any]:
    (found,) = [one for kinds, one in _EVENTS.items() if event["type"] in list(kinds)]
    return found


@models
@cases
def test_an_answer_fits(served: Served, model: str, case: str) -> None:
    status, raw, _ = served.ask("POST", "/v1/responses", {"model": model, **CASES[case]})
    assert status == 200, raw
    _checked(json.loads(raw), case)


@models
@cases
def test_a_stream_fits(served: Served, model: str, case: str) -> None:
    body = json.dumps({"model": model, "stream": True, **CASES[case]}).encode()
    with closing(http.client.HTTPConnection(*served.address, timeout=60)) as connection:
        connection.request(
            "POST", "/v1/responses", body, {"authorization": f"Bearer {served.token}"}
        )
        text = connection.getresponse().read().decode()
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    _checked_events(events, case)


@models
@cases
def test_a_socket_fits(served: Served, model: str, case: str) -> None:
    place = served.url.replace("http", "ws") + "/v1/responses"
    named = {"authorization": f"Bearer {served.token}"}
    events: list[dict[str, Any]] = []
    with connect(place, additional_headers=named, max_size=2**24) as socket:
        body = {"type": "response.create", "model": model, "store": True, **CASES[case]}
        spec.WebSocketResponseCreateEvent.model_validate(body)
        socket.send(json.dumps(body))
        while not events or events[-1]["type"] not in ("response.completed", "error"):
            events.append(json.loads(socket.recv(timeout=60)))
    _checked_events(events, case)
