"""One answer of a provider that says little about the next: a stray 404, a time to come again."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from websockets.sync.client import connect

from remit.ledger import LedgerEntry
from remit.providers.sse import SseParser
from remit.providers.wire import stream_sum
from tests.server.running import FORM, Served, form, new_session, serving
from tests.support.raw_provider import RawProvider, whole
from tests.support.wire import completion, message, message_events, response, sse

BEFORE = "provider"
TOML = "[gateway]\nretry_base_ms = 1\nretry_max_ms = 1000\nfailure_threshold = 1000\n"
_CHAT = completion("translated")
_NATIVE = response("native")


def replies(provider: RawProvider, *answers: bytes) -> list[str]:
    """Have the provider give ``answers`` in turn, the last for ever; the paths it is asked."""
    left, paths = list(answers), []

    def answer(connection: socket.socket, path: str, raw: bytes) -> bool:
        paths.append(path)
        connection.sendall(left.pop(0) if len(left) > 1 else left[0])
        return True

    provider.answer = answer
    return paths


def event_stream(*events: bytes | dict[str, Any]) -> bytes:
    """Return a stream of events; bytes stand in it as they are."""
    parts = [one if isinstance(one, bytes) else sse([one])[0] for one in events]
    return whole(b"".join(parts), kind="text/event-stream")


def asked(path: str, model: str = "", *, stream: bool = True) -> dict[str, Any]:
    """Return the body of a call; without a model, of the one of the path's own provider."""
    model = model or ("claude-sonnet-4-5" if "messages" in path else "gpt-4o-mini")
    body: dict[str, Any] = {"model": model, "stream": stream, "max_tokens": 20}
    if path.startswith("/v1beta"):
        return {"contents": [{"role": "user", "parts": [{"text": "hi"}]}],
                "generationConfig": {"maxOutputTokens": 20}}  # fmt: skip
    if path.startswith("/v1/responses"):
        return {"model": model, "stream": stream, "max_output_tokens": 20, "input": "hi"}
    return {**body, "messages": [{"role": "user", "content": "hi"}]}


class Called(NamedTuple):
    """What came of a call: at the client, and as exchanges on the ledger."""

    status: int
    raw: bytes
    headers: Mapping[str, str]
    entries: list[LedgerEntry]

    @property
    def error(self) -> dict[str, Any]:
        """The error in the last event, or in the whole answer."""
        found: dict[str, Any] = json.loads(self.raw.rpartition(b"data: ")[2])["error"]
        return found


def called(
    served: Served, path: str = "/v1/chat/completions", model: str = "", *, stream: bool = True,
    **more: Any,
) -> Called:  # fmt: skip
    """Make a call in a session of its own."""
    body, session = {**asked(path, model, stream=stream), **more}, new_session()
    answer = served.ask("POST", path, body, headers={"x-remit-session": session})
    return Called(*answer, served.entries("EXCHANGE", session))


def _responses(served: Served) -> str:
    call = called(served, "/v1/responses", stream=False)
    assert call.status == 200, call.raw
    text: str = json.loads(call.raw)["output"][0]["content"][0]["text"]
    return text


def test_a_stray_404_turns_responses_off_for_one_call(
    served: Served, provider: RawProvider
) -> None:
    missing = whole(b"<html>404</html>", "text/html", "404 Not Found")
    native, chat = (whole(json.dumps(answer).encode()) for answer in (_NATIVE, _CHAT))
    replies(provider, missing, chat, native)
    assert _responses(served) == "translated"
    assert _responses(served) == "native"
    # A server that says so again and again has none: its calls are translated at once.
    for _ in range(3):
        replies(provider, missing, chat)
        assert _responses(served) == "translated"
    paths = replies(provider, chat)
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
    with serving(tmp_path / "root", provider.url, toml=toml) as served:
        replies(provider, missing, failure)
        call = called(served, "/v1/responses", stream=False)
        assert (call.status, b"overloaded" in call.raw) == (502, True)
        assert not list(served.ledger.query(event_type="PROMPT_REJECTED"))


