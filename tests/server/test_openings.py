"""Streams that begin without content, and errors behind such a beginning or behind content."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.gateway.auth import KeyStore
from remit.gateway.budget import BudgetScope, TokenBudgeter
from tests.server.running import Served, serving
from tests.server.test_stray_answers import TOML, asked, called, event_stream, replies
from tests.support.raw_provider import RawProvider, whole
from tests.support.wire import completion, message, message_events, response, sse

BEFORE = "provider"
_MESSAGE = message_events(message("fine"))
_CHUNK = {"id": "c", "object": "chat.completion.chunk", "model": "gpt-4o-mini"}
_NATIVE = response("native")
_OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
_NEW = {"type": "response.created", "response": {**_NATIVE, "status": "in_progress", "output": []}}
_FAILED = {"type": "response.failed", "response": {
    **_NATIVE, "status": "failed", "error": {"code": "server_error", "message": "busy"},
    "output": [], "usage": None,
}}  # fmt: skip
_OPENINGS = {
    "/v1/messages": ([_MESSAGE[0], {"type": "ping"}, _OVERLOADED], _MESSAGE),
    "/v1/messages?beta=true": ([*_MESSAGE[:2], {"type": "ping"}, _OVERLOADED], _MESSAGE),
    "/v1/responses": (
        [_NEW, {**_NEW, "type": "response.in_progress"}, _FAILED],
        [_NEW, {"type": "response.completed", "response": response("fine")}],
    ),
    "/v1/responses?x=1": (
        [_NEW, {"type": "response.output_item.added", "output_index": 0,
                "item": {"id": "m", "type": "message", "content": []}}, _FAILED],
        [_NEW, {"type": "response.completed", "response": response("fine")}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("path", _OPENINGS)
def test_a_failed_opening_is_tried_again(provider: RawProvider, tmp_path: Path, path: str) -> None:
    bad, good = (event_stream(*events) for events in _OPENINGS[path])
    with serving(tmp_path / "root", provider.url, toml=TOML) as served:
        paths = replies(provider, bad, good)
        status, raw, *_ = called(served, path)
        assert status == 200, raw
        assert b"fine" in raw
        assert b"busy" not in raw
        assert b"Overloaded" not in raw
        assert len(paths) == 2
        replies(provider, bad)
        raw = called(served, path).raw
        assert b"busy" in raw or b"Overloaded" in raw


_ROLE = {**_CHUNK, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
_AZURE = {"id": "", "object": "", "model": "", "choices": [], "prompt_filter_results": []}
_FINE = {**_CHUNK, "choices": [{"index": 0, "delta": {"content": "fine"},
                                "finish_reason": "stop"}]}  # fmt: skip
_BUSY_CHUNK = {"error": {"message": "busy", "type": "server_error"}}
_PARTLESS = {"candidates": [{"index": 0, "content": {"role": "model", "parts": []}}]}
_GOOGLE_BUSY = {"error": {"code": 503, "status": "UNAVAILABLE", "message": "busy"}}
_GOOGLE_FINE = {
    "candidates": [
        {
            "index": 0,
            "finishReason": "STOP",
            "content": {"role": "model", "parts": [{"text": "fine"}]},
        }
    ]
}
_GOOGLE = "/v1beta/models/google/gemini-2.5-flash:streamGenerateContent?alt=sse"
_WITHOUT_CONTENT = {
    "a role": ("/v1/chat/completions", [_ROLE, _BUSY_CHUNK], [_ROLE, _FINE]),
    "Azure's": ("/v1/chat/completions", [_AZURE, _ROLE, _BUSY_CHUNK], [_AZURE, _FINE]),
    "an error in disguise": (
        "/v1/chat/completions",
        [_ROLE, {**_CHUNK, "choices": None, "base_resp": {"status_code": 1, "status_msg": "busy"}}],
        [_ROLE, _FINE],
    ),
    "no parts": (_GOOGLE, [_PARTLESS, _GOOGLE_BUSY], [_PARTLESS, _GOOGLE_FINE]),
}


_BREAKS: dict[str, tuple[str, list[Any], list[Any]]] = {
    "translated": ("/v1/messages", [], [_ROLE]),
    "message_start": ("/v1/messages", [], [_MESSAGE[0]]),
}


@pytest.fixture(scope="module")
def google(provider: RawProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a provider of Gemini's dialect too."""
    toml = f'{TOML}[providers.google]\nkind = "gemini"\nbase_url = "{provider.url}/v1beta"\n'
    toml += 'default_model = "gemini-2.5-flash"\napi_key = "AIza-up"\n'
    with serving(tmp_path_factory.mktemp("google") / "root", provider.url, toml=toml) as served:
        yield served


