"""A real HTTP server on loopback that stores any object, as the providers' other APIs do.

``POST`` on a collection makes an object with an id of the server, ``GET`` lists the collection,
``GET``, ``POST`` and ``DELETE`` on an id show, change and delete it. Anything else is answered with
what was asked.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.listening import listening

_ACTIONS = {
    "cancel", "archive", "complete", "pause", "resume", "search", "remix", "run", "ack", "stop",
    "heartbeat", "redact", "submit_tool_outputs", "unpause", "validate", "enrollment_url",
    "mcp_oauth_validate", "content", "poll", "stats", "stream", "edits", "extensions", "runs",
}  # fmt: skip


@dataclass
class Asked:
    """A request as the server got it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    size: int
    sha256: str


@dataclass
class ObjectStore:
    """See the module.

    Attributes:
        asked: what came in; of a body of more than 1 MiB only size and hash.
        objects: the stored objects, by collection and id.
        by_token: list with page tokens instead of ids.
        answer_early: answer 413 before the body was read.
    """

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    by_token: bool = False
    answer_early: bool = False
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.answer_early and request.method == "POST":
            return web.json_response({"error": {"message": "too large"}}, status=413)
        digest, size, body = hashlib.sha256(), 0, b""
        async for piece in request.content.iter_any():
            digest.update(piece)
            size += len(piece)
            if size <= 1 << 20:
                body += piece
        asked = Asked(request.method, request.path_qs, dict(request.headers), body, size,
                      digest.hexdigest())  # fmt: skip
        self.asked.append(asked)
        try:
            value = json.loads(body) if body[:1] == b"{" else {}
        except ValueError:
            value = {}
        path = request.path.removeprefix("/v1")
        if value.get("stream") is True:
            return await self._stream(request, path)
        return self._told(request, path, value)

    def _told(self, request: web.Request, path: str, value: dict[str, Any]) -> web.Response:
        collection, _, last = path.rpartition("/")
        objects = self.objects.get(collection, {})
        if last in objects:
            if request.method == "DELETE":
                return web.json_response({**objects.pop(last), "deleted": True})
            if request.method == "POST":
                objects[last].update(value)
            return web.json_response(objects[last])
        if last in _ACTIONS:
            more: dict[str, Any] = {}
            if last == "complete":
                more["file"] = {"id": f"file-{next(self._numbers):020}", "object": "file"}
            if path == "/threads/runs":
                more["thread_id"] = self._make("/threads", {})["id"]
            if last in ("remix", "edits", "extensions") or path.endswith("/run"):
                more = {"id": f"made_{next(self._numbers):08}"}
            return web.json_response({"id": collection.rpartition("/")[2], "path": path, **more})
        if request.method == "POST":
            return web.json_response(self._make(path, value))
        if request.method == "GET" and (path in self.objects or not last.count("_0")):
            return self._listed(request, path)
        error = {"type": "not_found_error", "message": f"No such object: {last}"}
        return web.json_response({"type": "error", "error": error}, status=404)

    def _make(self, path: str, value: dict[str, Any]) -> dict[str, Any]:
        kind = path.rpartition("/")[2].removesuffix("s")
        name = f"{kind}_{next(self._numbers):020}"
        made = {**value, "id": name, "object": kind, "created_at": 1_770_000_000}
        self.objects.setdefault(path, {})[name] = made
        return made

    def _listed(self, request: web.Request, path: str) -> web.Response:
        found = list(self.objects.get(path, {}).values())
        given = request.query.get("limit", "20")
        limit = int(given) if given.isdigit() else 20
        after = request.query.get("after") or request.query.get("after_id")
        start = int(request.query.get("page", 0)) if self.by_token else 0
        if after and not self.by_token:
            ids = [one["id"] for one in found]
            if after not in ids:
                return web.json_response({"error": {"message": "no such object"}}, status=400)
            start = ids.index(after) + 1
        part, more = found[start : start + limit], start + limit < len(found)
        page: dict[str, Any] = {"data": part, "has_more": more}
        if self.by_token:
            page = {"data": part, "next_page": str(start + limit) if more else None}
        return web.json_response({"object": "list", **page})

    async def _stream(self, request: web.Request, path: str) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await reply.prepare(request)
        thread = self._make("/threads", {})
        for event in ({"event": "thread.run.created", "thread_id": thread["id"]}, {"text": "hi"}):
            await reply.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        await reply.write(b"data: [DONE]\n\n")
        return reply


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Run the server; ``url`` has no path."""
    store = ObjectStore()
    app = web.Application(client_max_size=1 << 40)
    app.router.add_route("*", "/{path:.*}", store.answer)
    with listening(app) as url:
        store.url = url
        yield store
