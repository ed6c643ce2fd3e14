"""One answer of a provider that says little about the next: a stray 404, a time to come again."""

from __future__ import annotations

import json
import socket
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from remit.gateway.auth import KeyStore
from remit.gateway.budget import BudgetScope, TokenBudgeter
from tests.server.running import Served, new_session, serving
from tests.support.raw_provider import RawProvider, whole
from tests.support.wire import completion, message, message_events, response, sse

BEFORE = "provider"
TOML = "[gateway]\nretry_base_ms = 1\nretry_max_ms = 1000\nfailure_threshold = 1000\n"
_CHAT = completion("translated")
_NATIVE = response("native")


def _replies(provider: RawProvider, *answers: bytes) -> list[str]:
    """Have the provider give ``answers`` in turn, the last for ever; the paths it is asked."""
    left, paths = list(answers), []

    def answer(connection: socket.socket, path: str, raw: bytes) -> bool:
        paths.append(path)
        connection.sendall(left.pop(0) if len(left) > 1 else left[0])
        return True

    provider.answer = answer
    return paths


def _responses(served: Served) -> str:
    body = {"model": "gpt-4o-mini", "max_output_tokens": 50, "input": "hi"}
    status, raw, _ = served.ask("POST", "/v1/responses", body)
    assert status == 200, raw
    text: str = json.loads(raw)["output"][0]["content"][0]["text"]
    return text


def test_a_stray_404_turns_responses_off_for_one_call(
    served: Served, provider: RawProvider
) -> None:
    missing = whole(b"<html>404</html>", "text/html", "404 Not Found")
    native, chat = (whole(json.dumps(answer).encode()) for answer in (_NATIVE, _CHAT))
    _replies(provider, missing, chat, native)
    assert _responses(served) == "translated"
    assert _responses(served) == "native"
    # A server that says so again and again has none: its calls are translated at once.
    for _ in range(3):
        _replies(provider, missing, chat)
        assert _responses(served) == "translated"
    paths = _replies(provider, chat)
    assert _responses(served) == "translated"
    assert paths == ["/v1/chat/completions"]


def test_a_failure_after_a_missing_endpoint_is_answered_as_it_was(
    provider: RawProvider, tmp_path: Path
) -> None:
    """A fallback that is not set up does not hide the failure of the translated attempt."""
    missing = whole(b"<html>404</html>", "text/html", "404 Not Found")
    error = {"error": {"message": "overloaded", "type": "server_error"}}
    failure = whole(json.dumps(error).encode(), status="500 Internal Server Error")
    toml = '[gateway]\nmax_retries = 0\n[gateway.fallbacks]\ngpt-4o-mini = ["nowhere/m"]\n'
    body = {"model": "gpt-4o-mini", "max_output_tokens": 50, "input": "hi"}
    with serving(tmp_path / "root", provider.url, toml=toml) as served:
        _replies(provider, missing, failure)
        session = new_session()
        named = {"x-remit-session": session}
        status, raw, _ = served.ask("POST", "/v1/responses", body, headers=named)
        assert (status, b"overloaded" in raw) == (502, True)
        assert not list(served.entries("PROMPT_REJECTED", session))


