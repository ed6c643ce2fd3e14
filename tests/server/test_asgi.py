"""Model calls through ASGI alone, as another ASGI server would carry them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remit.runtime import Runtime
from remit.server.app import App
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


@contextmanager
def _app(root: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-upstream-openai")
    with Runtime.open(new_root(root)) as runtime:
        app = App(runtime, dev=True)
        yield app
        app._keys.close()


async def test_a_whole_answer_and_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        serve(completion("Hello.")) as upstream,
        _app(tmp_path / "root", upstream.url, monkeypatch) as app,
    ):
        caller = await _call(app, stream=False)
        assert caller.status == 200
        assert caller.json["choices"][0]["message"]["content"] == "Hello."
        assert "x-remit-exchange" in caller.headers
        stranger = await _call(app, stream=False, host=b"attacker.example")
        assert stranger.status == 403
        assert len(upstream.calls) == 1
        await app.runtime.aclose()


async def test_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        serve(completion_stream(completion("Hello there."))) as upstream,
        _app(tmp_path / "root", upstream.url, monkeypatch) as app,
    ):
        caller = await _call(app, stream=True)
        assert caller.status == 200
        assert caller.body.endswith(b"data: [DONE]\n\n")
        assert len(caller.told) > 2
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
