"""A provider-shaped upstream that misbehaves on order: a process of its own, in both dialects.

Order in the last user text, ``hello [[delay=0.2 status=429 retry_after=1 once]]``, or behind the
model's name, ``gpt-x@delay=0.2,status=500`` (the text wins); an unknown key is a 400:

- ``delay=S`` before the headers; ``slow=S`` between pieces; ``hang``
- ``status=4xx|5xx``, ``retry_after=S``; ``fail_first=K key=X``: only the first K with that key fail
  (with ``status``, else 500); ``once``: only the first with that key, else that text, is ordered
- ``cut=N``: the socket closes after N words of a stream, or half of a whole body
- ``garbage=json|html|empty|truncated|wrong_shape|invalid_utf8|huge_usage|negative_usage``
- ``tokens=N`` words of text; ``thinking``
- ``tool=NAME:JSON``, ``parallel=N``: tool calls, until their results come
- ``usage=none``, ``cached=N`` of the input; ``tag=T`` is logged
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import http.client
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.support import upstream_answers as answers
from tests.support.processes import Program

__all__ = ["Upstream", "upstream"]

_MODELS = ("gpt-test-1", "claude-test-1")
_TALK = ("/v1/chat/completions", "/v1/messages")


class _Server:
    def __init__(self, log: str) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._n = len(Path(log).read_bytes().splitlines())
        self._seen: Counter[tuple[str, str]] = Counter()

    async def reset(self, _: web.Request) -> web.Response:
        os.ftruncate(self._log, 0)
        self._n, self._seen = 0, Counter()
        return web.Response()

    def _note(self, request: web.Request, body: dict[str, Any], tag: str | None) -> None:
        headers = request.headers
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        secret = key.encode("utf-8", "surrogateescape")
        self._n += 1
        line = {"n": self._n, "path": request.path, "model": body.get("model"),
                "stream": body.get("stream") is True, "tag": tag, "at": time.time()}  # fmt: skip
        line["authorization_sha"] = hashlib.sha256(secret).hexdigest() if secret else None
        os.write(self._log, json.dumps(line).encode() + b"\n")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        raw, path = await request.read(), request.path
        anthropic = "anthropic-version" in request.headers or path.startswith("/v1/messages")
        dialect: answers.Dialect = "anthropic" if anthropic else "openai"
        body: dict[str, Any] = {}
        orders: dict[str, Any] = {}
        text, wrong = "", ""
        try:
            if request.method == "POST":
                body = answers.read_body(dialect, raw)
                text, orders = answers.read_orders(body)
        except (answers.BadRequestError, RecursionError) as error:
            wrong = str(error)
        self._note(request, body, orders.get("tag"))
        orders = self._due(text, body, orders) if path in _TALK else {}
        if wrong:
            reply = answers.refuse(dialect, 400, wrong, {})
        elif path == "/v1/models" and request.method == "GET":
            reply = answers.whole(_models(dialect), {})
        elif path == "/v1/messages/count_tokens" and body:
            reply = answers.whole({"input_tokens": answers.count_tokens(body)}, {})
        elif path not in _TALK or not body:
            reply = answers.refuse(dialect, 404, "there is nothing here", {})
        elif status := orders.get("status"):
            reply = answers.refuse(dialect, status, f"{status} as ordered", orders)
        else:
            reply = answers.make_reply(dialect, body, text, orders, self._n)
        return await _send(request, reply, orders)

    def _due(self, text: str, body: dict[str, Any], orders: dict[str, Any]) -> dict[str, Any]:
        """What is ordered this time, after what came before with the same key."""
        key = orders.get("key", f"{body.get('model')} {text}")
        for kind in ("once", "fail_first"):
            self._seen[kind, key] += kind in orders
        if self._seen["once", key] > 1 and "once" in orders:
            return {}
        first = orders.get("fail_first")
        if first is not None and self._seen["fail_first", key] <= first:
            return {"status": 500, **orders}
        return orders if first is None else {k: v for k, v in orders.items() if k != "status"}


def _models(dialect: answers.Dialect) -> dict[str, Any]:
    if dialect == "openai":
        more = {"object": "model", "created": 1_700_000_000, "owned_by": "test"}
        return {"object": "list", "data": [{"id": name, **more} for name in _MODELS]}
    more = {"type": "model", "created_at": "2025-01-01T00:00:00Z", "lifecycle": "active"}
    data = [{"id": name, "display_name": name, **more} for name in _MODELS]
    return {"data": data, "has_more": False, "first_id": _MODELS[0], "last_id": _MODELS[-1]}


async def _send(
    request: web.Request, reply: answers.Reply, orders: dict[str, Any]
) -> web.StreamResponse:
    await asyncio.sleep(orders.get("delay", 0))
    if "hang" in orders:
        await asyncio.Event().wait()
    response = web.StreamResponse(status=reply.status, headers={"content-type": reply.kind})
    if "retry_after" in orders:
        response.headers["retry-after"] = f"{orders['retry_after']:g}"
    response.content_length = reply.length
    with contextlib.suppress(ConnectionError):
        await response.prepare(request)
        for chunk in reply.chunks[: reply.cut]:
            await response.write(chunk)
            await asyncio.sleep(orders.get("slow", 0))
        if reply.cut is not None and (transport := request.transport):
            while transport.get_write_buffer_size():
                await asyncio.sleep(0.01)
            transport.abort()
    return response


async def _serve(port: int, log: str) -> None:
    server = _Server(log)
    app = web.Application(client_max_size=0)
    app.router.add_post("/reset", server.reset)
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
    url = "http://{}:{}".format(*runner.addresses[0][:2])
    print(json.dumps({"url": url, "pid": os.getpid()}), flush=True)
    await asyncio.Event().wait()


@dataclass(frozen=True)
class Upstream:
    """A running upstream: its base URL without ``/v1``, process and log (JSON lines)."""

    url: str
    pid: int
    log: Path
    _process: Program

    def calls(self) -> list[dict[str, Any]]:
        """Every request whose body arrived, oldest first; also when the process is dead."""
        return [json.loads(line) for line in self.log.read_bytes().splitlines()]

    def count(self) -> int:
        return len(self.calls())

    def reset(self) -> None:
        """Forget the calls and what was counted for ``once`` and ``fail_first``."""
        address = self.url.removeprefix("http://")
        with contextlib.closing(http.client.HTTPConnection(address, timeout=10)) as connection:
            connection.request("POST", "/reset")
            assert connection.getresponse().status == 200

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)


@contextlib.contextmanager
def upstream(log: Path | None = None) -> Iterator[Upstream]:
    """An upstream of one's own until the block ends; without ``log`` its log ends with it."""
    with tempfile.TemporaryDirectory() as scratch:
        path = (log or Path(scratch, "calls.jsonl")).absolute()
        with Program(
            "-m", "tests.support.upstream", "--until-eof", "--log", str(path),
            environment=os.environ, new_session=True,
        ) as process:  # fmt: skip
            ready = json.loads(process.stdout.readline() or "null")
            assert ready, "the upstream did not start"
            running = Upstream(ready["url"], ready["pid"], path, process)
            try:
                yield running
            finally:
                running.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", required=True)
    parser.add_argument("--until-eof", action="store_true", help="end with whoever holds stdin")
    given = parser.parse_args()
    if given.until_eof:
        threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()
    asyncio.run(_serve(given.port, given.log))
