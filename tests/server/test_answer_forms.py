"""Answers in another form than was asked for, answers that break off, and errors within answers.

A client gets the form that it asked for. A call is made again only if the provider cannot charge
for what it has sent.
"""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from remit.providers.sse import SseParser
from remit.providers.wire import stream_sum
from tests.server.running import Served, serving
from tests.server.test_stray_answers import TOML, called, event_stream, replies
from tests.support.raw_provider import RawProvider, whole
from tests.support.wire import completion, message, message_events, response, sse

BEFORE = "provider"
_GEMINI_FINE = {
    "candidates": [{"index": 0, "finishReason": "STOP",
                    "content": {"role": "model", "parts": [{"text": "fine"}]}}],
    "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 7, "totalTokenCount": 12},
}  # fmt: skip
_BUSY = {"error": {"code": 503, "status": "UNAVAILABLE", "message": "busy"}}
_GEMINI = "google/gemini-2.5-flash"
_ANSWERS: dict[str, dict[str, Any]] = {
    "gpt-4o-mini": completion("fine"),
    "claude-sonnet-4-5": {**message("fine"), "stop_sequence": None},
    _GEMINI: _GEMINI_FINE,
}


@pytest.fixture(scope="module")
def google(provider: RawProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a provider of Gemini's dialect, and with a fallback of one model."""
    toml = f'{TOML}[gateway.fallbacks]\n"gpt-4o" = ["claude-sonnet-4-5"]\n'
    toml += f'[providers.google]\nkind = "gemini"\nbase_url = "{provider.url}/v1beta"\n'
    toml += 'default_model = "gemini-2.5-flash"\napi_key = "AIza-up"\n'
    with serving(tmp_path_factory.mktemp("forms") / "root", provider.url, toml=toml) as served:
        yield served


def path_of(client: str, model: str, *, stream: bool) -> str:
    """Return the path of a client's call of a model."""
    if client != "gemini":
        return {"chat": "/v1/chat/completions", "messages": "/v1/messages",
                "responses": "/v1/responses"}[client]  # fmt: skip
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/v1beta/models/{model}:{verb}"


_CLIENTS = ("chat", "messages", "gemini")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", _ANSWERS)
@pytest.mark.parametrize("client", _CLIENTS)
def test_an_answer_that_breaks_off_is_not_asked_for_again(
    google: Served, provider: RawProvider, client: str, model: str, stream: bool
) -> None:
    """The provider may charge it, so each further attempt would cost its bound."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n"
    half = json.dumps(_ANSWERS[model]).encode()[:60]
    paths: list[str] = []

    def answer(connection: socket.socket, path: str, raw: bytes) -> bool:
        paths.append(path)
        connection.sendall(head + half)
        return False

    provider.answer = answer
    call = called(google, path_of(client, model, stream=stream), model, stream=stream)
    (entry,) = call.entries
    assert (call.status, len(paths)) == (502, 1)
    assert (entry.decision, entry.metadata["cost_certainty"]) == ("ERROR", "upper_bound")


@pytest.mark.parametrize("cut", [5, 40])
def test_a_compressed_answer_that_breaks_off_is_not_asked_for_again(
    google: Served, provider: RawProvider, cut: int
) -> None:
    body = gzip.compress(json.dumps(completion("fine")).encode())[:cut]
    paths = replies(provider, whole(body, more="content-encoding: gzip\r\n"))
    (entry,) = called(google, stream=False).entries
    assert (len(paths), entry.metadata["cost_certainty"]) == (1, "upper_bound")


def test_an_answer_that_breaks_off_is_given_by_a_fallback(
    google: Served, provider: RawProvider
) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n"
    paths: list[str] = []

    def answer(connection: socket.socket, path: str, raw: bytes) -> bool:
        paths.append(path)
        is_first = len(paths) == 1
        connection.sendall(head + b"{" if is_first else whole(json.dumps(message("fine")).encode()))
        return not is_first

    provider.answer = answer
    call = called(google, "/v1/chat/completions", "gpt-4o", stream=False)
    assert (call.status, b"fine" in call.raw) == (200, True)
    assert paths == ["/v1/chat/completions", "/v1/messages"]


def test_an_answer_without_a_byte_is_asked_for_again(google: Served, provider: RawProvider) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n"
    left = [head, whole(json.dumps(completion("fine")).encode())]

    def answer(connection: socket.socket, path: str, raw: bytes) -> bool:
        if raw:
            connection.sendall(left.pop(0))
        return not left

    provider.answer = answer
    call = called(google, stream=False)
    assert (call.status, len(call.entries), b"fine" in call.raw) == (200, 2, True)


_WITH_ERRORS: dict[str, dict[str, Any]] = {
    "gpt-4o-mini": {"error": {"message": "busy", "type": "server_error"}},
    "claude-sonnet-4-5": {"error": {"type": "api_error", "message": "busy"}},
    _GEMINI: _BUSY,
}


@pytest.mark.parametrize("usage", [True, False])
@pytest.mark.parametrize("model", _ANSWERS)
@pytest.mark.parametrize("client", _CLIENTS)
def test_a_text_next_to_an_error_of_a_whole_answer_is_recorded_and_not_asked_for_again(
    google: Served, provider: RawProvider, client: str, model: str, usage: bool
) -> None:
    said = {**_ANSWERS[model], **_WITH_ERRORS[model]}
    if not usage:
        said = {key: value for key, value in said.items() if not key.startswith("usage")}
    paths = replies(provider, whole(json.dumps(said).encode()))
    call = called(google, path_of(client, model, stream=False), model, stream=False)
    (entry,) = call.entries
    assert (call.status, b"busy" in call.raw, len(paths)) == (502, True, 1)
    assert (entry.decision, entry.metadata["response"]) == ("ERROR", "fine")
    assert (entry.metadata["cost_certainty"] == "measured") == usage


@pytest.mark.parametrize("client", _CLIENTS)
def test_a_candidate_next_to_an_error_of_its_event_is_recorded_and_not_asked_for_again(
    google: Served, provider: RawProvider, client: str
) -> None:
    paths = replies(provider, event_stream({**_GEMINI_FINE, **_BUSY}))
    call = called(google, path_of(client, _GEMINI, stream=True), _GEMINI)
    (entry,) = call.entries
    assert (b"fine" in call.raw, b"busy" in call.raw, len(paths)) == (True, True, 1)
    assert (entry.decision, entry.metadata["response"]) == ("ERROR", "fine")
    assert entry.metadata["cost_certainty"] == "measured"
    paths = replies(provider, event_stream(_BUSY))
    assert len(called(google, path_of(client, _GEMINI, stream=True), _GEMINI).entries) > 1


_FAILED = {"error": {"code": 502, "message": "busy"}}


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("form", ["of the choice", "of its message", "its reason"])
@pytest.mark.parametrize("client", ["chat", "messages"])
def test_an_error_of_any_choice_is_one(
    google: Served, provider: RawProvider, client: str, form: str, at: int
) -> None:
    choices = [{**completion("fine")["choices"][0], "index": index} for index in range(2)]
    bad = choices[at]
    if form == "its reason":
        bad["finish_reason"] = "error"
    else:
        holder = bad if form == "of the choice" else bad["message"]
        holder |= _FAILED
    replies(provider, whole(json.dumps({**completion("fine"), "choices": choices}).encode()))
    call = called(google, path_of(client, "", stream=False), "gpt-4o-mini", stream=False)
    first = call.entries[0]
    assert (first.decision, first.metadata["response"]) == (
        "ERROR",
        choices[0]["message"]["content"],
    )
    assert form == "its reason" or (call.status, b"busy" in call.raw) == (502, True)


_CHUNK = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "gpt-4o-mini"}
_CHUNKS = [
    {**_CHUNK, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
    {**_CHUNK, "choices": [{"index": 0, "delta": {"content": "fine"}, "finish_reason": "stop"}]},
    {**_CHUNK, "choices": [], "usage": completion()["usage"]},
]
_NEW = {"type": "response.created", "response": {**response("fine"), "output": []}}
_OWN: dict[str, tuple[str, str, dict[str, Any], list[dict[str, Any]]]] = {
    "chat": ("openai.chat", "gpt-4o-mini", completion("fine"), _CHUNKS),
    "messages": ("anthropic.messages", "claude-sonnet-4-5", _ANSWERS["claude-sonnet-4-5"],
                 message_events(_ANSWERS["claude-sonnet-4-5"])),
    "responses": ("openai.responses", "gpt-4o-mini", response("fine"),
                  [_NEW, {"type": "response.completed", "response": response("fine")}]),
    "gemini": ("gemini.generate", _GEMINI, _GEMINI_FINE, [_GEMINI_FINE]),
}  # fmt: skip


def _strict(data: bytes) -> Any:
    """Return the value of a JSON text as a strict client reads it."""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    return json.loads(data, parse_constant=refuse)


def _added(endpoint: str, raw: bytes) -> dict[str, Any]:
    """Return the answer that a stream adds up to; each of its events is one of the API's."""
    total = stream_sum(endpoint)
    for event in SseParser().feed(raw):
        if event.data and event.data != b"[DONE]":
            value = _strict(event.data)
            if endpoint == "openai.chat":
                assert all("delta" in choice for choice in value["choices"])
            if endpoint == "anthropic.messages":
                assert event.name == value["type"] != "message"
            if endpoint == "openai.responses":
                assert value["type"].startswith("response.")
        total.add(event.name, event.data)
    assert total.ended
    return total.answer()


def _texts(client: str, answer: dict[str, Any]) -> list[str]:
    """Return all texts of an answer."""
    if client == "chat":
        return [choice["message"]["content"] for choice in answer["choices"]]
    if client == "messages":
        return [block["text"] for block in answer["content"]]
    parts = ([part for item in answer["output"] for part in item["content"]]
             if client == "responses" else answer["candidates"][0]["content"]["parts"])  # fmt: skip
    return [part["text"] for part in parts]


def _ask(
    served: Served, client: str, *, stream: bool, usage: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make a call in the provider's dialect; return the client's answer, and the record's."""
    endpoint, model, _, _ = _OWN[client]
    more = {"stream_options": {"include_usage": True}} if client == "chat" and stream else {}
    call = called(served, path_of(client, model, stream=stream), model, stream=stream, **more)
    (entry,) = call.entries
    assert (call.status, entry.decision, entry.metadata["response"]) == (200, "SUCCESS", "fine")
    assert (entry.metadata["cost_certainty"] == "measured") == usage, call.raw
    kind = "text/event-stream; charset=utf-8" if stream else "application/json"
    assert call.headers["content-type"] == kind
    return (
        _added(endpoint, call.raw) if stream else _strict(call.raw),
        entry.metadata["answer"],
    )


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize("before", [b"", b": wait\n\n", b"opening"])
@pytest.mark.parametrize("client", _OWN)
def test_a_whole_answer_in_an_event_becomes_a_stream(
    google: Served, provider: RawProvider, client: str, before: bytes
) -> None:
    _, _, sent, events = _OWN[client]
    end = b"data: [DONE]\n\n" if client == "chat" else b""
    if before == b"opening":
        before = b"" if client == "gemini" else sse(events[:1])[0]
    replies(provider, event_stream(before, b"data: " + _json(sent) + b"\n\n", end))
    came, _ = _ask(google, client, stream=True)
    assert _texts(client, came) == ["fine"]
    assert "usage" not in sent or came["usage"] == sent["usage"]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
@pytest.mark.parametrize("client", _OWN)
def test_a_whole_answer_in_an_event_is_passed_on_as_it_comes(
    google: Served, provider: RawProvider, client: str, end: bytes
) -> None:
    _, model, sent, _ = _OWN[client]
    replies(provider, event_stream(b"data: " + _json(sent) + end))
    before = google.errors.stat().st_size
    raw = called(google, path_of(client, model, stream=True), model).raw
    assert b"fine" in raw
    # A listener that fails is not called again; the answer is then made from the record.
    assert b"the listener of a stream raised" not in google.errors.read_bytes()[before:]


def test_a_whole_answer_without_usage_becomes_a_stream_that_clients_can_count(
    google: Served, provider: RawProvider
) -> None:
    _, model, sent, _ = _OWN["messages"]
    replies(provider, whole(_json({**sent, "usage": None})))
    raw = called(google, "/v1/messages", model).raw
    events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: ")]
    (usage,) = [event["usage"] for event in events if event["type"] == "message_delta"]
    assert usage == {"input_tokens": 0, "output_tokens": 0}


@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
@pytest.mark.parametrize("client", _OWN)
def test_a_whole_answer_in_place_of_a_stream_becomes_one(
    google: Served, provider: RawProvider, client: str, kind: str
) -> None:
    _, _, sent, _ = _OWN[client]
    replies(provider, whole(_json(sent), kind=kind))
    came, recorded = _ask(google, client, stream=True)
    assert recorded == sent
    assert came == sent if client != "responses" else _texts(client, came) == ["fine"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("form", ["lines", "lines as events", "events", "a list"])
@pytest.mark.parametrize("client", _OWN)
def test_a_stream_in_another_form_becomes_the_form_that_was_asked_for(
    google: Served, provider: RawProvider, client: str, form: str, stream: bool
) -> None:
    _, _, _, events = _OWN[client]
    kind = {"lines": "application/x-ndjson", "a list": "application/json"}.get(form)
    body = {"events": b"".join(sse(events)), "a list": _json(events)}.get(form)
    body = body or b"\n".join(map(_json, events))
    replies(provider, whole(body, kind=kind or "text/event-stream"))
    came, recorded = _ask(google, client, stream=stream)
    assert _texts(client, came) == _texts(client, recorded) == ["fine"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("client", _OWN)
def test_a_number_that_json_cannot_express_is_null(
    google: Served, provider: RawProvider, client: str, name: str, stream: bool
) -> None:
    """Servers in Python write them, as for log probabilities; strict clients cannot read them."""
    _, _, sent, events = _OWN[client]
    odd = {"x_odd": [float(name), name], "x_text": f'\\"{name}'}
    if stream:
        replies(provider, event_stream(*[{**event, **odd} for event in events]))
    else:
        replies(provider, whole(_json({**sent, **odd})))
    came, _ = _ask(google, client, stream=stream)
    assert _texts(client, came) == ["fine"]
    if not stream:
        assert came == {**sent, **odd, "x_odd": [None, name]}


def test_a_later_chunk_with_a_number_that_json_cannot_express_is_read(
    google: Served, provider: RawProvider
) -> None:
    """Chunks that follow the first ones are passed on unparsed, unless they need to be read."""
    head, fine, end = sse(_CHUNKS)
    odd = {**_CHUNK, "choices": [{"index": 0, "delta": {"content": "fine"}, "x": float("nan")}]}
    sent = [head, fine.replace(b"fine", b"").replace(b'"stop"', b"null"), *sse([odd]),
            fine.replace(b"fine", b""), end, b"data: [DONE]\n\n"]  # fmt: skip

    def answer(connection: socket.socket, path: str, raw: bytes) -> bool:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        for event in sent if raw else ():
            connection.sendall(event)
        return False

    provider.answer = answer
    came, _ = _ask(google, "chat", stream=True)
    assert _texts("chat", came) == ["fine"]


@pytest.mark.parametrize("model", _ANSWERS)
@pytest.mark.parametrize("client", _CLIENTS)
@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b": processing\n\n\n"])
def test_a_byte_order_mark_or_a_comment_before_an_answer_is_left_out(
    google: Served, provider: RawProvider, client: str, model: str, before: bytes
) -> None:
    replies(provider, whole(before + _json(_ANSWERS[model])))
    call = called(google, path_of(client, model, stream=False), model, stream=False)
    (entry,) = call.entries
    assert (call.status, entry.metadata["cost_certainty"]) == (200, "measured")
    assert "fine" in json.dumps(_strict(call.raw))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("client", ["chat", "messages"])
def test_lines_without_the_end_of_the_answer_are_an_error(
    google: Served, provider: RawProvider, client: str, stream: bool
) -> None:
    _, model, _, events = _OWN[client]
    lines = [_json(event).replace(b'"stop"', b"null") for event in events[:3]]
    paths = replies(provider, whole(b"\n".join(lines), kind="application/x-ndjson"))
    call = called(google, path_of(client, model, stream=stream), model, stream=stream)
    (entry,) = call.entries
    assert (call.status, len(paths), entry.decision) == (502, 1, "ERROR")
    assert b"the stream ended before the answer did" in call.raw


@pytest.mark.parametrize("client", ["chat", "messages"])
@pytest.mark.parametrize("said", [b"busy", b'"busy"', b'{"error":{"message":"busy"}}'])
def test_an_error_in_a_stream_where_none_was_asked_for_is_one(
    google: Served, provider: RawProvider, client: str, said: bytes
) -> None:
    _, model, _, events = _OWN[client]
    paths = replies(provider, event_stream(*events[:3], b"event: error\ndata: " + said + b"\n\n"))
    call = called(google, path_of(client, model, stream=False), model, stream=False)
    (entry,) = call.entries
    assert (call.status, b"busy" in call.raw, len(paths)) == (502, True, 1)
    assert (entry.decision, entry.metadata["response"]) == ("ERROR", "fine")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("client", _CLIENTS)
def test_a_chunk_in_place_of_a_whole_answer_is_an_answer(
    google: Served, provider: RawProvider, client: str, stream: bool
) -> None:
    model, (choice,) = "gpt-4o-mini", completion("fine")["choices"]
    chunk = {**completion("fine"), "object": "chat.completion.chunk",
             "choices": [{**choice, "delta": choice["message"]}]}  # fmt: skip
    del chunk["choices"][0]["message"]
    replies(provider, whole(json.dumps(chunk).encode()))
    call = called(google, path_of(client, model, stream=stream), model, stream=stream)
    (entry,) = call.entries
    assert (call.status, b"fine" in call.raw) == (200, True)
    if client == "chat" and not stream:
        assert json.loads(call.raw) == completion("fine")
    assert (entry.metadata["response"], entry.metadata["cost_certainty"]) == ("fine", "measured")
    chunk["choices"][0]["finish_reason"] = None
    replies(provider, whole(json.dumps(chunk).encode()))
    call = called(google, path_of(client, model, stream=stream), model, stream=stream)
    assert (call.status, call.entries[-1].decision) == (502, "ERROR")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", _ANSWERS)
@pytest.mark.parametrize("client", _CLIENTS)
def test_a_stream_of_nothing_but_its_mark_is_no_answer(
    google: Served, provider: RawProvider, client: str, model: str, stream: bool
) -> None:
    replies(provider, event_stream(b": hi\n\n", b"data: [DONE]\n\n"))
    call = called(google, path_of(client, model, stream=stream), model, stream=stream)
    assert call.error["message"] == "the stream ended before the answer did"
    assert [entry.decision for entry in call.entries] == ["ERROR"]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
@pytest.mark.parametrize("form", ["", "?alt=sse"])
def test_a_client_of_gemini_gets_no_mark_that_is_not_json(
    google: Served, provider: RawProvider, form: str, end: bytes
) -> None:
    """Some servers that speak Gemini's API end their streams as OpenAI's end."""
    replies(provider, event_stream(_GEMINI_FINE, b"data: [DONE]" + end))
    path = f"/v1beta/models/{_GEMINI}:streamGenerateContent{form}"
    call = called(google, path, _GEMINI)
    assert (call.status, call.entries[-1].metadata["response"]) == (200, "fine")
    wanted = _GEMINI_FINE if form else [_GEMINI_FINE]
    assert json.loads(call.raw.removeprefix(b"data: ")) == wanted


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", _GEMINI])
@pytest.mark.parametrize(
    ("part", "named"),
    [({"type": "tool_use", "id": "t", "name": "look", "input": {}}, "the type `tool_use`, which"),
     ({"type": "secret words"}, "a type that")],
)  # fmt: skip
def test_a_part_that_chat_completions_does_not_have_is_refused_with_what_it_accepts(
    google: Served, provider: RawProvider, model: str, part: dict[str, Any], named: str
) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [part]},
                {"role": "user", "content": "on"}]  # fmt: skip
    call = called(google, "/v1/chat/completions", model, stream=False, messages=messages)
    assert (call.status, call.error["param"]) == (400, "messages[1].content[0]")
    said = call.error["message"]
    assert f"messages[1].content[0] has {named} Chat Completions does not have" in said
    assert "image_url" in said
    assert "tool_calls" in said