def test_a_missing_endpoint_costs_no_retry(provider: RawProvider, tmp_path: Path) -> None:
    missing = whole(b"<html>404</html>", "text/html", "404 Not Found", "retry-after: 90\r\n")
    chat, session = whole(json.dumps(_CHAT).encode()), new_session()
    body = {"model": "gpt-4o-mini", "max_output_tokens": 50, "input": "hi"}
    with serving(tmp_path / "root", provider.url, toml="[gateway]\nmax_retries = 0\n") as served:
        # A call that only the missing endpoint takes is refused by its field.
        paths = _replies(provider, missing)
        status, raw, _ = served.ask("POST", "/v1/responses", {**body, "top_logprobs": 2},
                                    headers={"x-remit-session": session})  # fmt: skip
        assert (status, json.loads(raw)["error"]["param"]) == (400, "top_logprobs")
        assert (paths.count("/v1/responses"), paths.count("/v1/chat/completions")) == (1, 0)
        assert [entry.decision for entry in served.entries("EXCHANGE", session)] == ["ERROR"]
        paths = _replies(provider, missing, chat)
        assert _responses(served) == "translated"
        assert paths == ["/v1/responses", "/v1/chat/completions"]
        paths = _replies(provider, missing)
        assert served.ask("POST", "/v1/responses", body)[0] == 400
        assert paths == ["/v1/responses", "/v1/chat/completions"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("form", ["seconds", "date", "milliseconds"])
def test_a_provider_is_not_asked_again_before_the_time_that_it_names(
    served: Served, provider: RawProvider, form: str, path: str
) -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    more = {
        "seconds": "retry-after: 90 ",
        "date": f"retry-after: {at}",
        "milliseconds": "retry-after-ms: 90000",
    }[form]
    error = b'{"error":{"message":"Rate limit reached","type":"rate_limit_error"}}'
    paths = _replies(provider, whole(error, status="429 Too Many Requests", more=f"{more}\r\n"))
    body: dict[str, Any] = {"model": "gpt-4o-mini", "max_tokens": 20}
    body["messages"] = [{"role": "user", "content": "hi"}]
    status, raw, headers = served.ask("POST", path, body)
    assert status == 429, raw
    assert len(paths) == 1
    assert "retry-after" in headers or "retry-after-ms" in headers
    assert all(value == value.strip() for value in headers.values())


_PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")


def _asked(path: str, model: str, *, stream: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"model": model, "stream": stream, "max_tokens": 20}
    if path == "/v1/responses":
        return {"model": model, "stream": stream, "max_output_tokens": 20, "input": "hi"}
    return {**body, "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("path", _PATHS)
@pytest.mark.parametrize(
    "said",
    [
        {"error": {"message": "busy", "type": "server_error"}},
        {"error": "busy"},
        {"type": "error", "error": {"type": "api_error", "message": "busy"}},
        {"id": "g", "choices": [{"index": 0, "message": {"role": "assistant", "content": ""},
                                 "error": {"code": 502, "message": "busy"}}]},
    ],
    ids=["an object", "a text", "Anthropic's", "OpenRouter's"],
)  # fmt: skip
def test_an_error_with_status_200_is_an_error_to_the_client(
    served: Served, provider: RawProvider, path: str, said: dict[str, Any]
) -> None:
    model = "claude-sonnet-4-5" if path == "/v1/messages" else "gpt-4o-mini"
    paths = _replies(provider, whole(json.dumps(said).encode()))
    session = new_session()
    headers = {"x-remit-session": session}
    status, raw, answered = served.ask(
        "POST", path, _asked(path, model, stream=False), headers=headers
    )
    assert status == 502
    assert "busy" in json.loads(raw)["error"]["message"]
    assert answered["x-should-retry"] == "false"
    assert len(paths) > 1
    last = served.entries("EXCHANGE", session)[-1]
    assert (last.decision, last.metadata["cost_usd"]) == ("ERROR", 0)


_MESSAGE = message_events(message("fine"))
_CHUNK = {"id": "c", "object": "chat.completion.chunk", "model": "gpt-4o-mini"}
_EMPTY, _SAID, _STOP = (
    {**_CHUNK, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
    for delta, reason in (({"role": "assistant", "content": ""}, None), ({"content": "fine"}, None),
                          ({}, "stop"))
)  # fmt: skip
_UNREADABLE = {
    "gpt-4o-mini": [{**_CHAT, "choices": None}, {**_CHAT, "choices": []}],
    "claude-sonnet-4-5": [{**message("x"), "content": None}],
}
_GEMINI = "/v1beta/models/gpt-4o-mini:generateContent"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [*_PATHS, _GEMINI])
def test_an_answer_that_cannot_be_read_for_translation_is_no_success(
    served: Served, provider: RawProvider, path: str, stream: bool
) -> None:
    model = "gpt-4o-mini" if path in ("/v1/messages", _GEMINI) else "claude-sonnet-4-5"
    body = _asked(path, model, stream=stream)
    if path == _GEMINI:
        path = path.replace("generate", "streamGenerate") if stream else path
        body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
        body["generationConfig"] = {"maxOutputTokens": 20}
    whole_ones = [json.dumps(answer).encode() for answer in _UNREADABLE[model]]
    for sent in (*whole_ones, whole_ones[0][:-9]):
        paths, session = _replies(provider, whole(sent)), new_session()
        status, raw, headers = served.ask("POST", path, body, headers={"x-remit-session": session})
        assert (status, headers["x-should-retry"], len(paths)) == (502, "false", 1)
        assert b"cannot be translated" in raw
        (entry,) = served.entries("EXCHANGE", session)
        assert (entry.decision, entry.metadata["error_code"]) == ("ERROR", "SERVER_ERROR")
        is_stated = sent in whole_ones
        stated = 5 if model == "gpt-4o-mini" else 7
        assert entry.metadata["output_tokens"] == (stated if is_stated else 20)
        assert (entry.metadata["cost_certainty"] == "upper_bound") != is_stated


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", _GEMINI])
@pytest.mark.parametrize("chunks", [0, 2])
def test_a_stream_that_cannot_be_read_for_translation_is_no_success(
    served: Served, provider: RawProvider, path: str, chunks: int
) -> None:
    chat = path != "/v1/responses"
    body = _asked(path, "gpt-4o-mini" if chat else "claude-sonnet-4-5", stream=True)
    if path == _GEMINI:
        path = path.replace("generate", "streamGenerate")
        body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    if chat:
        events = [_EMPTY, *[_SAID] * chunks]
        odd = {**_CHUNK, "choices": [{"index": 0, "delta": {"content": 5}}]}
        end: list[dict[str, Any]] = [{**_STOP, "usage": {**_CHAT["usage"]}}]
    else:
        events, end = _MESSAGE[: 1 + chunks], _MESSAGE[-2:]
        odd = {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta"}}
    session = new_session()
    paths = _replies(provider, whole(b"".join(sse([*events, odd, *end])), kind="text/event-stream"))
    status, raw, _ = served.ask("POST", path, body, headers={"x-remit-session": session})
    assert len(paths) == 1
    assert status == (200 if chunks else 502)
    assert b"cannot be translated" in raw
    (entry,) = served.entries("EXCHANGE", session)
    assert (entry.decision, entry.metadata["error_code"]) == ("ERROR", "SERVER_ERROR")


@pytest.mark.parametrize("chunks", [0, 2])
def test_an_error_in_a_stream_is_one(served: Served, provider: RawProvider, chunks: int) -> None:
    choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": None}
    chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}
    error = {"object": "error", "message": "out of memory", "code": 500}
    events = b"".join(sse([*[chunk] * chunks, error]))
    _replies(provider, whole(events, kind="text/event-stream"))
    body = _asked("/v1/chat/completions", "gpt-4o-mini", stream=True)
    status, raw, _ = served.ask("POST", "/v1/chat/completions", body)
    assert (status == 200) == bool(chunks)
    said = raw.rpartition(b"data: {")[2] if chunks else raw[1:]
    assert "out of memory" in json.loads(b"{" + said)["error"]["message"]
    assert b'"object":"error"' not in raw


_OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
_NEW = {"type": "response.created", "response": {**_NATIVE, "status": "in_progress", "output": []}}
_FAILED = {"type": "response.failed", "response": {
    **_NATIVE, "status": "failed", "error": {"code": "server_error", "message": "busy"},
    "output": [], "usage": None,
}}  # fmt: skip
_OPENINGS = {
    "/v1/messages": ([_MESSAGE[0], {"type": "ping"}, _OVERLOADED], _MESSAGE),
    "/v1/responses": (
        [_NEW, {**_NEW, "type": "response.in_progress"}, _FAILED],
        [_NEW, {"type": "response.completed", "response": response("fine")}],
    ),
}


@pytest.mark.parametrize("path", _OPENINGS)
def test_a_failed_opening_is_tried_again(provider: RawProvider, tmp_path: Path, path: str) -> None:
    model = "claude-sonnet-4-5" if path == "/v1/messages" else "gpt-4o-mini"
    body = _asked(path, model, stream=True)
    bad, good = (
        whole(b"".join(sse(events)), kind="text/event-stream") for events in _OPENINGS[path]
    )
    with serving(tmp_path / "root", provider.url, toml=TOML) as served:
        paths = _replies(provider, bad, good)
        status, raw, _ = served.ask("POST", path, body)
        assert status == 200, raw
        assert b"fine" in raw
        assert b"busy" not in raw
        assert b"Overloaded" not in raw
        assert len(paths) == 2
        _replies(provider, bad)
        _, raw, _ = served.ask("POST", path, body)
        assert b"busy" in raw or b"Overloaded" in raw


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
    body = _asked("/v1/messages", "claude-sonnet-4-5", stream=True)
    sent = json.dumps(body).encode()
    head = served.head(f"content-length: {len(sent)}").replace(b"chat/completions", b"messages")
    with served.connected(head + sent) as connection:
        got = b""
        while got.count(b"event: ping") < 3:
            got += connection.recv(4096)
        pinged.set()


def test_a_stream_without_content_arrives_as_it_is(provider: RawProvider, tmp_path: Path) -> None:
    toml = f'{TOML}[providers.gemini]\nkind = "gemini"\nbase_url = "{provider.url}/v1beta"\n'
    toml += 'default_model = "gemini-2.5-flash"\napi_key = "AIza-up"\n'
    path = "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
    body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    with serving(tmp_path / "root", provider.url, toml=toml) as served:
        for event in (
            {"promptFeedback": {"blockReason": "SAFETY"}},
            {"candidates": [{"finishReason": "SAFETY", "index": 0}]},
            {"candidates": [{"content": {"role": "model", "parts": []}, "finishReason": "STOP"}]},
        ):
            wire = b"".join(sse([event]))
            _replies(provider, whole(wire, kind="text/event-stream"))
            status, raw, _ = served.ask("POST", path, body)
            assert (status, json.loads(raw.removeprefix(b"data: "))) == (200, event)


def test_bytes_in_place_of_events_are_not_passed_to_another_dialect(
    served: Served, provider: RawProvider
) -> None:
    body = _asked("/v1/chat/completions", "claude-sonnet-4-5", stream=True)
    _replies(provider, whole(b"\x00\x01BINARY", kind="application/octet-stream"))
    status, raw, _ = served.ask("POST", "/v1/chat/completions", body)
    assert (status, json.loads(raw)["error"]["code"]) == (502, "answer_untranslatable")


def test_an_answer_from_the_cache_follows_a_failed_opening_alone(
    provider: RawProvider, tmp_path: Path
) -> None:
    toml = f'{TOML}max_retries = 0\n[gateway.answer_cache]\nkeys = ["cached"]\n'
    toml += '[gateway.fallbacks]\n"claude-sonnet-4-5" = ["gpt-4o-mini"]\n'
    body = _asked("/v1/messages", "claude-sonnet-4-5", stream=True)
    opening = whole(b"".join(sse(_OPENINGS["/v1/messages"][0])), kind="text/event-stream")
    with serving(tmp_path / "root", provider.url, toml=toml) as served:
        with KeyStore(served.ledger) as store:
            key = store.create("cached", role="agent", models=())
        TokenBudgeter(served.ledger).allocate(BudgetScope(key_id=key.key_id), token_limit=10**9)
        _replies(provider, whole(json.dumps(completion("from the cache")).encode()))
        first = served.ask("POST", "/v1/messages", {**body, "model": "gpt-4o-mini"}, token=key.key)
        assert first[0] == 200, first
        paths = _replies(provider, opening)
        status, raw, _ = served.ask("POST", "/v1/messages", body, token=key.key)
        assert (status, raw.count(b"event: message_start")) == (200, 1)
        assert b"from the cache" in raw
        assert b"Overloaded" not in raw
        assert len(paths) == 1
