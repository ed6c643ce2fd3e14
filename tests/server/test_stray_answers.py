"""One answer of a provider that says little about the next: a stray 404, a time to come again."""

from __future__ import annotations

import json
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

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
    body = {"model": "gpt-4o-mini", "max_output_tokens": 50, "input": "hi"}
    with serving(tmp_path / "root", provider.url, toml=toml) as served:
        replies(provider, missing, failure)
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
        paths = replies(provider, missing)
        status, raw, _ = served.ask("POST", "/v1/responses", {**body, "top_logprobs": 2},
                                    headers={"x-remit-session": session})  # fmt: skip
        assert (status, json.loads(raw)["error"]["param"]) == (400, "top_logprobs")
        assert (paths.count("/v1/responses"), paths.count("/v1/chat/completions")) == (1, 0)
        assert [entry.decision for entry in served.entries("EXCHANGE", session)] == ["ERROR"]
        paths = replies(provider, missing, chat)
        assert _responses(served) == "translated"
        assert paths == ["/v1/responses", "/v1/chat/completions"]
        paths = replies(provider, missing)
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
    paths = replies(provider, whole(error, status="429 Too Many Requests", more=f"{more}\r\n"))
    body: dict[str, Any] = {"model": "gpt-4o-mini", "max_tokens": 20}
    body["messages"] = [{"role": "user", "content": "hi"}]
    status, raw, headers = served.ask("POST", path, body)
    assert status == 429, raw
    assert len(paths) == 1
    assert "retry-after" in headers or "retry-after-ms" in headers
    assert all(value == value.strip() for value in headers.values())


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
        body = {"model": "gpt-4o-mini", "max_output_tokens": 20, "input": "hi"}
        connection.send(json.dumps({"type": "response.create", **body}))
        said = json.loads(connection.recv(timeout=60))
    assert (said["type"], said["status"], said["headers"]["retry-after"]) == ("error", 429, "90")
    assert len(paths) == 1


_PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")


def asked(path: str, model: str, *, stream: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"model": model, "stream": stream, "max_tokens": 20}
    if path.startswith("/v1/responses"):
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
    paths = replies(provider, whole(json.dumps(said).encode()))
    session = new_session()
    headers = {"x-remit-session": session}
    status, raw, answered = served.ask(
        "POST", path, asked(path, model, stream=False), headers=headers
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
    body = asked(path, model, stream=stream)
    if path == _GEMINI:
        path = path.replace("generate", "streamGenerate") if stream else path
        body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
        body["generationConfig"] = {"maxOutputTokens": 20}
    whole_ones = [json.dumps(answer).encode() for answer in _UNREADABLE[model]]
    for sent in (*whole_ones, whole_ones[0][:-9]):
        paths, session = replies(provider, whole(sent)), new_session()
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
    body = asked(path, "gpt-4o-mini" if chat else "claude-sonnet-4-5", stream=True)
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
    paths = replies(provider, whole(b"".join(sse([*events, odd, *end])), kind="text/event-stream"))
    status, raw, _ = served.ask("POST", path, body, headers={"x-remit-session": session})
    assert len(paths) == 1
    assert status == (200 if chunks else 502)
    assert b"cannot be translated" in raw
    (entry,) = served.entries("EXCHANGE", session)
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
    stream = sse([said])[0] + error + b"\n\ndata: [DONE]\n\n"
    replies(provider, whole(stream, kind="text/event-stream"))
    body = asked("/v1/chat/completions", "gpt-4o-mini", stream=True)
    _, raw, _ = served.ask("POST", "/v1/chat/completions", body)
    assert json.loads(raw.rpartition(b"data: ")[2])["error"]["message"] == "busy"
    assert b"[DONE]" not in raw
    assert raw.count(b"busy") == 1


def test_an_error_in_a_cut_event_follows_its_content(served: Served, provider: RawProvider) -> None:
    last = {**_SAID, "usage": None, **_DISGUISES["MiniMax's"]}
    stream = sse([_SAID])[0] + sse([last])[0].rstrip()
    replies(provider, whole(stream, kind="text/event-stream"))
    body = asked("/v1/chat/completions", "gpt-4o-mini", stream=True)
    _, raw, _ = served.ask("POST", "/v1/chat/completions", body)
    events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: ")]
    assert [list(event)[-1] for event in events] == [list(_SAID)[-1], "base_resp", "error"]
    assert "usage" not in events[1]


@pytest.mark.parametrize("field", [b"error: false\n", b"error:\n", b'error: {"code":1}\n'])
def test_an_unknown_field_next_to_data_is_no_error(
    served: Served, provider: RawProvider, field: bytes
) -> None:
    stream = field + b"".join(sse([_SAID, _STOP])) + b"data: [DONE]\n\n"
    replies(provider, whole(stream, kind="text/event-stream"))
    body = asked("/v1/chat/completions", "gpt-4o-mini", stream=True)
    status, raw, _ = served.ask("POST", "/v1/chat/completions", body)
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
    session = new_session()
    path = "/v1/chat/completions"
    body = asked(path, "gpt-4o-mini", stream=True)
    _, raw, _ = served.ask("POST", path, body, headers={"x-remit-session": session})
    assert raw.count(b"fine") == 1
    assert served.exchange(session).metadata["cost_certainty"] == "measured"


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
    body = asked(path, "gpt-4o-mini", stream=True)
    text = json.dumps(completion("fine")).replace('"choices"', f'{blank}"choices"')
    answer = text.encode() + end
    paths, session = replies(provider, whole(answer, kind="text/event-stream")), new_session()
    status, raw, _ = served.ask("POST", path, body, headers={"x-remit-session": session})
    assert (status, b"fine" in raw, len(paths)) == (200, True, 1)
    (entry,) = served.entries("EXCHANGE", session)
    assert (entry.decision, entry.metadata["cost_certainty"]) == ("SUCCESS", "measured")
    assert entry.metadata["response"] == "fine"
    data = [line for line in raw.splitlines() if line.startswith(b"data: ")]
    assert any(b"fine" in line for line in data)
    refused = b'{"error":{"message":"busy","type":"server_error"}}' + end
    replies(provider, whole(refused, kind="text/event-stream"))
    session = new_session()
    _, raw, _ = served.ask("POST", path, body, headers={"x-remit-session": session})
    assert b"busy" in raw
    last = served.entries("EXCHANGE", session)[-1]
    assert (last.decision, last.metadata["cost_usd"]) == ("ERROR", 0)


@pytest.mark.parametrize("path", _PATHS)
@pytest.mark.parametrize("text", ["", "some"])
def test_an_error_in_a_field_of_its_own_is_one(
    served: Served, provider: RawProvider, path: str, text: str
) -> None:
    """llama.cpp's server writes ``error: {…}`` and, as after any answer, ``data: [DONE]``."""
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}
    error = b'error: {"code":400,"message":"too long","type":"exceed_context_size_error"}\n\n'
    stream = whole(sse([chunk])[0] + error + b"data: [DONE]\n\n", kind="text/event-stream")
    missing = whole(b"no", status="404 Not Found")

    def answer(connection: socket.socket, path: str, raw: bytes) -> bool:
        paths.append(path)
        connection.sendall(missing if path.endswith("/responses") else stream)
        return True

    paths: list[str] = []
    provider.answer = answer
    session = new_session()
    status, raw, _ = served.ask(
        "POST", path, asked(path, "gpt-4o-mini", stream=True), headers={"x-remit-session": session}
    )
    assert b"too long" in raw
    assert b"[DONE]" not in raw
    assert (status == 200) == bool(text)
    assert sum(path.endswith("/chat/completions") for path in paths) == 1
    last = served.entries("EXCHANGE", session)[-1]
    assert (last.decision, bool(last.metadata["cost_usd"])) == ("ERROR", bool(text))


