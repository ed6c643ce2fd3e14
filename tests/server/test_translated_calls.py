"""Calls between dialects over the wire, as the provider, the client and the record see them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remit.providers.wire import stream_sum
from tests.server.running import Served, new_session
from tests.support.raw_provider import RawProvider, replying, whole
from tests.support.wire import message, response, sse

_CLAUDE = "anthropic/claude-sonnet-4-5"
_TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
_CALL = {"id": "fc_1", "type": "function_call", "status": "completed", "name": "look",
         "call_id": "call_1", "arguments": "{}"}  # fmt: skip
_RESPONSE = response(_CALL)


def _events(answer: dict[str, Any]) -> list[bytes]:
    begun = {"output_index": 0, "item": {**_CALL, "arguments": ""}}
    return sse([
        {"type": "response.created", "response": {**answer, "output": []}},
        {"type": "response.output_item.added", **begun},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{}"},
        {"type": "response.output_item.done", "output_index": 0, "item": _CALL},
        {"type": "response.completed", "response": answer},
    ])  # fmt: skip


def _answered(path: str, raw: bytes) -> bytes:
    if not raw:
        return whole(b'{"object":"list","data":[]}')
    if path.endswith("/messages"):
        return whole(json.dumps(message("done")).encode())
    if json.loads(raw).get("stream"):
        return whole(b"".join(_events(_RESPONSE)), kind="text/event-stream")
    return whole(json.dumps(_RESPONSE).encode())


ANSWER = replying(_answered)
BEFORE = "provider"


def _ask(served: Served, body: dict[str, Any], key: str = "") -> tuple[str, bytes, Any]:
    session = new_session()
    headers = {"x-remit-session": session} | ({"idempotency-key": key} if key else {})
    status, raw, answered = served.ask("POST", "/v1/chat/completions", body, headers=headers)
    assert status == 200, raw
    return session, raw, answered


@pytest.mark.parametrize("stream", [False, True])
def test_dropped_fields_are_named_and_recorded(served: Served, stream: bool) -> None:
    body = {"model": _CLAUDE, "messages": [{"role": "user", "content": "Hi"}], "seed": 7,
            "temperature": 1.5, "stream": stream}  # fmt: skip
    key = new_session()
    session, raw, headers = _ask(served, body, key)
    assert sorted(headers["x-remit-dropped"].split(", ")) == ["seed", "temperature"]
    assert not stream or b"x-remit-dropped=" in raw
    recorded = served.exchange(session).metadata
    assert sorted(recorded["dropped"]) == ["seed", "temperature"]
    again = _ask(served, body, key)[2]
    if not stream:
        assert again["x-remit-replayed"] == "true"
        assert again["x-remit-dropped"] == headers["x-remit-dropped"]


@pytest.mark.parametrize("stream", [False, True])
def test_tools_of_chat_on_responses(served: Served, provider: RawProvider, stream: bool) -> None:
    body = {"model": "openai/gpt-5.6", "messages": [{"role": "user", "content": "Hi"}],
            "tools": _TOOLS, "stream": stream}  # fmt: skip
    session, raw, _ = _ask(served, body)
    path, body_sent = provider.seen[-1]
    sent = json.loads(body_sent)
    assert path.endswith("/responses")
    assert sent["tools"][0]["name"] == "look"
    if stream:
        total = stream_sum("openai.chat")
        for line in raw.splitlines():
            if line.startswith(b"data: "):
                total.add("", line[6:])
        answer = total.answer()
    else:
        answer = json.loads(raw)
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert (call["id"], call["function"]["name"]) == ("call_1", "look")
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    recorded = served.exchange(session).metadata
    assert recorded["wire"] == "openai.responses"
    reasons = [change["reason"] for change in recorded["changed"]]
    assert "this model takes tools only on the Responses API" in reasons
    assert recorded["answer"]["output"][0]["call_id"] == "call_1"


@pytest.mark.parametrize(
    ("asked", "model", "sent"),
    [
        ("/v1/messages?beta=true", _CLAUDE, "/v1/messages?beta=true"),
        ("/anthropic/v1/messages?beta=true&x=a%20b", _CLAUDE, "/v1/messages?beta=true&x=a%20b"),
        ("/v1/messages?beta=true", "openai/gpt-4o-mini", "/v1/chat/completions"),
        ("/v1/chat/completions?beta=true", _CLAUDE, "/v1/messages"),
        ("/v1/responses?a=1", "openai/gpt-4o-mini", "/v1/responses?a=1"),
        ("/openai/responses?api-version=1&a=1", "openai/gpt-4o-mini", "/v1/responses?a=1"),
        ("/openai/responses?api-version=preview", "openai/gpt-4o-mini", "/v1/responses"),
        ("/v1/messages?", _CLAUDE, "/v1/messages"),
    ],
)  # fmt: skip
def test_the_query_reaches_a_provider_of_the_clients_own_dialect(
    served: Served, provider: RawProvider, asked: str, model: str, sent: str
) -> None:
    session, said = new_session(), [{"role": "user", "content": "Hi"}]
    member = "input" if "responses" in asked else "messages"
    body: dict[str, Any] = {"model": model, member: said}
    if "/messages" in asked:
        body["max_tokens"] = 9
    provider.got.clear()
    served.ask("POST", asked, body, headers={"x-remit-session": session})
    ((path, _),) = provider.seen
    assert path == sent
    line = served.exchange(session).metadata.get("request_line")
    base = "" if model == _CLAUDE else "/v1"  # OpenAI's base URL ends in it.
    assert line == (f"POST {sent.removeprefix(base)}" if "?" in sent else None)