def test_a_missing_endpoint_costs_no_retry(provider: RawProvider, tmp_path: Path) -> None:
    missing = whole(b"<html>404</html>", "text/html", "404 Not Found", "retry-after: 90\r\n")
    chat = whole(json.dumps(_CHAT).encode())
    with serving(tmp_path / "root", provider.url, toml="[gateway]\nmax_retries = 0\n") as served:
        # A call that only the missing endpoint takes is refused by its field.
        paths = replies(provider, missing)
        call = called(served, "/v1/responses", stream=False, top_logprobs=2)
        assert (call.status, call.error["param"]) == (400, "top_logprobs")
        assert (paths.count("/v1/responses"), paths.count("/v1/chat/completions")) == (1, 0)
        assert [entry.decision for entry in call.entries] == ["ERROR"]
        paths = replies(provider, missing, chat)
        assert _responses(served) == "translated"
        assert paths == ["/v1/responses", "/v1/chat/completions"]
        paths = replies(provider, missing)
        assert called(served, "/v1/responses", stream=False).status == 400
        assert paths == ["/v1/responses", "/v1/chat/completions"]


_PIECES = [{"id": "c", "choices": [{"index": 0, "delta": {"content": text}}]} for text in "ab"]
_END = {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}}  # fmt: skip
_PATHS = ["/v1/chat/completions", "/v1/messages"]


@pytest.mark.parametrize("path", _PATHS)
@pytest.mark.parametrize("kind", ["text/event-stream", "text/plain", "application/json"])
def test_a_stream_that_nobody_asked_for_is_added_up(
    served: Served, provider: RawProvider, kind: str, path: str
) -> None:
    replies(provider, whole(b"".join(sse([*_PIECES, _END])) + b"data: [DONE]\n\n", kind))
    call = called(served, path, "gpt-4o-mini", stream=False)
    assert call.status == 200, call.raw
    assert call.headers["content-type"] == "application/json"
    said = json.loads(call.raw)
    text = said["content"][0] if "messages" in path else said["choices"][0]["message"]
    assert "ab" in (text.get("text"), text.get("content"))
    (entry,) = call.entries
    assert entry.metadata["cost_certainty"] == "measured"
    assert entry.metadata["answer"]["usage"] == _END["usage"]


@pytest.mark.parametrize("path", _PATHS)
def test_a_stream_that_nobody_asked_for_may_fail(
    served: Served, provider: RawProvider, path: str
) -> None:
    replies(provider, whole(b"".join(sse(_PIECES)), "text/event-stream"))
    call = called(served, path, "gpt-4o-mini", stream=False)
    assert (call.status, call.entries[-1].metadata["outcome"]) == (502, "error")
    error = {"error": {"message": "no room today", "code": 503}}
    replies(provider, event_stream(error))
    call = called(served, path, "gpt-4o-mini", stream=False)
    assert b"no room today" in call.raw
    assert {entry.metadata["cost_usd"] for entry in call.entries} == {0}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "words", ["maximum context length is 8 tokens", "Prompt is too long: 9 of 8 tokens"]
)
def test_a_full_context_is_named_in_the_words_of_the_clients_api(
    served: Served, provider: RawProvider, words: str, stream: bool
) -> None:
    """Claude Code makes its conversation shorter only if it reads Anthropic's words."""
    error = {"error": {"message": words, "code": "context_length_exceeded"}}
    replies(provider, whole(json.dumps(error).encode(), status="400 Bad Request"))
    said = called(served, "/v1/messages", "gpt-4o-mini", stream=stream).error["message"]
    assert said.lower().count("prompt is too long") == 1
    assert words in said
    call = called(served, "/v1/chat/completions", "gpt-4o-mini", stream=stream)
    assert call.error == error["error"]