@pytest.mark.parametrize("chunks", [0, 2])
def test_an_error_in_a_stream_is_one(served: Served, provider: RawProvider, chunks: int) -> None:
    choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": None}
    chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}
    error = {"object": "error", "message": "out of memory", "code": 500}
    events = b"".join(sse([*[chunk] * chunks, error]))
    replies(provider, whole(events, kind="text/event-stream"))
    body = asked("/v1/chat/completions", "gpt-4o-mini", stream=True)
    status, raw, _ = served.ask("POST", "/v1/chat/completions", body)
    assert (status == 200) == bool(chunks)
    said = raw.rpartition(b"data: {")[2] if chunks else raw[1:]
    assert "out of memory" in json.loads(b"{" + said)["error"]["message"]
    assert b'"object":"error"' not in raw


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
    model = "gpt-4o-mini" if is_chat else "claude-sonnet-4-5"
    said: dict[str, Any] = completion("some") if is_chat else message("some")
    if form == "in the first choice":
        said["choices"] = [{**said["choices"][0], "error": _BUSY}, said["choices"][0]]
    said |= _DISGUISES.get(form, {})
    for stream in (False, True):
        replies(provider, whole(json.dumps(said).encode()))
        session = new_session()
        status, raw, _ = served.ask(
            "POST", path, asked(path, model, stream=stream), headers={"x-remit-session": session}
        )
        assert status == 502, raw
        assert "busy" in json.loads(raw)["error"]["message"]
        assert served.entries("EXCHANGE", session)[-1].decision == "ERROR"


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
    replies(provider, whole(b"".join(sse([said, last])), kind="text/event-stream"))
    body = asked("/v1/chat/completions", "gpt-4o-mini", stream=True)
    session = new_session()
    status, raw, _ = served.ask(
        "POST", "/v1/chat/completions", body, headers={"x-remit-session": session}
    )
    assert status == 200
    assert json.loads(raw.rpartition(b"data: ")[2])["error"]["message"] == "busy"
    assert (b" more" in raw) == bool(text)
    (entry,) = served.entries("EXCHANGE", session)
    assert (entry.decision, entry.metadata["response"]) == ("ERROR", f"some{text}")


def test_bytes_in_place_of_events_are_not_passed_to_another_dialect(
    served: Served, provider: RawProvider
) -> None:
    body = asked("/v1/chat/completions", "claude-sonnet-4-5", stream=True)
    replies(provider, whole(b"\x00\x01BINARY", kind="application/octet-stream"))
    status, raw, _ = served.ask("POST", "/v1/chat/completions", body)
    assert (status, json.loads(raw)["error"]["code"]) == (502, "answer_untranslatable")


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
    toml = "[gateway]\nmax_retries = 0\n"
    with serving(tmp_path / "root", "http://127.0.0.1:9", toml=toml) as alone:
        status, raw, _ = alone.ask("POST", "/v1/messages", body)
        assert json.loads(raw)["error"]["message"] == "The provider cannot be reached."
        assert b"127.0.0.1" not in raw