@pytest.mark.parametrize("form", _WITHOUT_CONTENT)
def test_an_error_behind_chunks_without_content_is_tried_again(
    google: Served, provider: RawProvider, form: str
) -> None:
    path, bad, good = _WITHOUT_CONTENT[form]
    for failures in (1, 2):
        paths = replies(provider, *[event_stream(*bad)] * failures, event_stream(*good))
        status, raw, *_ = called(google, path, "gpt-4o-mini")
        assert (status, raw.count(b"fine"), b"busy" in raw) == (200, 1, False)
        assert raw.count(sse([good[0]])[0].strip()) <= 1
        assert len(paths) == failures + 1
    replies(provider, event_stream(*bad))
    assert b"busy" in called(google, path, "gpt-4o-mini").raw


@pytest.mark.parametrize("form", ["a role", "no parts", "translated", "message_start"])
def test_a_stream_that_breaks_behind_a_chunk_without_content_is_not_asked_again(
    google: Served, provider: RawProvider, form: str
) -> None:
    """The provider may charge it, so each further attempt would cost its bound."""
    path, _, good = _BREAKS.get(form) or _WITHOUT_CONTENT[form]
    paths = replies(provider, event_stream(good[0]))
    call = called(google, path, "" if form == "message_start" else "gpt-4o-mini")
    assert b"the stream ended before the answer did" in call.raw
    assert len(paths) == len(call.entries) == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", _GOOGLE])
@pytest.mark.parametrize(
    "begun", [b": thinking\n\n" * 3, b"retry: 3000\n\n", b'{"id": "c", "choices', b'data: {"id"']
)
def test_a_stream_that_breaks_before_any_chunk_is_not_asked_again(
    google: Served, provider: RawProvider, path: str, begun: bytes
) -> None:
    """Something came, so the provider works on the answer and may charge it."""
    paths = replies(provider, whole(begun, kind="text/event-stream"))
    call = called(google, path, "gpt-4o-mini")
    assert b"the stream ended before the answer did" in call.raw
    (entry,) = call.entries
    assert (len(paths), entry.metadata["cost_certainty"]) == (1, "upper_bound")
    error = {"error": {"message": "busy", "type": "server_error"}}
    refused = whole(b": thinking\n\n" + sse([error])[0], kind="text/event-stream")
    paths = replies(provider, refused)
    called(google, path, "gpt-4o-mini")
    assert len(paths) > 1  # the provider says itself that it made nothing


@pytest.mark.parametrize("comment", [b"", b": thinking\n\n"])
@pytest.mark.parametrize("form", ["a role", "no parts"])
def test_a_chunk_without_content_does_not_wait_for_long(
    google: Served, provider: RawProvider, form: str, comment: bytes
) -> None:
    """The provider thinks until the client has seen its first chunk."""
    path, bad, good = _WITHOUT_CONTENT[form]
    begun = sse(bad[:1])[0] + comment
    seen = threading.Event()

    def answer(connection: socket.socket, path: str, raw: bytes) -> bool:
        if raw:
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
            connection.sendall(head + begun)
            if seen.wait(20):
                connection.sendall(b"".join(sse(good[1:])))
        return False

    provider.answer = answer
    sent = json.dumps(asked(path)).encode()
    head = google.head(f"content-length: {len(sent)}", path=path)
    with google.connected(head + sent) as connection:
        got = b""
        while b'"role"' not in got or comment.strip() not in got:
            got += connection.recv(4096)
        assert b"fine" not in got
        seen.set()
        while b"fine" not in got:
            got += connection.recv(4096)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_comment_ends_the_wait_for_content(
    google: Served, provider: RawProvider, path: str
) -> None:
    """In the order of the provider; then no other attempt may answer."""
    is_chat = path == "/v1/chat/completions"
    chunk, error = (_ROLE, _BUSY_CHUNK) if is_chat else (_MESSAGE[0], _OVERLOADED)
    wire = sse([chunk])[0] + b": wait\n\n"
    paths = replies(provider, event_stream(wire, error))
    status, raw, *_ = called(google, path)
    assert (status, len(paths)) == (200, 1)
    assert raw.startswith(wire)


