"""Answers in another form than was asked for, answers that break off, and errors within answers.

A call is made again only if the provider cannot charge for what it has sent.
"""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.running import Served, serving
from tests.server.test_stray_answers import TOML, called, event_stream, replies
from tests.support.raw_provider import RawProvider, whole
from tests.support.wire import completion, message

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
