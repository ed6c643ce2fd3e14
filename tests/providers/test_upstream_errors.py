"""What a refusal means, for any status and any body."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import example, given, strategies as st
from multidict import CIMultiDict

from remit.providers import ProviderError, error_of, error_of_event
from remit.providers.sse import MAX_EVENT_BYTES, SseEvent, SseParser

KEY = "sk-verysecret+0123/456="


def refusal(status: int, body: Any, **headers: str) -> ProviderError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return error_of(status, CIMultiDict(named), raw, [KEY])


def openai(message: str, kind: str, code: str | None = None, param: str | None = None) -> Any:
    return {"error": {"message": message, "type": kind, "code": code, "param": param}}


def anthropic(kind: str, message: str) -> Any:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "r"}


@pytest.mark.parametrize(
    ("status", "body", "code", "retryable"),
    [
        (400, openai("bad", "invalid_request_error"), "INVALID_REQUEST", False),
        (400, openai("too many", "invalid_request_error", "context_length_exceeded"),
         "CONTEXT_LENGTH", False),
        (400, anthropic("invalid_request_error", "prompt is too long: 2 tokens > 1 maximum"),
         "CONTEXT_LENGTH", False),
        (400, openai("This model's maximum context length is 5 tokens", "BadRequestError"),
         "CONTEXT_LENGTH", False),
        (400, openai("no", "invalid_request_error", "content_policy_violation"),
         "CONTENT_FILTERED", False),
        (400, {"error": {"message": "m", "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
         "CONTENT_FILTERED", False),
        (400, anthropic("invalid_request_error", "Output blocked by content filtering policy"),
         "CONTENT_FILTERED", False),
        (401, anthropic("authentication_error", "invalid x-api-key"), "AUTH_ERROR", False),
        (402, anthropic("billing_error", "pay"), "RATE_LIMITED", False),
        (403, openai("no", "x"), "AUTH_ERROR", False),
        (404, openai("no such model", "invalid_request_error", "model_not_found"),
         "INVALID_REQUEST", False),
        (408, {}, "TIMEOUT", True),
        (409, {}, "INVALID_REQUEST", True),
        (413, anthropic("request_too_large", "large"), "INVALID_REQUEST", False),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, "INVALID_REQUEST", False),
        (425, {}, "INVALID_REQUEST", True),
        (429, openai("slow down", "requests", "rate_limit_exceeded"), "RATE_LIMITED", True),
        (429, openai("context length", "tokens", "rate_limit_exceeded"), "RATE_LIMITED", True),
        (429, openai("pay", "insufficient_quota", "insufficient_quota"), "RATE_LIMITED", False),
        (500, anthropic("api_error", "oops"), "SERVER_ERROR", True),
        (503, b"", "SERVER_ERROR", True),
        (504, b"<html>", "SERVER_ERROR", True),
        (529, anthropic("overloaded_error", "Overloaded"), "SERVER_ERROR", True),
        (999, b"?", "SERVER_ERROR", True),
        (200, openai("oops", "x"), "SERVER_ERROR", True),
    ],
)  # fmt: skip
def test_codes(status: int, body: Any, code: str, retryable: bool) -> None:
    error = refusal(status, body)
    assert (error.code, error.retryable, error.status) == (code, retryable, status)
    assert error.maybe_billed == (status in (200, 504))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "type", "code", "message", "param", "detail", "errors",
                             "response", "object", "innererror", "status", "msg"]), inner,
        )
    ), max_leaves=12,
)  # fmt: skip


@given(st.integers(100, 999), st.binary(max_size=40) | _JSON.map(lambda v: json.dumps(v).encode()))
def test_any_body_is_an_error_that_can_be_recorded(status: int, body: bytes) -> None:
    error = error_of(status, CIMultiDict(), body, [KEY])
    assert error.message.encode().startswith(b"HTTP ")
    assert error.param is None or error.param
    inside = error_of_event(body, [KEY])
    assert inside is None or inside.message.encode()


def test_deep_and_great_bodies() -> None:
    for body in (b"[" * 100_000, b'{"error":' * 900 + b"1" + b"}" * 900, b"9" * 5000):
        assert error_of(400, CIMultiDict(), body).code == "INVALID_REQUEST"
    assert len(refusal(400, {"error": "x" * 1_000_000}).message) < 600


@pytest.mark.parametrize(
    "body",
    [
        openai(f"Incorrect API key provided: {KEY}.", "invalid_request_error", param=KEY),
        {"error": f"{'x' * 490}{KEY}"},
        f"key={KEY} sk-verysecret%2B0123%2F456%3D".encode(),
        {"echo": {"headers": {"authorization": f"Bearer {KEY}"}}},
    ],
)
def test_credentials_are_not_echoed(body: Any) -> None:
    error = refusal(401, body, content_type="text/plain")
    for shown in (str(error), repr(error), str(error.param)):
        assert "verysecret" not in shown


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": " 1.5 "}, 1.5),
        ({"retry_after": "-3"}, 0.0),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "inf"}, None),
        ({"retry_after": "soon"}, None),
        ({"retry_after": ""}, None),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry_after": "Wed, 99 Oct 2015 07:28:00 GMT"}, None),
        ({"retry_after_ms": "250", "retry_after": "7"}, 0.25),
        ({"retry_after_ms": "x", "retry_after": "7"}, 7.0),
    ],
)
def test_when_to_come_again(headers: dict[str, str], seconds: float | None) -> None:
    assert refusal(429, {}, **headers).retry_after_s == seconds
    assert refusal(503, {}, **headers).retry_after_s == seconds


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [("90s", 90.0), ("1.5s", 1.5), ("-1s", None), ("1e9s", None), ("soon", None), (90, None)],
)
def test_google_says_in_the_body_when_to_come_again(delay: Any, seconds: float | None) -> None:
    details = ["x", {"@type": "type.googleapis.com/google.rpc.Help"}, {"retryDelay": delay}]
    error = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}}
    assert refusal(429, error).retry_after_s == seconds
    assert refusal(429, [error]).retry_after_s == seconds
    assert refusal(429, error, retry_after="7").retry_after_s == 7.0


def test_a_date_to_come_again() -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=600), usegmt=True)
    wait_s = refusal(429, {}, retry_after=at).retry_after_s
    assert wait_s is not None
    assert 300 < wait_s <= 600


def test_the_server_says_whether_to_try_again() -> None:
    assert not refusal(500, {}, x_should_retry="false").retryable
    assert refusal(400, {}, x_should_retry="true").retryable
    assert refusal(500, {}, x_should_retry="maybe").retryable


@pytest.mark.parametrize(
    ("data", "code", "retryable", "message"),
    [
        (anthropic("overloaded_error", "Overloaded"), "SERVER_ERROR", True, "Overloaded"),
        (anthropic("invalid_request_error", "bad"), "INVALID_REQUEST", False, "bad"),
        (anthropic("rate_limit_error", "slow"), "RATE_LIMITED", True, "slow"),
        ({"type": "error"}, "SERVER_ERROR", True, "an error without a message"),
        (openai("oops", "server_error"), "SERVER_ERROR", True, "oops"),
        ({"id": "c", "choices": [], "error": {"code": 429, "message": "slow"}},
         "RATE_LIMITED", True, "slow"),
        ({"error": "oops"}, "SERVER_ERROR", True, "oops"),
        ({"id": "c", "choices": [{"index": 0, "delta": {}}],
          "x_groq": {"id": "q", "error": "over capacity"}},
         "SERVER_ERROR", True, "over capacity"),
        ({"object": "error", "message": "bad", "code": 400}, "INVALID_REQUEST", False, "bad"),
        ({"type": "error", "code": "server_error", "message": "m", "param": None},
         "SERVER_ERROR", True, "m"),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "m",
                                     "code": "context_length_exceeded"}},
         "CONTEXT_LENGTH", False, "m"),
        ({"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded",
                                                            "message": "m"}}},
         "RATE_LIMITED", True, "m"),
        ({"type": "response.failed", "response": {"error": {"code": "insufficient_quota",
                                                            "message": "m"}}},
         "RATE_LIMITED", False, "m"),
        ({"type": "response.failed", "response": 7}, "SERVER_ERROR", True,
         "an error without a message"),
    ],
)  # fmt: skip
def test_errors_inside_a_stream(data: Any, code: str, retryable: bool, message: str) -> None:
    for given_data in (data, json.dumps(data).encode()):
        error = error_of_event(given_data)
        assert error is not None
        assert (error.code, error.retryable, error.message) == (code, retryable, message)
        assert not error.maybe_billed
        assert error.status is None


@pytest.mark.parametrize(
    "data",
    [
        b"[DONE]", b"", b"error", b"[]", b'"error"', b"{", b"\xff error",
        b'{"type":"message_start","message":{}}',
        b'{"choices":[{"delta":{"content":"error"}}],"error":null}',
        b'{"choices":[{"delta":{"content":"x"}}],"error":{"code":0,"message":""}}',
        b'{"choices":[{"delta":{"content":"x"},"error":{"code":0,"message":""}}]}',
        b'{"type":"response.completed","response":{"error":null}}',
        b'{"type":"response.mcp_call.failed","error":"x"}',
        b'{"type":"content_block_start","content_block":{"type":"x","error":"y"}}',
    ],
)  # fmt: skip
def test_events_that_are_no_errors(data: bytes) -> None:
    assert error_of_event(data) is None


def test_credentials_inside_a_stream() -> None:
    error = error_of_event({"error": {"message": f"no {KEY}", "param": KEY}}, [KEY])
    assert error is not None
    assert (error.message, error.param) == ("no [key]", "[key]")


# -- Event streams by the rules of WHATWG HTML, without losing a byte -----------------------------


_PARTS = st.sampled_from(
    [b"\n", b"\r", b"\r\n", b"data:", b"data: ", b"data", b"event:", b"event: ping", b"id: 7",
     b": keep", b":", b"retry: 3", b"x", b" ", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80",
     b'{"a":1}', b"\n\n", b"\r\n\r\n", b"\x00", b"unknown: y"]
)  # fmt: skip
_STREAMS = st.lists(_PARTS, max_size=40).map(b"".join) | st.binary(max_size=60)


def parse(*pieces: bytes) -> list[SseEvent]:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    last = parser.end()
    return events if last is None else [*events, last]


def cut(body: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(body) + 1) for place in places} | {len(body)})
    return [body[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def dispatched(body: bytes) -> list[tuple[str, bytes]]:
    """What a browser would give for ``body``: the standard's algorithm, line by line."""
    given_events: list[tuple[str, bytes]] = []
    name, data = "", b""
    lines = re.split(rb"\r\n|\r|\n", body.removeprefix(b"\xef\xbb\xbf"))[:-1]
    for line in lines:
        if not line:
            if data:
                given_events.append((name, data.removesuffix(b"\n")))
            name, data = "", b""
            continue
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"event":
            name = value.decode("utf-8", "replace")
        elif field == b"data":
            data += value + b"\n"
    return given_events


