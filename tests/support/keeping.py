"""A real HTTP server on loopback that keeps files and batches as OpenAI and Anthropic do.

It answers under ``/v1`` in the dialect that a request's headers show. Batches end when the test
says so.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.listening import listening
from tests.support.wire import completion, message

_CREATED = 1_770_000_000
_DAY = "2026-02-02T02:40:00Z"


@dataclass
class Asked:
    """A request as the server got it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Cut:
    """An answer that breaks off behind these bytes."""

    body: bytes
    content_type: str


@dataclass
class Keeper:
    """See the module.

    Attributes:
        asked: what came in.
        answers: by custom id, the body (and with it the end) of a line's result; else a text.
        models: of ``GET /models``.
        replies: by path behind ``/v1``, what any other path is answered.
    """

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    files: dict[str, tuple[dict[str, Any], bytes]] = field(default_factory=dict)
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    models: list[str] = field(default_factory=lambda: ["gpt-4o-mini", "claude-sonnet-4-5"])
    replies: dict[str, Callable[[Asked], web.StreamResponse | Cut | dict[str, Any]]] = field(
        default_factory=dict
    )
    refuse: Callable[[web.Request], web.Response | None] = lambda request: None
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    # -- ends ---------------------------------------------------------------------------

    def finish(self, batch_id: str, *, only: int | None = None, how: str = "completed") -> None:
        """End a batch: answer its lines, or the first of them."""
        batch = self.batches[batch_id]
        if batch.get("object") == "batch":
            self._finish_openai(batch, only, how)
        else:
            batch["processing_status"] = "ended"
            batch["ended_at"] = _DAY
            batch["results_url"] = f"{self.url}/v1/messages/batches/{batch_id}/results"

    def _finish_openai(self, batch: dict[str, Any], only: int | None, how: str) -> None:
        done, failed = [], []
        for number, line in enumerate(self.lines[batch["id"]]):
            custom_id = line["custom_id"]
            body = self.answers.get(custom_id)
            if only is not None and number >= only:
                error = {"code": "batch_expired", "message": "It was not in time."}
                failed.append({"id": f"r{number}", "custom_id": custom_id, "response": None,
                               "error": error})  # fmt: skip
                continue
            status = 400 if body and "error" in body else 200
            if body is None:
                body = _completion(line["body"]["model"], f"answer to {custom_id}")
            reply = {"status_code": status, "request_id": f"req-{number}", "body": body}
            told = {"id": f"r{number}", "custom_id": custom_id, "response": reply, "error": None}
            (done if status == 200 else failed).append(told)
        batch["status"] = how
        for name, told_lines in (("output_file_id", done), ("error_file_id", failed)):
            if told_lines:
                data = b"".join(json.dumps(told).encode() + b"\n" for told in told_lines)
                batch[name] = self._keep_file("out.jsonl", "batch_output", data)["id"]

    def results(self, batch_id: str) -> bytes:
        """Of an Anthropic batch."""
        parts = []
        for line in self.lines[batch_id]:
            custom_id = line["custom_id"]
            result = self.answers.get(custom_id) or {
                "type": "succeeded",
                "message": _message(line["params"]["model"], f"answer to {custom_id}"),
            }
            parts.append(json.dumps({"custom_id": custom_id, "result": result}).encode())
        return b"\n".join(parts) + b"\n"

    # -- HTTP ---------------------------------------------------------------------------

    async def answer(self, request: web.Request) -> web.StreamResponse:
        upload = request.path == "/v1/files" and request.method == "POST"
        body = b"" if upload else await request.read()  # a form is read once, as a form
        self.asked.append(Asked(request.method, request.path_qs, dict(request.headers), body))
        if (refused := self.refuse(request)) is not None:
            return refused
        anthropic = "x-api-key" in request.headers
        steps = request.path.removeprefix("/v1/").split("/")
        if steps[0] == "files":
            return await self._files(request, body, steps[1:], anthropic)
        if steps[0] == "batches" or steps[:2] == ["messages", "batches"]:
            rest = steps[1:] if steps[0] == "batches" else steps[2:]
            return self._batches(request, body, rest, anthropic)
        if steps == ["models"]:
            return web.json_response(self._models(anthropic))
        if (replied := self.replies.get("/".join(steps))) is not None:
            reply = replied(self.asked[-1])
            if isinstance(reply, Cut):
                return await _cut(request, reply)
            return web.json_response(reply) if isinstance(reply, dict) else reply
        return web.json_response({"error": {"message": "no such path"}}, status=404)

    async def _files(
        self, request: web.Request, body: bytes, rest: list[str], anthropic: bool
    ) -> web.StreamResponse:
        if not rest and request.method == "POST":
            form = await request.post()
            upload = form["file"]
            assert isinstance(upload, web.FileField)
            purpose = str(form.get("purpose", ""))
            data = upload.file.read()
            return web.json_response(self._keep_file(upload.filename, purpose, data, anthropic))
        if not rest:
            return web.json_response(_page([told for told, _ in self.files.values()], request))
        if rest[0] not in self.files:
            error = {"type": "not_found_error", "message": f"No such File object: {rest[0]}"}
            return web.json_response({"type": "error", "error": error}, status=404)
        told, data = self.files[rest[0]]
        if request.method == "DELETE":
            del self.files[rest[0]]
            gone = {"id": rest[0], "object": "file", "deleted": True}
            if anthropic:
                gone = {"id": rest[0], "type": "file_deleted"}
            return web.json_response(gone)
        if rest[1:] == ["content"]:
            return web.Response(body=data, content_type="application/octet-stream")
        return web.json_response(told)

    def _keep_file(
        self, name: str, purpose: str, data: bytes, anthropic: bool = False
    ) -> dict[str, Any]:
        number = next(self._numbers)
        told: dict[str, Any]
        if anthropic:
            told = {"id": f"file_{number:024}", "type": "file", "filename": name,
                    "mime_type": "text/plain", "size_bytes": len(data), "created_at": _DAY,
                    "downloadable": False}  # fmt: skip
        else:
            told = {"id": f"file-{number:022}", "object": "file", "bytes": len(data),
                    "created_at": _CREATED, "filename": name, "purpose": purpose,
                    "status": "processed"}  # fmt: skip
        self.files[told["id"]] = (told, data)
        return told

    def _batches(
        self, request: web.Request, body: bytes, rest: list[str], anthropic: bool
    ) -> web.StreamResponse:
        if not rest and request.method == "POST":
            asked = json.loads(body)
            made = self._anthropic_batch(asked) if anthropic else self._openai_batch(asked)
            return web.json_response(made)
        if not rest:
            return web.json_response(_page(list(self.batches.values()), request))
        batch = self.batches.get(rest[0])
        if batch is None:
            error = {"type": "not_found_error", "message": "no such batch"}
            return web.json_response({"type": "error", "error": error}, status=404)
        if rest[1:] == ["cancel"]:
            if anthropic:
                batch["processing_status"] = "canceling"
            else:
                batch["status"] = "cancelling"
        elif rest[1:] == ["results"]:
            return web.Response(body=self.results(rest[0]), content_type="application/x-jsonl")
        elif request.method == "DELETE":
            del self.batches[rest[0]]
            return web.json_response({"id": rest[0], "type": "message_batch_deleted"})
        return web.json_response(batch)

    def _openai_batch(self, asked: dict[str, Any]) -> dict[str, Any]:
        data = self.files[asked["input_file_id"]][1]
        batch_id = f"batch_{next(self._numbers):024}"
        self.lines[batch_id] = [json.loads(line) for line in data.splitlines() if line.strip()]
        self.batches[batch_id] = {
            "id": batch_id, "object": "batch", "endpoint": asked["endpoint"],
            "input_file_id": asked["input_file_id"], "completion_window": "24h",
            "status": "in_progress", "created_at": _CREATED, "metadata": asked.get("metadata"),
        }  # fmt: skip
        return self.batches[batch_id]

    def _anthropic_batch(self, asked: dict[str, Any]) -> dict[str, Any]:
        batch_id = f"msgbatch_{next(self._numbers):024}"
        self.lines[batch_id] = asked["requests"]
        counts = {"processing": len(asked["requests"]), "succeeded": 0, "errored": 0,
                  "canceled": 0, "expired": 0}  # fmt: skip
        self.batches[batch_id] = {
            "id": batch_id, "type": "message_batch", "processing_status": "in_progress",
            "request_counts": counts, "created_at": _DAY, "expires_at": _DAY, "ended_at": None,
            "cancel_initiated_at": None, "archived_at": None, "results_url": None,
        }  # fmt: skip
        return self.batches[batch_id]

    def _models(self, anthropic: bool) -> dict[str, Any]:
        if anthropic:
            data = [{"type": "model", "id": name, "display_name": name.title(),
                     "created_at": _DAY, "max_tokens": 64000} for name in self.models
                    if name.startswith("claude")]  # fmt: skip
            return {"data": data, "has_more": False, "first_id": None, "last_id": None}
        return {"object": "list", "data": [
            {"id": name, "object": "model", "created": _CREATED, "owned_by": "system"}
            for name in self.models if not name.startswith("claude")
        ]}  # fmt: skip


async def _cut(request: web.Request, reply: Cut) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": reply.content_type})
    await response.prepare(request)
    await response.write(reply.body)
    assert request.transport is not None
    request.transport.close()
    return response


def _page(items: list[dict[str, Any]], request: web.Request) -> dict[str, Any]:
    after = request.query.get("after") or request.query.get("after_id")
    if after is not None:
        items = items[[item["id"] for item in items].index(after) + 1 :]
    limit = int(request.query.get("limit", 20))
    page = items[:limit]
    return {"object": "list", "data": page, "has_more": len(items) > limit,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None}  # fmt: skip


def _completion(model: str, text: str) -> dict[str, Any]:
    answer = completion(text, prompt_tokens=100, completion_tokens=10)
    return {**answer, "model": model, "novel": 1.50}


def _message(model: str, text: str) -> dict[str, Any]:
    return {**message(text, input_tokens=100, output_tokens=10), "model": model}


@contextmanager
def keeping() -> Iterator[Keeper]:
    """Run a server in a thread until the block ends."""
    keeper = Keeper()
    app = web.Application(client_max_size=1 << 28)
    app.router.add_route("*", "/{path:.*}", keeper.answer)
    with listening(app) as keeper.url:
        yield keeper