@pytest.mark.parametrize("path", _PATHS)
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
    paths = replies(provider, whole(error, status="429 Too Many Requests", more=f"{more}\r\n"))
    call = called(served, path, "gpt-4o-mini", stream=False)
    assert (call.status, len(paths)) == (429, 1), call.raw
    assert "retry-after" in call.headers or "retry-after-ms" in call.headers
    assert all(value == value.strip() for value in call.headers.values())


def test_a_client_on_a_websocket_hears_when_to_come_again(
    served: Served, provider: RawProvider
) -> None:
    error = b'{"error":{"message":"Rate limit reached","type":"rate_limit_error"}}'
    paths = replies(
        provider, whole(error, status="429 Too Many Requests", more="retry-after: 90\r\n")
    )
    with connect(
        served.url.replace("http", "ws") + "/v1/responses",
        additional_headers={"authorization": f"Bearer {served.token}"},
    ) as connection:
        body = asked("/v1/responses")
        connection.send(json.dumps({"type": "response.create", **body}))
        said = json.loads(connection.recv(timeout=60))
    assert (said["type"], said["status"], said["headers"]["retry-after"]) == ("error", 429, "90")
    assert len(paths) == 1


_PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")


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
    paths = replies(provider, whole(json.dumps(said).encode()))
    call = called(served, path, stream=False)
    assert (call.status, call.headers["x-should-retry"]) == (502, "false")
    assert "busy" in call.error["message"]
    assert len(paths) > 1
    last = call.entries[-1]
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
    if path == _GEMINI and stream:
        path = path.replace("generate", "streamGenerate")
    whole_ones = [json.dumps(answer).encode() for answer in _UNREADABLE[model]]
    for sent in (*whole_ones, whole_ones[0][:-9]):
        paths = replies(provider, whole(sent))
        status, raw, headers, (entry,) = called(served, path, model, stream=stream)
        assert (status, headers["x-should-retry"], len(paths)) == (502, "false", 1)
        assert b"cannot be translated" in raw
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
    path = path.replace("generate", "streamGenerate")
    if chat:
        events = [_EMPTY, *[_SAID] * chunks]
        odd = {**_CHUNK, "choices": [{"index": 0, "delta": {"content": 5}}]}
        end: list[dict[str, Any]] = [{**_STOP, "usage": {**_CHAT["usage"]}}]
    else:
        events, end = _MESSAGE[: 1 + chunks], _MESSAGE[-2:]
        odd = {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta"}}
    paths = replies(provider, event_stream(*events, odd, *end))
    model = "gpt-4o-mini" if chat else "claude-sonnet-4-5"
    status, raw, _, (entry,) = called(served, path, model)
    assert (status, len(paths)) == (200 if chunks else 502, 1)
    assert b"cannot be translated" in raw
    assert (entry.decision, entry.metadata["error_code"]) == ("ERROR", "SERVER_ERROR")


@pytest.mark.parametrize(
    "error",
    [
        b'data: [{"error":{"code":503,"message":"busy"}}]',
        b'event: error\ndata: {"message":"busy","code":500}',
        b'event: error\ndata: "busy"',
        b'data: {"type":"error","message":"busy"}',
        b'data: {"object":"error","message":"busy","code":500}',
        b"event: error\ndata: busy",
        b'error: {"message":"busy","code":500}\ndata: [DONE]',
    ],
)
def test_a_client_of_chat_completions_sees_an_error_in_any_form(
    served: Served, provider: RawProvider, error: bytes
) -> None:
    """Its SDKs know an error by the member ``error`` of an event, and by nothing else."""
    said = {"id": "c", "choices": [{"index": 0, "delta": {"content": "some"}}]}
    replies(provider, event_stream(said, error + b"\n\ndata: [DONE]\n\n"))
    call = called(served)
    assert call.error["message"] == "busy"
    assert b"[DONE]" not in call.raw
    assert call.raw.count(b"busy") == 1


def test_an_error_in_a_cut_event_follows_its_content(served: Served, provider: RawProvider) -> None:
    last = {**_SAID, "usage": None, **_DISGUISES["MiniMax's"]}
    replies(provider, event_stream(_SAID, sse([last])[0].rstrip()))
    lines = called(served).raw.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
    assert [list(event)[-1] for event in events] == [list(_SAID)[-1], "base_resp", "error"]
    assert "usage" not in events[1]


@pytest.mark.parametrize("field", [b"error: false\n", b"error:\n", b'error: {"code":1}\n'])
def test_an_unknown_field_next_to_data_is_no_error(
    served: Served, provider: RawProvider, field: bytes
) -> None:
    replies(provider, event_stream(field, _SAID, _STOP, b"data: [DONE]\n\n"))
    status, raw, *_ = called(served)
    assert (status, b"fine" in raw, b"[DONE]" in raw) == (200, True, True)


@pytest.mark.parametrize("text", [b"id: four two.", b"data: the new oil.\n", b": hello\n"])
def test_a_transcript_is_no_stream(served: Served, provider: RawProvider, text: bytes) -> None:
    replies(provider, whole(text, kind="text/plain"))
    sent = form(model="whisper-1", file=b"RIFF0000WAVE" + b"0" * 99, stream="true")
    status, raw, _ = served.ask("POST", "/v1/audio/transcriptions", sent, headers=FORM)
    assert (status, raw) == (200, text)


@pytest.mark.parametrize("cut", [b"", b"\n", b": wait\n\nda", b"event: x\ndata", b"\xef\xbb"])
def test_a_stream_of_text_is_one_however_it_is_cut(
    served: Served, provider: RawProvider, cut: bytes
) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    stream = b"".join(sse([_SAID, {**_STOP, "usage": usage}])) + b"data: [DONE]\n\n"
    whole_cut = {b": wait\n\nda": b": wait\n\n", b"event: x\ndata": b"event: x\n",
                 b"\xef\xbb": b"\xef\xbb\xbf"}.get(cut, cut)  # fmt: skip
    sent = whole_cut + stream

    def answer(connection: socket.socket, path: str, raw: bytes) -> bool:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n" + cut)
        time.sleep(0.05)
        connection.sendall(sent[len(cut) :])
        return False

    provider.answer = answer
    call = called(served)
    assert call.raw.count(b"fine") == 1
    assert [entry.metadata["cost_certainty"] for entry in call.entries] == ["measured"]


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "application/octet-stream"])
@pytest.mark.parametrize("path", [_PATHS[0], _PATHS[1]])
def test_a_stream_is_one_whatever_its_type(
    served: Served, provider: RawProvider, path: str, kind: str
) -> None:
    """Proxies send streams as text; the client gets each event as it comes, in its dialect."""
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    events = sse([_SAID, {**_STOP, "usage": usage}])
    seen = threading.Event()

    def answer(connection: socket.socket, path: str, raw: bytes) -> bool:
        if raw:
            head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n\r\n" % kind.encode()
            connection.sendall(head + events[0])
            if seen.wait(20):
                connection.sendall(events[1] + b"data: [DONE]\n\n")
        return False

    provider.answer = answer
    session = new_session()
    sent = json.dumps(asked(path, "gpt-4o-mini", stream=True)).encode()
    head = served.head(f"content-length: {len(sent)}", f"x-remit-session: {session}", path=path)
    with served.connected(head + sent) as connection:
        got = b""
        while b"fine" not in got:
            got += connection.recv(4096)
        seen.set()
        while b"message_stop" not in got and b"[DONE]" not in got:
            got += connection.recv(4096)
    assert b"content-type: text/event-stream" in got
    (entry,) = served.entries("EXCHANGE", session)
    assert (entry.decision, entry.metadata["cost_certainty"]) == ("SUCCESS", "measured")


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
@pytest.mark.parametrize("blank", ["", "\n\n"])
@pytest.mark.parametrize("path", _PATHS[:2])
def test_a_whole_answer_is_one_although_it_calls_itself_a_stream(
    served: Served, provider: RawProvider, path: str, blank: str, end: bytes
) -> None:
    """It is paid for: no other attempt is made, its usage counts, and the client gets a stream."""
    text = json.dumps(completion("fine")).replace('"choices"', f'{blank}"choices"')
    paths = replies(provider, event_stream(text.encode() + end))
    status, raw, _, (entry,) = called(served, path, "gpt-4o-mini")
    assert (status, b"fine" in raw, len(paths)) == (200, True, 1)
    assert (entry.decision, entry.metadata["cost_certainty"]) == ("SUCCESS", "measured")
    assert entry.metadata["response"] == "fine"
    data = [line for line in raw.splitlines() if line.startswith(b"data: ")]
    assert any(b"fine" in line for line in data)
    replies(provider, event_stream(b'{"error":{"message":"busy","type":"server_error"}}' + end))
    call = called(served, path, "gpt-4o-mini")
    assert b"busy" in call.raw
    last = call.entries[-1]
    assert (last.decision, last.metadata["cost_usd"]) == ("ERROR", 0)