@given(_STREAMS, st.lists(st.integers(0, 200), max_size=12))
@example(b"data: x\r\n\r\n", [10])
@example(b"\xef\xbb\xbf\r\r", [3, 4])
@example(b"\r\n\ndata\n\n", [1])
def test_no_byte_is_lost_however_a_stream_is_cut(body: bytes, places: list[int]) -> None:
    events = parse(*cut(body, places))
    assert b"".join(event.raw for event in events) == body
    assert events == parse(body)
    assert all(event.complete for event in events[:-1])


@given(_STREAMS)
@example(b"data: a\rdata: b\r\r")
def test_what_is_read_is_what_the_standard_says(body: bytes) -> None:
    ours = [(event.name, event.data) for event in parse(body) if event.complete]
    # An event whose data is empty is given by us alone, as one whose bytes pass through.
    theirs = [(name, data) for name, data in dispatched(body) if data]
    assert [(name, data) for name, data in ours if data] == theirs


@given(_STREAMS, st.integers(4080, 4110), st.lists(st.integers(0, 10_000), max_size=12))
def test_long_events_are_found_the_same(body: bytes, length: int, places: list[int]) -> None:
    body = b"data: " + b"x" * length + body
    events = parse(*cut(body, places))
    assert b"".join(event.raw for event in events) == body
    assert events == parse(body)
    single = parse(*(body[at : at + 1] for at in range(len(body))))
    assert single == events


@pytest.mark.parametrize("size", [1 << 20, MAX_EVENT_BYTES + 1])
def test_an_event_above_the_bound_is_an_error(size: int) -> None:
    parser = SseParser()
    with pytest.raises(ProviderError, match="longer than 64 MiB") as caught:
        for _ in range(MAX_EVENT_BYTES // size + 1):
            parser.feed(b"x" * size)
    assert (caught.value.code, caught.value.maybe_billed) == ("SERVER_ERROR", True)
    with pytest.raises(ProviderError):
        SseParser().feed(b"x" * MAX_EVENT_BYTES + b"\n\n")
