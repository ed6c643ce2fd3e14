"""The strict provider over HTTP: routes, keys, headers, and the memory of what passed."""

from __future__ import annotations

import base64
import json
import re
import struct
from typing import Any

from aiohttp import web

from tests.support.strict import chat, clouds, gemini, messages, models, responses
from tests.support.strict.shapes import Reply, Wrong, check, data, refusal, stream, whole
from tests.support.strict.stored import Stored

__all__ = ["StrictProvider"]

_EMBEDDING_SIZE = 8
_RATE_LIMITS = {
    "openai": {"x-ratelimit-limit-requests": "10000", "x-ratelimit-remaining-requests": "9999",
               "x-ratelimit-reset-requests": "8.64s", "openai-version": "2020-10-01",
               "openai-organization": "org-strict", "openai-processing-ms": "12"},
    "anthropic": {"anthropic-ratelimit-requests-limit": "4000",
                  "anthropic-ratelimit-requests-remaining": "3999",
                  "anthropic-ratelimit-requests-reset": "2026-01-02T03:04:05Z",
                  "anthropic-organization-id": "strict"},
    "gemini": {},
    "cloud": {},
}  # fmt: skip
_STATUS_ORDER = re.compile(r"\[\[status (\d{3})( once)?\]\]")
_WAV = b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00" + bytes(range(16)) + b"data\x00\x00\x00\x00"
_PIXEL = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/"
          "iZk9HQAAAABJRU5ErkJggg==")  # fmt: skip


