"""Model calls through ASGI alone, as another ASGI server would carry them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remit.runtime import Runtime
from remit.server.app import App
from tests.support.roots import new_root
from tests.support.wire import Raw, completion, completion_stream, serve

_SESSION = "SES-ASGI"


class _Caller:
    """A client of the application, without a socket in between."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.told: list[dict[str, Any]] = []
        self.gone = asyncio.Event()

    async def call(self, *, stream: bool, host: bytes = b"localhost") -> None:
        body = json.dumps({"model": "gpt-4o-mini", "max_tokens": 9, "stream": stream,
                           "messages": [{"role": "user", "content": "hi"}]}).encode()  # fmt: skip
        pieces = [body[:10], body[10:]]
        scope = {
            "type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b"",
            "headers": [(b"host", host), (b"x-remit-session", _SESSION.encode())],
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            if pieces:
                piece = pieces.pop(0)
                return {"type": "http.request", "body": piece, "more_body": bool(pieces)}
            await self.gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            self.told.append(message)

        await self.app(scope, receive, send)

    @property
    def status(self) -> int:
        return int(self.told[0]["status"])

    @property
    def body(self) -> bytes:
        assert [m["type"] for m in self.told[1:]] == ["http.response.body"] * (len(self.told) - 1)
        assert [bool(m.get("more_body")) for m in self.told[1:]][-1] is False
        return b"".join(message["body"] for message in self.told[1:])


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
        caller = _Caller(app)
        await caller.call(stream=False)
        assert caller.status == 200
        assert json.loads(caller.body)["choices"][0]["message"]["content"] == "Hello."
        assert b"x-remit-exchange" in dict(caller.told[0]["headers"])
        stranger = _Caller(app)
        await stranger.call(stream=False, host=b"attacker.example")
        assert stranger.status == 403
        assert len(upstream.calls) == 1
        await app.runtime.aclose()


async def test_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        serve(completion_stream(completion("Hello there."))) as upstream,
        _app(tmp_path / "root", upstream.url, monkeypatch) as app,
    ):
        caller = _Caller(app)
        await caller.call(stream=True)
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
        caller = _Caller(app)
        task = asyncio.create_task(caller.call(stream=stream))
        while not upstream.calls:
            await asyncio.sleep(0.01)
        caller.gone.set()
        await asyncio.wait_for(task, 20)
        (exchange,) = app.runtime.ledger.query(event_type="EXCHANGE", session_id=_SESSION)
        assert exchange.metadata["error_code"] == "CANCELLED"
        await app.runtime.aclose()