_CHOICES = [
    {"index": index, "message": {"role": "assistant", "content": text}, "logprobs": None,
     "finish_reason": "stop", "x_score": index}
    for index, text in enumerate("ab")
]  # fmt: skip
_BLOCKS = [
    {"type": "thinking", "thinking": "hm", "signature": "Ev4"},
    {"type": "text", "text": "fine", "citations": [{"type": "char_location", "cited_text": "f"}]},
    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"a": 12345678901234567890123}},
    {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}},
    {"type": "odd", "x": [1]},
    {"type": "text", "text": "", "citations": None},
]
_WHOLE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "choices": ("/v1/chat/completions", "openai.chat", {**_CHAT, "choices": _CHOICES, "x_own": 1}),
    "calls": ("/v1/chat/completions", "openai.chat", completion(None, [
        {"id": f"call_{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for n in range(2)])),
    "completions": ("/v1/completions", "openai.completions", {
        "id": "c", "object": "text_completion", "created": 1, "model": "gpt-4o-mini",
        "choices": [{"text": "fine", "index": 0, "logprobs": None, "finish_reason": "stop"}],
        "usage": _CHAT["usage"], "x_own": 1}),
    "blocks": ("/v1/messages", "anthropic.messages", {
        **message(), "content": _BLOCKS, "stop_reason": "tool_use", "stop_sequence": None,
        "container": {"id": "c"}}),
    "pictures": ("/v1/images/generations", "openai.images", {"created": 1, "data": [
        {"b64_json": "QQ=="}], "usage": {"total_tokens": 9, "input_tokens": 1,
                                         "output_tokens": 8}}),
}  # fmt: skip


@pytest.mark.parametrize("comment", [b"", b": wait\n\n"])
@pytest.mark.parametrize("form", _WHOLE)
def test_an_answer_that_calls_itself_a_stream_keeps_all_its_members(
    served: Served, provider: RawProvider, form: str, comment: bytes
) -> None:
    """The client's events add up to the provider's own answer, with its id and unknown members."""
    path, endpoint, sent = _WHOLE[form]
    model = {"blocks": "claude-sonnet-4-5", "pictures": "gpt-image-1"}.get(form, "gpt-4o-mini")
    body = {**asked(path, model, stream=True), "stream_options": {"include_usage": True}}
    if form in ("pictures", "completions"):
        body = {"model": model, "stream": True, "prompt": "hi"}
        body["stream_options"] = {"include_usage": True}
    if form in ("pictures", "blocks"):
        del body["stream_options"]
    replies(provider, whole(comment + json.dumps(sent).encode(), kind="text/event-stream"))
    status, raw, headers = served.ask("POST", path, body)
    assert (status, "event-stream" in headers["content-type"]) == (200, True), raw
    total = stream_sum(endpoint)
    for event in SseParser().feed(raw):
        if event.data:
            total.add(event.name, event.data)
    if form == "pictures":
        assert json.dumps(sent["data"]).encode() in raw.replace(b'":', b'": ')
        return
    assert total.ended
    assert total.answer() == sent


@pytest.mark.parametrize("path", _PATHS)
@pytest.mark.parametrize("text", ["", "some"])
def test_an_error_in_a_field_of_its_own_is_one(
    served: Served, provider: RawProvider, path: str, text: str
) -> None:
    """llama.cpp's server writes ``error: {…}`` and, as after any answer, ``data: [DONE]``."""
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}
    error = b'error: {"code":400,"message":"too long","type":"exceed_context_size_error"}\n\n'
    stream = event_stream(chunk, error + b"data: [DONE]\n\n")
    missing = whole(b"no", status="404 Not Found")

    def answer(connection: socket.socket, path: str, raw: bytes) -> bool:
        paths.append(path)
        connection.sendall(missing if path.endswith("/responses") else stream)
        return True

    paths: list[str] = []
    provider.answer = answer
    status, raw, _, (*_, last) = called(served, path, "gpt-4o-mini")
    assert b"too long" in raw
    assert b"[DONE]" not in raw
    assert (status == 200) == bool(text)
    assert sum(path.endswith("/chat/completions") for path in paths) == 1
    assert (last.decision, bool(last.metadata["cost_usd"])) == ("ERROR", bool(text))


@pytest.mark.parametrize("chunks", [0, 2])
def test_an_error_in_a_stream_is_one(served: Served, provider: RawProvider, chunks: int) -> None:
    choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": None}
    chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}
    error = {"object": "error", "message": "out of memory", "code": 500}
    replies(provider, event_stream(*[chunk] * chunks, error))
    call = called(served)
    assert (call.status == 200) == bool(chunks)
    assert "out of memory" in call.error["message"]
    assert b'"object":"error"' not in call.raw


_BUSY = {"code": 502, "message": "busy"}
_DISGUISES: dict[str, dict[str, Any]] = {
    "Groq's": {"x_groq": {"id": "q", "error": "busy"}},
    "MiniMax's": {"base_resp": {"status_code": 1002, "status_msg": "busy"}},
    "Zhipu's": {"success": False, "msg": "busy"},
    "an error beside": {"error": _BUSY},
    "an object": {"object": "error", "message": "busy"},
}


@pytest.mark.parametrize(
    ("path", "form"),
    [(path, form) for path in _PATHS[:2] for form in _DISGUISES]
    + [("/v1/chat/completions", "in the first choice")],
)
def test_an_error_within_an_answer_is_an_error_to_the_client(
    served: Served, provider: RawProvider, path: str, form: str
) -> None:
    is_chat = path == "/v1/chat/completions"
    said: dict[str, Any] = completion("some") if is_chat else message("some")
    if form == "in the first choice":
        said["choices"] = [{**said["choices"][0], "error": _BUSY}, said["choices"][0]]
    said |= _DISGUISES.get(form, {})
    for stream in (False, True):
        replies(provider, whole(json.dumps(said).encode()))
        call = called(served, path, stream=stream)
        assert call.status == 502, call.raw
        assert "busy" in call.error["message"]
        assert call.entries[-1].decision == "ERROR"


@pytest.mark.parametrize("text", ["", " more"])
@pytest.mark.parametrize("form", [*_DISGUISES, "in the choice"])
def test_an_error_within_a_chunk_is_an_error_to_the_client(
    served: Served, provider: RawProvider, form: str, text: str
) -> None:
    chunk = {"id": "c", "object": "chat.completion.chunk"}
    said = {**chunk, "choices": [{"index": 0, "delta": {"content": "some"}}]}
    choice: dict[str, Any] = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    if form == "in the choice":
        choice |= {"finish_reason": "error", "error": _BUSY}
    last = {**chunk, "choices": [choice] if text else None, **_DISGUISES.get(form, {})}
    if form == "in the choice":
        last["choices"] = [choice]
    replies(provider, event_stream(said, last))
    call = called(served)
    assert (call.status, call.error["message"]) == (200, "busy")
    assert (b" more" in call.raw) == bool(text)
    (entry,) = call.entries
    assert (entry.decision, entry.metadata["response"]) == ("ERROR", f"some{text}")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["gpt-4o-mini", "claude-sonnet-4-5"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_failed_answer_that_is_paid_is_asked_again_by_nobody(
    served: Served, provider: RawProvider, path: str, model: str, stream: bool
) -> None:
    said = completion("some")
    said["choices"][0]["finish_reason"] = "error"
    failed = message("some") | {"stop_reason": "error"} if model.startswith("claude") else said
    paths = replies(provider, whole(json.dumps(failed).encode()))
    call = called(served, path, model, stream=stream)
    (entry,) = call.entries
    assert (entry.decision, entry.metadata["output_tokens"] > 0) == ("ERROR", True), entry.metadata
    assert len(paths) == 1
    if call.status != 200:
        assert call.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("model", ["gpt-4o-mini", "claude-sonnet-4-5"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_json_of_any_type_is_an_answer_to_a_streamed_call(
    served: Served, provider: RawProvider, path: str, model: str
) -> None:
    said = message("fine") if model.startswith("claude") else completion("fine")
    replies(provider, whole(json.dumps(said).encode(), kind="application/octet-stream"))
    call = called(served, path, model)
    (entry,) = call.entries
    assert (call.status, b"fine" in call.raw) == (200, True), call.raw
    assert (entry.metadata["response"], entry.metadata["cost_certainty"]) == ("fine", "measured")


@pytest.mark.parametrize("kind", [[], {}, 5])
def test_an_input_item_of_an_odd_type_is_never_an_internal_error(
    served: Served, provider: RawProvider, kind: Any
) -> None:
    replies(provider, whole(json.dumps(_NATIVE).encode()))
    item = {"type": kind, "role": "user", "content": "hi", "call_id": "c"}
    call = called(served, "/v1/responses", stream=False, input=[item])
    assert call.status in (200, 400), call.raw


def test_bytes_in_place_of_events_are_not_passed_to_another_dialect(
    served: Served, provider: RawProvider
) -> None:
    replies(provider, whole(b"\x00\x01BINARY", kind="application/octet-stream"))
    call = called(served, "/v1/chat/completions", "claude-sonnet-4-5")
    assert (call.status, call.error["code"]) == (502, "answer_untranslatable")


def test_only_a_failed_connection_is_told_as_unreachable(
    served: Served, provider: RawProvider, tmp_path: Path
) -> None:
    said = "the index cannot be reached"
    error = json.dumps({"error": {"message": said, "type": "server_error"}}).encode()
    replies(provider, whole(error, "application/json", "400 Bad Request"),
            whole(error, "application/json", "500 Internal Server Error"))  # fmt: skip
    body = {"model": "gpt-4o-mini", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    for _ in range(2):  # translated, so that the error is Remit's
        status, raw, _ = served.ask("POST", "/v1/messages", body)
        assert status >= 400
        assert said in raw.decode()
    stream = event_stream({"error": {"message": said, "type": "server_error", "code": 500}})
    replies(provider, stream)  # An error within a stream has no answer of its own.
    assert said in called(served, "/v1/messages", "gpt-4o-mini").raw.decode()
    toml = "[gateway]\nmax_retries = 0\n"
    with serving(tmp_path / "root", "http://127.0.0.1:9", toml=toml) as alone:
        status, raw, _ = alone.ask("POST", "/v1/messages", body)
        assert json.loads(raw)["error"]["message"] == "The provider cannot be reached."
        assert b"127.0.0.1" not in raw
