"""Model calls through ASGI alone, and what a relay gives of a stream that an attempt had begun."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from remit.gateway import Dispatched
from remit.kernel.errors import RemitError
from remit.providers import Body, WireChunk
from remit.providers.dialects import stream_reader
from remit.providers.wire import CHAT, RESPONSES, stream_sum
from remit.runtime import Runtime
from remit.server.app import App
from remit.server.extensions import Relay, Request
from tests.server.asgi import AsgiRequest
from tests.server.running import prompt
from tests.support.roots import new_root
from tests.support.wire import Raw, completion, completion_stream, serve

_SESSION = "SES-ASGI"


async def _call(
    app: App, *, stream: bool, host: bytes = b"localhost", request: AsgiRequest | None = None
) -> AsgiRequest:
    body = json.dumps(prompt(stream=stream)).encode()
    request = request or AsgiRequest([])
    request.chunks += [body[:10], body[10:]]
    headers = [(b"host", host), (b"x-remit-session", _SESSION.encode())]
    await request.to(app, "POST", "/v1/chat/completions", headers=headers)
    assert {message["type"] for message in request.told[1:]} <= {"http.response.body"}
    assert not any(message.get("more_body") for message in request.told[-1:])
    return request


@contextlib.contextmanager
def _app(root: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-upstream-openai")
    with Runtime.open(new_root(root)) as runtime:
        app = App(runtime, dev=True)
        yield app
        app._keys.close()


async def test_answers_and_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        serve(completion("Hello."), completion_stream(completion("Hello there."))) as upstream,
        _app(tmp_path / "root", upstream.url, monkeypatch) as app,
    ):
        caller = await _call(app, stream=False)
        assert caller.status == 200
        assert caller.json["choices"][0]["message"]["content"] == "Hello."
        assert "x-remit-exchange" in caller.headers
        caller = await _call(app, stream=True)
        assert caller.status == 200
        assert caller.body.endswith(b"data: [DONE]\n\n")
        assert len(caller.told) > 2
        stranger = await _call(app, stream=False, host=b"attacker.example")
        assert stranger.status == 403
        assert len(upstream.calls) == 2
        await app.runtime.aclose()


@pytest.mark.parametrize("stream", [False, True])
async def test_who_hangs_up_ends_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    with (
        serve(Raw(delay_s=30)) as upstream,
        _app(tmp_path / "root", upstream.url, monkeypatch) as app,
    ):
        caller = AsgiRequest([])
        task = asyncio.create_task(_call(app, stream=stream, request=caller))
        while not upstream.calls:
            await asyncio.sleep(0.01)
        caller.gone.set()
        await asyncio.wait_for(task, 20)
        (exchange,) = app.runtime.ledger.query(event_type="EXCHANGE", session_id=_SESSION)
        assert exchange.metadata["error_code"] == "CANCELLED"
        await app.runtime.aclose()


_CHAT, _MESSAGES = "openai.chat", "anthropic.messages"
_FAILS: dict[str, list[dict[str, Any]]] = {
    "an error": [{"error": {"message": "overloaded", "type": "server_error"}}],
    "another dialect": [{"type": "message_start", "message": {"id": "m", "usage": {}}}],
    "what is no event": [{"choices": 1}],
}


class _Client:
    full = False

    def __init__(self) -> None:
        self.wire = b""

    def begin(self, status: int, headers: Any) -> None:
        assert status == 200

    def write(self, data: bytes) -> None:
        self.wire += data

    end = write


def _relay(endpoint: Any, body: Any) -> tuple[_Client, Relay]:
    client = _Client()
    return client, Relay(Body.read(endpoint, json.dumps(body).encode()), cast("Request", client))


def _chunk(endpoint: str, value: Any, *, is_translated: bool = False) -> WireChunk:
    """An event as the gateway passes it, with its neutral form for a client of another dialect."""
    data = json.dumps(value).encode()
    total = stream_sum(endpoint)
    total.add("", data, value)
    events: list[Any] | None = [] if is_translated else None
    if is_translated:
        with contextlib.suppress(RemitError):
            events = stream_reader(endpoint, total).feed(value)
    raw = b"data: %b\n\n" % data
    return WireChunk(endpoint, raw, "", value, total=total, events=events)


async def test_what_came_together_with_an_error_has_begun_the_answer() -> None:
    client, relay = _relay(CHAT, prompt(stream=True))
    await relay.take(Dispatched("LED-1"))
    comment = WireChunk(_CHAT, b": working\n\n", "", None, more=True)
    await relay.take(comment)  # the gateway knows that it begins nothing
    await relay.take(Dispatched("LED-2"))
    said = {"id": "c", "choices": [{"index": 0, "delta": {"content": "hello"}}]}
    chunk = msgspec.structs.replace(_chunk(_CHAT, said), more=True)
    assert await relay.take(chunk)  # or another attempt's answer would come behind it
    error = {"error": {"message": "overloaded"}}
    await relay.take(msgspec.structs.replace(_chunk(_CHAT, error), is_last=True))
    assert client.wire == chunk.raw


@pytest.mark.parametrize("fails", _FAILS)
async def test_another_attempt_is_translated_from_its_beginning(fails: str) -> None:
    client, relay = _relay(RESPONSES, {"model": "m", "input": "hi", "stream": True})
    await relay.take(Dispatched("LED-1"))
    for value in _FAILS[fails]:
        endpoint = _MESSAGES if "type" in value else _CHAT
        began = await relay.take(_chunk(endpoint, value, is_translated=True))
        assert not began
    await relay.take(Dispatched("LED-2"))
    said = {"id": "c", "choices": [{"index": 0, "delta": {"content": "hello"}}]}
    assert await relay.take(_chunk(_CHAT, said, is_translated=True))
    assert b"hello" in client.wire
    assert b"response.created" in client.wire


async def test_a_stream_without_its_record_has_no_end() -> None:
    client, relay = _relay(CHAT, prompt(stream=True))
    await relay.take(Dispatched("LED-1"))
    said = {"id": "c", "choices": [{"index": 0, "delta": {"content": "hi"}}]}
    await relay.take(_chunk(_CHAT, said))
    await relay.take(WireChunk(_CHAT, b"data: [DONE]\n\n", "", None, is_last=True))
    relay.break_off(503, "record_unavailable", "The record cannot be written just now.")
    assert b"[DONE]" not in client.wire.split(b"record_unavailable")[0]
    assert client.wire.count(b"record_unavailable") == 1