@pytest.mark.parametrize(
    "first", [b": wait\n\n", b"retry: 3000\n\n", b"event: ping\n\n", b"id: 1\n\n", b"\n",
              b"\xef\xbb\xbf: wait\n\n", b"retry: 3000\n\n: wait\n\n"],
)  # fmt: skip
def test_a_whole_answer_follows_events_without_data_of_a_failed_attempt(
    google: Served, provider: RawProvider, first: bytes
) -> None:
    fine = whole(json.dumps(completion("fine")).encode())
    replies(provider, event_stream(first, _BUSY_CHUNK), fine)
    status, raw, *_ = called(google)
    assert (status, raw.count(b"fine"), b"busy" in raw) == (200, 1, False)
    assert raw.startswith(first)
    assert b"[DONE]" in raw


def test_pings_reach_a_client_before_its_answer(served: Served, provider: RawProvider) -> None:
    events = sse([_MESSAGE[0], *[{"type": "ping"}] * 3])

    def answer(connection: socket.socket, path: str, raw: bytes) -> bool:
        if raw:
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
            connection.sendall(head + b"".join(events))
            pinged.wait(20)
        return False

    pinged = threading.Event()
    provider.answer = answer
    sent = json.dumps(asked("/v1/messages")).encode()
    head = served.head(f"content-length: {len(sent)}", path="/v1/messages")
    with served.connected(head + sent) as connection:
        got = b""
        while got.count(b"event: ping") < 3:
            got += connection.recv(4096)
        pinged.set()


@pytest.mark.parametrize(
    "event",
    [
        {"promptFeedback": {"blockReason": "SAFETY"}},
        {"candidates": [{"finishReason": "SAFETY", "index": 0}]},
        {"candidates": [{"content": {"role": "model", "parts": []}, "finishReason": "STOP"}]},
    ],
)
def test_a_stream_without_content_arrives_as_it_is(
    google: Served, provider: RawProvider, event: dict[str, Any]
) -> None:
    replies(provider, event_stream(event))
    status, raw, *_ = called(google, _GOOGLE)
    assert (status, json.loads(raw.removeprefix(b"data: "))) == (200, event)


