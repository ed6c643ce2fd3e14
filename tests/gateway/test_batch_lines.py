"""What batches, their results and forms may look like: read, or refused in words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from remit.gateway import Failure
from remit.gateway.batches import lines
from remit.kernel.json_text import load
from remit.providers import ProviderResponse
from remit.providers.wire import CHAT, MESSAGES, BodyError

_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
_NAMES = ("custom_id", "method", "url", "body", "params", "response", "error", "result", "type",
          "status_code", "message", "usage", "code", "model", "messages")  # fmt: skip
_ODD = st.recursive(
    _VALUES | st.sampled_from(["POST", "/v1/chat/completions", "succeeded", "errored", 200, 400]),
    lambda inner: st.dictionaries(st.sampled_from(_NAMES), inner, max_size=6),
    max_leaves=12,
)
_DIALECTS = st.sampled_from(["openai", "anthropic"])


@given(_DIALECTS, _ODD.map(json.dumps).map(str.encode) | st.binary(max_size=50))
def test_a_request_is_read_or_refused(dialect: Any, text: bytes) -> None:
    try:
        custom_id, body = lines.read_line(dialect, text, "")
    except BodyError as error:
        assert error.message
        return
    assert custom_id == load(text)["custom_id"]
    assert load(body.raw) == body.value


@given(_DIALECTS, _ODD.map(json.dumps).map(str.encode) | st.binary(max_size=50))
@example("openai", b"{")
@example("openai", b"{x")
def test_a_result_is_an_answer_or_a_failure(dialect: Any, text: bytes) -> None:
    endpoint = CHAT if dialect == "openai" else MESSAGES
    answer = lines.answer_of(dialect, endpoint, text)
    assert isinstance(answer, (ProviderResponse, Failure))
    if isinstance(answer, Failure):
        assert answer.code
        assert answer.billing in ("nothing", "bound")


@pytest.mark.parametrize(
    ("dialect", "result", "billing"),
    [
        ("openai", {"response": {"status_code": 400, "body": {"error": {}}}}, "nothing"),
        ("openai", {"response": {"status_code": 500}}, "nothing"),
        ("openai", {"response": None, "error": {"code": "batch_expired"}}, "nothing"),
        ("openai", {"error": "no"}, "nothing"),
        ("openai", {"response": None, "error": None}, "bound"),
        ("openai", {}, "bound"),
        ("openai", {"response": []}, "bound"),
        ("openai", {"response": {"status_code": 200, "body": {"error": {"code": 500}}}}, "nothing"),
        ("openai", {"response": {"status_code": 200}}, "bound"),
        ("openai", {"response": {"status_code": "200", "body": {}}}, "bound"),
        ("openai", {"response": {"body": {}}, "error": {"code": "x"}}, "bound"),
        ("anthropic", {"result": {"type": "canceled"}}, "nothing"),
        ("anthropic", {"result": {"type": "expired"}}, "nothing"),
        ("anthropic", {"result": {"type": "errored", "error": None}}, "nothing"),
        ("anthropic", {"result": {"type": "paused"}}, "bound"),
        ("anthropic", {"result": None}, "bound"),
    ],
)
def test_only_a_stated_failure_is_free(dialect: Any, result: dict[str, Any], billing: str) -> None:
    endpoint = CHAT if dialect == "openai" else MESSAGES
    answer = lines.answer_of(dialect, endpoint, json.dumps({"custom_id": "a", **result}).encode())
    assert isinstance(answer, Failure)
    assert answer.billing == billing


@pytest.mark.parametrize(
    "changes",
    [{"custom_id": "\ud800"}, {"custom_id": "\x00"}, {"custom_id": "x" * 600},
     {"model": "\ud800"}, {"custom_id": ""}],
)  # fmt: skip
def test_names_that_no_row_can_hold_are_refused(changes: dict[str, str]) -> None:
    model = changes.get("model", "gpt-4o-mini")
    line = {"custom_id": changes.get("custom_id", "a"), "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": model, "messages": [{"role": "user", "content": "x"}]}}  # fmt: skip
    with pytest.raises(BodyError):
        lines.read_line("openai", json.dumps(line).encode(), "")
    assert lines.identified(json.dumps(line).encode()) == [] or "model" in changes
