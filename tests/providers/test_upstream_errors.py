"""What a refusal means, for any status and any body."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given, strategies as st
from multidict import CIMultiDict

from remit.providers import ProviderError, error_of, error_of_event

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