def test_an_answer_from_the_cache_follows_a_failed_opening_alone(
    provider: RawProvider, tmp_path: Path
) -> None:
    toml = f'{TOML}max_retries = 0\n[gateway.answer_cache]\nkeys = ["cached"]\n'
    toml += '[gateway.fallbacks]\n"claude-sonnet-4-5" = ["gpt-4o-mini"]\n'
    body = asked("/v1/messages")
    opening = event_stream(*_OPENINGS["/v1/messages"][0])
    with serving(tmp_path / "root", provider.url, toml=toml) as served:
        with KeyStore(served.ledger) as store:
            key = store.create("cached", role="agent", models=())
        TokenBudgeter(served.ledger).allocate(BudgetScope(key_id=key.key_id), token_limit=10**9)
        replies(provider, whole(json.dumps(completion("from the cache")).encode()))
        first = served.ask("POST", "/v1/messages", {**body, "model": "gpt-4o-mini"}, token=key.key)
        assert first[0] == 200, first
        paths = replies(provider, opening)
        status, raw, _ = served.ask("POST", "/v1/messages", body, token=key.key)
        assert (status, raw.count(b"event: message_start")) == (200, 1)
        assert b"from the cache" in raw
        assert b"Overloaded" not in raw
        assert len(paths) == 1


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/v1/responses", b'event: error\ndata: {"message":"busy"}'),
        ("/v1/messages", b'data: {"type":"error","error":{"type":"api_error","message":"busy"}}'),
        ("/v1/messages", b'data: {"error":{"type":"api_error","message":"busy"}}'),
    ],
)
def test_a_client_sees_an_error_by_what_its_sdk_reads(
    served: Served, provider: RawProvider, path: str, error: bytes
) -> None:
    """Those of Messages read the event's name, those of Responses its data."""
    is_messages = path == "/v1/messages"
    said = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0,
            "item_id": "m", "delta": "so"}  # fmt: skip
    events = _MESSAGE[:3] if is_messages else [said]
    replies(provider, event_stream(*events, error + b"\n\n"))
    last = called(served, path).raw.rstrip().rpartition(b"\n\n")[2]
    value = json.loads(last.rpartition(b"data: ")[2])
    assert b"busy" in last
    assert last.startswith(b"event: error") if is_messages else value["type"] == "error"


def test_a_whole_response_that_calls_itself_a_stream_keeps_its_id(
    google: Served, provider: RawProvider
) -> None:
    replies(provider, event_stream(json.dumps(response("fine")).encode()))
    last = json.loads(called(google, "/v1/responses").raw.rpartition(b"data: ")[2])
    assert last["type"] == "response.completed"
    status, raw, _ = google.ask("GET", f"/v1/responses/{last['response']['id']}")
    assert (status, json.loads(raw)["output"]) == (200, last["response"]["output"])


@pytest.mark.parametrize("blank", [b"", b"\n\n"])
def test_a_cut_answer_that_calls_itself_a_stream_is_no_answer(
    google: Served, provider: RawProvider, blank: bytes
) -> None:
    text = json.dumps(completion("fine")).encode()
    replies(provider, event_stream(text[:1] + blank + text[1:-9]))
    call = called(google)
    assert call.status == 502
    assert {entry.decision for entry in call.entries} == {"ERROR"}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("form", ["of the choice", "of x_groq", "of the event"])
def test_a_text_next_to_an_error_reaches_the_client(
    google: Served, provider: RawProvider, path: str, form: str
) -> None:
    """The text was produced, so the call is not made again."""
    choice: dict[str, Any] = {"index": 0, "delta": {"content": "some"}, "finish_reason": "error"}
    said: dict[str, Any] = {"x_groq": {"error": "busy"}}
    if form == "of the event":
        said = {"error": {"message": "busy"}}
    if form == "of the choice":
        choice, said = {**choice, "error": {"code": 502, "message": "busy"}}, {}
    paths = replies(provider, event_stream({**_CHUNK, "choices": [choice], **said}))
    status, raw, _, entries = called(google, path, "gpt-4o-mini")
    assert (status, b'"some"' in raw, raw.count(b"busy") >= 1) == (200, True, True)
    assert len(paths) == len(entries) == 1
    assert entries[0].metadata["response"] == "some"


_PARTS = [
    {"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": "so "}]}}]},
    _GOOGLE_FINE,
]
_WITHOUT_A_BLANK_LINE: dict[str, tuple[str, str, list[dict[str, Any]]]] = {
    "its own": ("/v1/chat/completions", "gpt-4o-mini", [_ROLE, _FINE]),
    "translated": ("/v1/messages", "gpt-4o-mini", [_ROLE, _FINE]),
    "Gemini's": (_GOOGLE, "", _PARTS),
    "Gemini's, translated": ("/v1/chat/completions", "google/gemini-2.5-flash", _PARTS),
    "messages": ("/v1/messages", "", _MESSAGE),
}


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("form", _WITHOUT_A_BLANK_LINE)
def test_the_last_event_of_an_answer_needs_no_blank_line(
    google: Served, provider: RawProvider, form: str, end: bytes
) -> None:
    """What is recorded as a success has reached the client, to its end."""
    path, model, events = _WITHOUT_A_BLANK_LINE[form]
    wire = sse(events)
    replies(provider, event_stream(*wire[:-1], wire[-1].rstrip() + end))
    status, raw, _, (entry,) = called(google, path, model)
    assert (status, entry.decision) == (200, "SUCCESS")
    assert b"fine" in raw
    ends = (b"message_stop", b'"finish_reason":"stop"', b'"finishReason":"STOP"')
    assert any(end in raw.replace(b": ", b":") for end in ends)


