"""Responses of other keys are named in no call, and all fit the types of Open Responses."""

from __future__ import annotations

import base64
import http.client
import json
import re
from contextlib import closing
from typing import Any

import openresponses_types as spec
import pytest
from pydantic import TypeAdapter
from websockets.sync.client import connect

from tests.server.conftest import QUICK
from tests.server.running import FORM, Served, form
from tests.server.strict import CLAUDE, GPT, Strict


def _file(served: Served, token: str, content: bytes = b"secret") -> str:
    body = form(purpose="batch", file=("a.jsonl", content))
    status, raw, _ = served.ask("POST", "/v1/files", body, token=token, headers=FORM)
    assert status == 200, raw
    name: str = json.loads(raw)["id"]
    return name


@pytest.fixture(scope="module")
def other(served: Served) -> str:
    """The token of another key."""
    return served.key().key


@pytest.fixture(scope="module")
def answer(served: Served) -> Any:
    """A response of the first key."""
    status, raw, _ = served.ask("POST", "/v1/responses", {"model": GPT, "input": "[[say it]]"})
    assert status == 200, raw
    return json.loads(raw)


def _input(item: Any) -> bytes:
    return json.dumps({"model": GPT, "input": [item, {"role": "user", "content": "?"}]}).encode()


@pytest.mark.parametrize(
    "item", [{"type": "item_reference"}, {}, {"type": None}], ids=["named", "bare", "null"]
)
@pytest.mark.parametrize("escaped", [False, True])
def test_an_item(
    served: Served, strict: Strict, other: str, answer: Any, item: dict[str, Any], escaped: bool
) -> None:
    body = _input({**item, "id": answer["output"][0]["id"]})
    if escaped:
        body = body.replace(b"item_ref", b"item\\u005fref")
    before = len(strict.seen("/responses"))
    status, raw, _ = served.ask("POST", "/v1/responses", body, token=other)
    assert (status, json.loads(raw)["error"]["code"]) == (400, "item_not_found")
    assert len(strict.seen("/responses")) == before
    if item.get("type"):
        assert served.ask("POST", "/v1/responses", body)[0] == 200


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"model": GPT, "messages": [{"role": "user", "content": [
            {"type": "file", "file": {"file_id": "FILE"}}]}]}),
        ("/v1/responses", {"model": GPT, "input": [{"role": "user", "content": [
            {"type": "input_file", "file_id": "FILE"}]}]}),
        ("/v1/responses", {"model": GPT, "input": "hi", "tools": [{"type": "code_interpreter",
            "container": {"type": "auto", "file_ids": ["file-none", "FILE"]}}]}),
        ("/v1/messages", {"model": CLAUDE, "max_tokens": 9, "messages": [{"role": "user",
            "content": [{"type": "document", "source": {"type": "file", "file_id": "FILE"}}]}]}),
    ],
    ids=["chat", "responses", "container", "messages"],
)  # fmt: skip
def test_a_file(
    served: Served, strict: Strict, other: str, path: str, body: Any, escaped: bool
) -> None:
    text = json.dumps(body).replace("FILE", _file(served, served.token)).encode()
    if escaped:
        text = text.replace(b"file_id", b"fil\\u0065_id")
    before = len(strict.seen(path))
    status, raw, _ = served.ask("POST", path, text, token=other)
    assert status == 404, raw
    assert json.loads(raw)["error"]["code"] == "file_not_found"
    assert len(strict.seen(path)) == before


@pytest.mark.parametrize("stream", [False, True])
def test_a_thread_of_messages(served: Served, strict: Strict, other: str, stream: bool) -> None:
    beta = {"anthropic-beta": "message-threads-2026-08-12"}
    body: dict[str, Any] = {
        "model": CLAUDE, "max_tokens": 99, "messages": [{"role": "user", "content": "hi"}],
        "thread": {"type": "create"}, "stream": stream,
    }  # fmt: skip
    status, raw, _ = served.ask("POST", "/v1/messages", body, headers=beta)
    assert status == 200, raw
    (name,) = set(re.findall(r'"(msg_[^"]+)"', raw.decode()))
    body["thread"] = {"type": "continue", "previous_message_id": name}
    before = len(strict.seen("/messages"))
    status, raw, _ = served.ask("POST", "/v1/messages", body, token=other, headers=beta)
    assert (status, json.loads(raw)["error"]["type"]) == (404, "not_found_error")
    assert len(strict.seen("/messages")) == before
    assert served.ask("POST", "/v1/messages", body, headers=beta)[0] == 200
    assert strict.seen("/messages")[-1]["thread"] == body["thread"]
    seen = {**body, "diagnostics": {"previous_message_id": name}, "thread": None}
    assert served.ask("POST", "/v1/messages", seen, token=other, headers=beta)[0] == 200


@pytest.mark.parametrize("kind", ["file", "response", "item", "conversation"])
def test_in_a_batch(served: Served, strict: Strict, other: str, answer: Any, kind: str) -> None:
    body: dict[str, Any] = {"model": GPT, "input": "hi", "max_output_tokens": 9}
    if kind == "file":
        part = {"type": "input_file", "file_id": _file(served, served.token)}
        body["input"] = [{"role": "user", "content": [part]}]
    elif kind == "response":
        body["previous_response_id"] = answer["id"]
    elif kind == "conversation":
        body["conversation"] = {"id": "conv_of_somebody"}
    else:
        body["input"] = [{"id": answer["output"][0]["id"]}]
    line = {"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": body}
    made = {
        "input_file_id": _file(served, other, json.dumps(line).encode()),
        "endpoint": "/v1/responses",
        "completion_window": "24h",
    }
    before = len(strict.seen("/batches"))
    status, raw, _ = served.ask("POST", "/v1/batches", made, token=other)
    assert status in (400, 404), raw
    assert json.loads(raw)["error"]["param"].startswith("input_file_id[0].body")
    assert len(strict.seen("/batches")) == before


def test_a_short_call_cannot_name_too_much(served: Served, strict: Strict) -> None:
    said = {"model": CLAUDE, "input": f"[[say {'y' * 100_000}]]"}
    status, raw, _ = served.ask("POST", "/v1/responses", said)
    assert status == 200, raw
    item = json.loads(raw)["output"][0]["id"]
    many = [{"type": "item_reference", "id": item}] * 400
    before = len(strict.seen("/responses"))
    status, raw, _ = served.ask("POST", "/v1/responses", {"model": GPT, "input": many})
    assert (status, json.loads(raw)["error"]["code"]) == (400, "context_length_exceeded")
    assert len(strict.seen("/responses")) == before


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