class StrictProvider:
    """All providers at once: the path and the headers say which one is meant."""

    def __init__(self) -> None:
        self._stored = Stored(self._line)
        self._number = 0
        self._failed: set[str] = set()
        self.seen: list[dict[str, Any]] = []

    def app(self) -> web.Application:
        """The application; ``GET /count`` and ``/seen?after=N`` tell what came."""
        app = web.Application(client_max_size=0)
        app.router.add_get("/count", self._count)
        app.router.add_get("/seen", self._tell)
        app.router.add_route("*", "/{path:.*}", self._serve)
        return app

    async def _count(self, _: web.Request) -> web.Response:
        return web.json_response(len(self.seen))

    async def _tell(self, request: web.Request) -> web.Response:
        return web.json_response(self.seen[int(request.query.get("after", 0)) :])

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        self._number += 1
        number = self._number
        note: dict[str, Any] = {
            "n": number, "method": request.method, "path": request.path,
            "query": request.query_string, "headers": [[k.lower(), v] for k, v in
                                                       request.headers.items()],
            "body": base64.b64encode(raw).decode(),
        }  # fmt: skip
        dialect = _dialect(request)
        try:
            _authenticate(dialect, request)
            reply = await self._reply(dialect, request, raw, number)
        except Wrong as wrong:
            status = {"unauthorized": 401, "not_found": 404}.get(wrong.code or "", 400)
            if (wrong.code or "").startswith("status "):
                status, wrong.code = int(wrong.code[7:]), None
            reply = refusal(dialect, status, wrong, number)
        note.update(status=reply.status, kind=reply.kind,
                    answer=base64.b64encode(b"".join(reply.chunks)).decode())  # fmt: skip
        self.seen.append(note)
        name = "request-id" if dialect == "anthropic" else "x-request-id"
        headers = {**_RATE_LIMITS[dialect], name: f"req_{number:024d}", **reply.headers,
                   "content-type": reply.kind}  # fmt: skip
        response = web.StreamResponse(status=reply.status, headers=headers)
        if not reply.kind.startswith("text/event-stream"):
            response.content_length = sum(map(len, reply.chunks))
        await response.prepare(request)
        for chunk in reply.chunks:
            await response.write(chunk)
        await response.write_eof()
        return response

    async def _reply(
        self, dialect: str, request: web.Request, raw: bytes, number: int
    ) -> Reply:  # fmt: skip
        method, path = (
            request.method,
            re.sub(
                "^/v1(beta1?)?(?=/)(/projects/p/locations/l/publishers/google)?", "", request.path
            ),
        )
        if request.content_type == "multipart/form-data":
            return self._upload(dialect, path, _form(request.headers["content-type"], raw))
        body: Any = {}
        if method == "POST" and (raw or not re.search(r"/(cancel)$", path)):
            try:
                body = json.loads(raw)
            except ValueError:
                raise Wrong("We could not parse the JSON body of your request.") from None
            if not isinstance(body, dict):
                raise Wrong("Invalid type for 'body': expected an object.")
        self._ordered_status(raw, number)
        route = f"{method} {path}"
        if dialect == "cloud":
            return clouds.reply(route, body, number)
        if dialect == "gemini":
            return gemini.reply(route, body, request.query)
        if dialect == "anthropic":
            beta = request.query.get("beta") == "true" or "anthropic-beta" in request.headers
            return self._anthropic(route, body, number, beta=beta, host=request.host)
        return self._openai(route, body, number, request.query)

    def _ordered_status(self, raw: bytes, number: int) -> None:
        if order := _STATUS_ORDER.search(raw.decode("utf-8", "replace")):
            if order[2] and order[0] in self._failed:
                self._failed.discard(order[0])
                return
            if order[2]:
                self._failed.add(order[0])
            raise Wrong(f"{order[1]} as ordered", code=f"status {order[1]}")

    # -- OpenAI ----------------------------------------------------------------------------

    def _openai(self, route: str, body: dict[str, Any], number: int, query: Any) -> Reply:
        dialect = "openai"
        if route == "POST /chat/completions":
            turn = chat.read(body)
            answer = chat.complete(body, turn, number)
            return stream(chat.chunks(body, answer)) if body.get("stream") else whole(
                dialect, answer)  # fmt: skip
        if route == "POST /responses":
            turn = responses.read(body, self._stored.responses)
            answer = responses.complete(body, turn, number)
            if answer["store"]:
                self._stored.keep_response(answer, responses.items_of(body.get("input"), number))
            return stream(responses.events(body, answer)) if body.get("stream") else whole(
                dialect, answer)  # fmt: skip
        if make := _MAKERS.get(route):
            return make(body, number)
        if match := re.fullmatch(r"(GET|DELETE|POST) /responses/([^/]+)(/\w+)?", route):
            return self._response(match[1], match[2], match[3] or "")
        if match := re.fullmatch(r"GET /models(?:/(.+))?", route):
            return whole(dialect, models.openai_list(match[1] or ""))
        if route == "POST /batches":
            return whole(dialect, self._stored.add_batch(body))
        if route == "GET /batches":
            return whole(dialect, self._stored.list_batches(dialect))
        if match := re.fullmatch(r"(?:GET|POST) /batches/([^/]+)(/cancel)?", route):
            batch = self._stored.batch(match[1])
            return whole(dialect, {**batch, "status": "cancelling"} if match[2] else batch)
        return self._files(dialect, route)

    def _response(self, method: str, name: str, more: str) -> Reply:
        kept = self._stored.response(name)
        if method == "DELETE":
            del self._stored.responses[name]
            return whole("openai", {"id": name, "object": "response", "deleted": True})
        if more == "/input_items":
            listed = kept["items"][::-1]
            return whole("openai", {"object": "list", "data": listed, "has_more": False,
                                    "first_id": listed[0]["id"] if listed else None,
                                    "last_id": listed[-1]["id"] if listed else None})  # fmt: skip
        if more == "/cancel" and not kept["answer"]["background"]:
            raise Wrong("Cannot cancel a synchronous response.", "response_id")
        return whole("openai", kept["answer"])

    def _line(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self._number += 1
        dialect = "anthropic" if path.startswith("/v1/messages") else "openai"
        route = "POST " + path.removeprefix("/v1")
        try:
            if dialect == "openai":
                reply = self._openai(route, body, self._number, {})
            else:
                reply = self._anthropic(route, body, self._number, beta=True, host="")
        except Wrong as wrong:
            reply = refusal(dialect, 400, wrong, self._number)
        return reply.status, json.loads(b"".join(reply.chunks))

    # -- Anthropic -------------------------------------------------------------------------

    def _anthropic(
        self, route: str, body: dict[str, Any], number: int, *, beta: bool, host: str
    ) -> Reply:
        dialect = "anthropic"
        if route == "POST /messages":
            turn = messages.read(body, beta=beta)
            answer = messages.complete(body, turn, number)
            return stream(messages.events(answer)) if body.get("stream") else whole(
                dialect, answer)  # fmt: skip
        if route == "POST /messages/count_tokens":
            return whole(dialect, {"input_tokens": messages.read_count(body, beta=beta)})
        if match := re.fullmatch(r"GET /models(?:/(.+))?", route):
            return whole(dialect, models.anthropic_list(match[1] or ""))
        if route == "POST /messages/batches":
            where = f"http://{host}/v1/messages/batches/{{}}/results"
            return whole(dialect, self._stored.add_message_batch(body, where))
        if route == "GET /messages/batches":
            return whole(dialect, self._stored.list_batches(dialect))
        if match := re.fullmatch(r"(\w+) /messages/batches/(\w+)(/\w+)?", route):
            batch = self._stored.batch(match[2])
            if match[3] == "/results":
                return data(self._stored.results[match[2]], "application/x-jsonl")
            if match[1] == "DELETE":
                del self._stored.batches[match[2]]
                return whole(dialect, {"id": match[2], "type": "message_batch_deleted"})
            return whole(dialect, batch)
        return self._files(dialect, route)

    # -- files -----------------------------------------------------------------------------

    def _files(self, dialect: str, route: str) -> Reply:
        if route == "GET /files":
            return whole(dialect, self._stored.list_files(dialect))
        if match := re.fullmatch(r"(GET|DELETE) /files/([^/]+)(/content)?", route):
            if match[1] == "DELETE":
                return whole(dialect, self._stored.delete_file(dialect, match[2]))
            told, content = self._stored.file(match[2])
            return data(content) if match[3] else whole(dialect, told)
        raise Wrong(f"Invalid URL ({route})", code="not_found")

    def _upload(self, dialect: str, path: str, form: dict[str, Any]) -> Reply:
        name, kind, content = form.get("file") or form.get("image") or ("", "", b"")
        if not name:
            raise Wrong("Missing required parameter: 'file'.", "file")
        if path == "/files":
            purpose = form.get("purpose", "")
            return whole(dialect, self._stored.add_file(dialect, name, kind, purpose, content))
        if path in ("/audio/transcriptions", "/audio/translations"):
            models.must_be(form.get("model", ""), "transcriptions")
            if form.get("response_format") == "text":
                return data(b"It is spoken.\n", "text/plain; charset=utf-8")
            if form.get("stream") == "true":
                events = ({"type": "transcript.text.delta", "delta": "It is spoken."},
                          {"type": "transcript.text.done", "text": "It is spoken."})  # fmt: skip
                return stream(f"data: {json.dumps(each)}\n\n".encode() for each in events)
            return whole(dialect, {"text": "It is spoken.",
                                   "usage": {"type": "duration", "seconds": 1}})  # fmt: skip
        if path == "/images/edits":
            return _images({"model": form.get("model", "gpt-image-1"), "prompt": "x"}, 0)
        raise Wrong(f"Invalid URL (POST {path})", code="not_found")


def _dialect(request: web.Request) -> str:
    if request.path.startswith("/model/") or "/publishers/anthropic/" in request.path:
        return "cloud"
    if (
        re.match("/v1beta1?/|.*/publishers/google/", request.path)
        or "x-goog-api-key" in request.headers
    ):
        return "gemini"
    if "anthropic-version" in request.headers or request.path.startswith("/v1/messages"):
        return "anthropic"
    return "openai"


def _authenticate(dialect: str, request: web.Request) -> None:
    name = {"anthropic": "x-api-key", "gemini": "x-goog-api-key", "cloud": "x-goog-api-key"}.get(
        dialect, ""
    )
    key = request.headers.get(name, "")
    key = key or request.headers.get("authorization", "").removeprefix("Bearer ")
    if not key.startswith("sk-"):
        said = "invalid x-api-key" if dialect == "anthropic" else "Incorrect API key provided."
        raise Wrong(said, code="unauthorized")
    if dialect == "anthropic" and "anthropic-version" not in request.headers:
        raise Wrong("anthropic-version: header is required")


def _form(kind: str, raw: bytes) -> dict[str, Any]:
    """The fields of a form by name: texts, and files as name, type and content."""
    boundary = re.search(r'boundary="?([^";]+)', kind)
    form: dict[str, Any] = {}
    for part in raw.split(b"--" + (boundary[1].encode() if boundary else b""))[1:-1]:
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        told, content = head.decode(), content.removesuffix(b"\r\n")
        name = re.search(r'[; ]name="?([^";]+)', told)
        file = re.search(r'filename="?([^";\r]+)', told)
        if name and file:
            of = re.search(r"(?i)content-type: *([^\r\n]+)", told)
            form[name[1]] = (file[1], of[1] if of else "application/octet-stream", content)
        elif name:
            form[name[1]] = content.decode()
    return form


# -- OpenAI's smaller endpoints ------------------------------------------------------------


def _embeddings(body: dict[str, Any], number: int) -> Reply:
    check("openai.embeddings", body)
    models.must_be(body["model"], "embeddings")
    given = body["input"]
    single = isinstance(given, str) or (given and isinstance(given[0], int))
    inputs = [given] if single else given
    if not inputs or "" in inputs:
        raise Wrong("'$.input' is invalid. Please check the API reference.", "input")
    size = body.get("dimensions") or _EMBEDDING_SIZE
    found = []
    for index, text in enumerate(inputs):
        seed = sum(json.dumps(text).encode())
        vector = [((seed * (at + 3)) % 97) / 97 for at in range(size)]
        if body.get("encoding_format") == "base64":
            vector = base64.b64encode(struct.pack(f"<{size}f", *vector)).decode()
        found.append({"object": "embedding", "index": index, "embedding": vector})
    used = chat.tokens(given)
    return whole("openai", {"object": "list", "data": found, "model": body["model"],
                            "usage": {"prompt_tokens": used, "total_tokens": used}})  # fmt: skip


def _completions(body: dict[str, Any], number: int) -> Reply:
    check("openai.completions", body)
    models.must_be(body["model"], "completions")
    text = "and so it goes."
    base = {"id": f"cmpl-{number:08d}", "object": "text_completion", "created": 1_700_000_000,
            "model": body["model"]}  # fmt: skip
    used = {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8}
    if not body.get("stream"):
        choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": "stop"}
        return whole("openai", {**base, "choices": [choice], "usage": used})
    events = [{**base, "choices": [{"text": piece, "index": 0, "logprobs": None,
                                    "finish_reason": None}]}
              for piece in chat.pieces(text)]  # fmt: skip
    events.append({**base, "choices": [{"text": "", "index": 0, "logprobs": None,
                                        "finish_reason": "stop"}]})  # fmt: skip
    if (body.get("stream_options") or {}).get("include_usage"):
        events.append({**base, "choices": [], "usage": used})
    lines = [f"data: {json.dumps(each)}\n\n".encode() for each in events]
    return stream([*lines, b"data: [DONE]\n\n"])


def _moderations(body: dict[str, Any], number: int) -> Reply:
    check("openai.moderations", body)
    model = body.get("model") or "omni-moderation-latest"
    models.must_be(model, "moderations")
    names = ("harassment", "harassment/threatening", "hate", "hate/threatening", "illicit",
             "illicit/violent", "self-harm", "self-harm/instructions", "self-harm/intent",
             "sexual", "sexual/minors", "violence", "violence/graphic")  # fmt: skip
    count = len(body["input"]) if isinstance(body["input"], list) else 1
    result = {"flagged": False, "categories": dict.fromkeys(names, False),
              "category_scores": dict.fromkeys(names, 0.0001),
              "category_applied_input_types": {name: ["text"] for name in names}}  # fmt: skip
    return whole("openai", {"id": f"modr-{number:08d}", "model": model,
                            "results": [result] * count})  # fmt: skip


def _images(body: dict[str, Any], number: int) -> Reply:
    check("openai.images", body)
    models.must_be(body.get("model") or "dall-e-2", "images")
    used = {"total_tokens": 20, "input_tokens": 10, "output_tokens": 10,
            "input_tokens_details": {"text_tokens": 10, "image_tokens": 0}}  # fmt: skip
    return whole("openai", {"created": 1_700_000_000, "usage": used,
                            "data": [{"b64_json": _PIXEL}] * (body.get("n") or 1)})  # fmt: skip


def _speech(body: dict[str, Any], number: int) -> Reply:
    check("openai.speech", body)
    models.must_be(body["model"], "speech")
    return data(_WAV * 50, "audio/wav" if body.get("response_format") == "wav" else "audio/mpeg")


def _compact(body: dict[str, Any], number: int) -> Reply:
    models.must_be(body["model"], "chat")
    used = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 4,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 14}  # fmt: skip
    sealed = {"id": f"cmp_{number:08d}", "type": "compaction", "encrypted_content": "gAAA"}
    return whole("openai", {"id": f"resp_{number:08d}", "object": "response.compaction",
                            "created_at": 1_700_000_000, "output": [sealed],
                            "usage": used})  # fmt: skip


def _input_tokens(body: dict[str, Any], number: int) -> Reply:
    models.must_be(body["model"], "chat")
    return whole("openai", {"object": "response.input_tokens", "input_tokens": 10})


_MAKERS = {"POST /responses/compact": _compact, "POST /responses/input_tokens": _input_tokens,
           "POST /embeddings": _embeddings, "POST /completions": _completions,
           "POST /moderations": _moderations, "POST /images/generations": _images,
           "POST /audio/speech": _speech}  # fmt: skip