_NO_ERROR = {"error": {"code": 0, "message": ""}}
_USAGE = {"usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}}
_GOOGLE_USAGE = {"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 7,
                                   "totalTokenCount": 12}}  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", _GOOGLE])
@pytest.mark.parametrize("model", ["gpt-4o-mini", "google/gemini-2.5-flash"])
def test_an_error_without_a_value_in_each_chunk_is_none(
    google: Served, provider: RawProvider, path: str, model: str
) -> None:
    if path == _GOOGLE and model == "gpt-4o-mini":
        path = _GOOGLE.replace("google/gemini-2.5-flash", "gpt-4o-mini")
    is_chat = model == "gpt-4o-mini"
    events = (
        [_ROLE, {**_FINE, **_USAGE}] if is_chat else [_PARTS[0], {**_GOOGLE_FINE, **_GOOGLE_USAGE}]
    )
    end = [b"data: [DONE]\n\n"] if is_chat else []
    paths = replies(provider, event_stream(*[{**event, **_NO_ERROR} for event in events], *end))
    status, raw, _, (entry,) = called(google, path, model)
    assert (status, b"fine" in raw, len(paths)) == (200, True, 1)
    assert (entry.decision, entry.metadata["input_tokens"]) == ("SUCCESS", 5)


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "text/event-stream"])
@pytest.mark.parametrize("begun", [b"dat", b": wait\n\n", b"event: x\n", b'data: {"id"'])
def test_a_connection_that_breaks_in_the_opening_is_not_asked_again(
    google: Served, provider: RawProvider, begun: bytes, kind: str
) -> None:
    """A proxy may declare any type; the provider may charge what it began."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: 999\r\n\r\n"
    paths: list[str] = []

    def answer(connection: socket.socket, path: str, raw: bytes) -> bool:
        paths.append(path)
        connection.sendall(head.encode() + begun)
        return False

    provider.answer = answer
    (entry,) = called(google).entries
    assert (len(paths), entry.metadata["cost_certainty"]) == (1, "upper_bound")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize(
    "first", [b"\xef\xbb\xbf", b": ping\n", b"retry: 3000\n\n", b"id: 1\n", b"\xef\xbb\xbf: a\n\n"]
)
def test_a_whole_answer_in_a_stream_may_follow_fields_without_data(
    google: Served, provider: RawProvider, path: str, first: bytes
) -> None:
    paths = replies(provider, event_stream(first + json.dumps(completion("fine")).encode()))
    status, raw, _, (entry,) = called(google, path, "gpt-4o-mini")
    assert (status, b"fine" in raw, len(paths)) == (200, True, 1)
    assert (entry.decision, entry.metadata["cost_certainty"]) == ("SUCCESS", "measured")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", _GOOGLE])
@pytest.mark.parametrize("said", [_GOOGLE_BUSY, {"x": 1}])
def test_a_list_in_place_of_a_stream_is_an_error(
    google: Served, provider: RawProvider, path: str, said: dict[str, Any]
) -> None:
    """Gemini states an error in a list, and such a refusal is free; any other list may be paid."""
    replies(provider, event_stream(json.dumps([said], indent=1).encode()))
    call = called(google, path, "google/gemini-2.5-flash")
    last = call.entries[-1]
    assert (last.decision, b"busy" in call.raw) == ("ERROR", said is _GOOGLE_BUSY)
    assert (last.metadata["cost_usd"] == 0) == (said is _GOOGLE_BUSY)
