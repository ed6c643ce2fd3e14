"""What one key made is named in no call of another key, however it is written."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

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
