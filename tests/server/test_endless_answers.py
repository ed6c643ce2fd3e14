"""Providers whose answers have no end, or take far more memory than bytes: they end, on record."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from tests.server.running import Served, new_session
from tests.support.raw_provider import RawProvider, says, whole

BEFORE = "provider"
_SENT = 20_000_000
_MOST = 260_000_000  # of a process, above what it had before
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


def _event(delta: dict[str, Any], **more: Any) -> bytes:
    value = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-mini",
             "choices": [{"index": 0, "delta": delta, "finish_reason": None, **more}]}  # fmt: skip
    return b"data: %b\n\n" % json.dumps(value).encode()


_SURE = {"content": [{"token": "a", "logprob": -1.5, "bytes": [1], "top_logprobs": []}] * 20}
_STREAMS = {
    "probabilities": _event({"content": "x"}, logprobs=_SURE),
    "lists": _event({"content": "x", "more": [[], {}] * 200}),
}


def _refused(served: Served, session: str, raw: bytes) -> None:
    assert b"the largest and was cut off" in raw or b"the answer contains more than" in raw, raw[
        -300:
    ]
    entry = served.exchange(session)
    assert entry.metadata["error_code"] == "SERVER_ERROR"
    assert "answer" in str(entry.metadata["error_message"])
    assert served.grown() < _MOST


@pytest.mark.parametrize("kind", _STREAMS)
def test_a_stream_of_much_memory_ends(served: Served, provider: RawProvider, kind: str) -> None:
    unit, session = _STREAMS[kind], new_session()

    def answer(connection: socket.socket, path: str, body: bytes) -> bool:
        connection.sendall(_HEAD)
        many = unit * (65_536 // len(unit) + 1)
        for _ in range(_SENT // len(many)):
            connection.sendall(many)
        return False

    provider.answer = answer
    _, raw, _ = served.call("openai", "hi", session=session, stream=True)
    _refused(served, session, raw)


_BEGIN = b'{"id":"x","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"x":['


def test_a_whole_answer_of_many_values_is_refused(served: Served, provider: RawProvider) -> None:
    provider.answer = says(whole(_BEGIN + b"[]," * 6_000_000 + b"0]}}]}"))
    session = new_session()
    status, raw, _ = served.call("openai", "hi", session=session)
    assert status == 502
    _refused(served, session, raw)
