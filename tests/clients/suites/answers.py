"""``python -m tests.clients.suites.answers``: a provider made from the types of two SDKs.

The server reads the resources of openai-python and anthropic-sdk-python: the method, the path and
the type of the answer of every call. Each request on such a path gets the smallest valid value of
that type; each streamed one an event of each kind. The URL and the templates of the paths are
printed as JSON. ``GET /seen`` returns and forgets the requests that came since the last time; after ``POST /next``, the next object that is made gets the given id.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import importlib
import json
import pkgutil
import re
import sys
import types
import typing
from collections.abc import Iterator
from datetime import date, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Union, get_args, get_origin

import pydantic

SDKS = {"openai": "/v1", "anthropic": ""}
"""The prefix of each SDK's paths on this server."""

_METHODS = {"_get": "GET", "_post": "POST", "_put": "PUT", "_patch": "PATCH", "_delete": "DELETE",
            "_get_api_list": "GET"}  # fmt: skip
_SCALARS = {str: "string", bool: True, int: 1, float: 1.0, bytes: "c3RyaW5n",
            datetime: "2026-01-01T00:00:00Z", date: "2026-01-01"}  # fmt: skip
_LINE = json.dumps(
    {"custom_id": "a", "method": "POST", "url": "/v1/responses",
     "body": {"model": "gpt-4o-mini", "max_output_tokens": 9, "input": "hi"}}
).encode()  # the content of every file: a line of a batch  # fmt: skip
_DEEPEST = 8  # levels of a value whose type contains itself
_FIRST = ("created", "start")  # kinds of events that begin a stream
_LAST = ("completed", "stop", "done")


class Call(typing.NamedTuple):
    """One call of an SDK: its path, such as ``/v1/files/{file_id}``, and the types of its answers."""

    sdk: str
    method: str
    path: str
    query: str
    answers: tuple[Any, ...]  # one for each method of the SDK that calls the path
    event: Any

    @property
    def pattern(self) -> re.Pattern[str]:
        """The expression of the paths that the SDK makes of the template."""
        return re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(self.path)))


def example(kind: Any, depth: int = 0) -> Any:
    """Return the smallest JSON value of a type: required fields only, the first of a union."""
    kind = getattr(kind, "__value__", kind)
    origin, args = get_origin(kind), get_args(kind)
    if kind in _SCALARS:
        return _SCALARS[kind]
    if origin is typing.Annotated:
        return example(args[0], depth)
    if origin is Literal:
        return args[0]
    if origin in (Union, types.UnionType):
        if type(None) in args and depth >= _DEEPEST:
            return None
        return example(next(each for each in args if each is not type(None)), depth)
    if origin in (list, collections.abc.Sequence, collections.abc.Iterable):
        return [example(args[0], depth + 1)] if depth < _DEEPEST else []
    model = origin if isinstance(origin, type) else kind
    if isinstance(model, type) and issubclass(model, pydantic.BaseModel):
        fields = kind.model_fields.items()
        return {
            field.alias or name: example(field.annotation, depth + 1)
            for name, field in fields if field.is_required()
        }  # fmt: skip
    return {} if origin is dict else None if kind is type(None) else "string"


def events(kind: Any) -> list[Any]:
    """Return one event of each kind of a stream, in an order that a stream can have."""
    while get_origin(kind := getattr(kind, "__value__", kind)) is typing.Annotated:
        kind = get_args(kind)[0]
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    made = [example(each) for each in kinds]

    def place(event: Any) -> int:
        name = str(event.get("type") or event.get("event") or "")
        return name.endswith(_LAST) - name.endswith(_FIRST)

    return sorted(made, key=place)


def calls(sdk: str) -> list[Call]:
    """Return the calls of an SDK's resources."""
    resources = importlib.import_module(f"{sdk}.resources")
    found: dict[tuple[str, str, str], Call] = {}
    for each in pkgutil.walk_packages(resources.__path__, f"{sdk}.resources."):
        if each.ispkg:
            continue
        module = importlib.import_module(each.name)
        with open(module.__file__ or "", encoding="utf-8") as file:
            for call in _calls_of(sdk, ast.parse(file.read()), _Names(vars(module))):
                key = (call.method, call.path, call.query)
                known = found.get(key)
                found[key] = (
                    call._replace(
                        answers=(*known.answers, *call.answers), event=known.event or call.event
                    )
                    if known
                    else call
                )
    return list(found.values())


class _Names(dict[str, Any]):
    """A module's names; any other is an argument that the caller left out."""

    def __missing__(self, name: str) -> Any:
        return vars(builtins).get(name, self.get("omit"))


def _calls_of(sdk: str, tree: ast.AST, names: _Names) -> Iterator[Call]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        method, path = _METHODS.get(node.func.attr), node.args[0]
        if (
            isinstance(path, ast.Call) and path.args
        ):  # path_template("/files/{file_id}", file_id=file_id)
            path = path.args[0]
        if method is None or not (isinstance(path, ast.Constant) and isinstance(path.value, str)):
            continue
        given = {each.arg: each.value for each in node.keywords}
        answer = _value(given.get("page") or given.get("cast_to"), names)
        method = (_value(given.get("method"), names) or method).upper()
        stream = get_args(_value(given.get("stream_cls"), names))
        where, _, query = path.value.partition("?")
        yield Call(sdk, method, SDKS[sdk] + where, query, (answer,), stream[0] if stream else None)


def _value(node: ast.expr | None, names: _Names) -> Any:
    if node is None:
        return None
    code = compile(ast.Expression(node), "<resource>", "eval")
    return eval(code, {}, names)  # noqa: S307 - the SDK's own source


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    calls: list[Call]
    seen: list[list[str]]
    next_ids: list[str]

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def answer(self) -> None:
        """Answer one request."""
        body = self._body()
        path, _, query = self.path.partition("?")
        if path == "/next":
            self.next_ids[:] = [json.loads(body)["id"]]
            self._send(200, "application/json", b"{}")
            return
        if path == "/seen":
            seen, self.seen[:] = list(self.seen), []
            self._send(200, "application/json", json.dumps(seen).encode())
            return
        sdk = "anthropic" if self.headers["anthropic-version"] else "openai"
        found = [
            call for call in self.calls
            if call.sdk == sdk and call.method == self.command and call.pattern.fullmatch(path)
        ]  # fmt: skip
        gaps = min((call.path.count("{") for call in found), default=0)
        found = [call for call in found if call.path.count("{") == gaps]
        self.seen.append([self.command, path, query, body.decode("latin-1")])
        if not found:
            said = {"error": {"type": "not_found_error", "message": f"No call has {path}."}}
            self._send(404, "application/json", json.dumps(said).encode())
            return
        asked = set(query.split("&"))
        call = min(found, key=lambda call: len(asked ^ set(call.query.split("&"))))
        media_type, answered = _answer(call, body, query, self.headers.get("accept") or "")
        if self.next_ids and self.command == "POST":
            answered = json.dumps({**json.loads(answered), "id": self.next_ids.pop()}).encode()
        if b'"background": true' in body:  # as the API, the answer repeats it
            answered = json.dumps({**json.loads(answered), "background": True}).encode()
        self._send(200, media_type, answered)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - http.server's names

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _send(self, status: int, media_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """Print nothing: a test that closes its stream early resets the connection."""


def _answer(call: Call, body: bytes, query: str, accept: str) -> tuple[str, bytes]:
    streamed = re.search(rb'"stream": ?true', body) or "stream=true" in query
    if call.event is not None and (streamed or "event-stream" in accept):
        made = [*map(_event, events(call.event)), "data: [DONE]\n\n"]
        return "text/event-stream", "".join(made).encode()
    name = getattr(call.answers[0], "__name__", "") or str(call.answers[0])
    if "Binary" in name:
        return "application/octet-stream", _LINE
    if "JSONL" in name:
        line = json.dumps(example(get_args(call.answers[0])[0]))
        return "application/x-jsonl", line.encode()
    values = [example(each) for each in call.answers]
    if isinstance(values[0], dict):
        merged = {name: value for each in reversed(values) if each for name, value in each.items()}
        return "application/json", json.dumps(merged).encode()
    if isinstance(values[0], str) and "json" not in accept:
        return "text/plain", values[0].encode()
    return "application/json", json.dumps(values[0]).encode()


def _event(event: Any) -> str:
    name = event.get("type") if isinstance(event, dict) else None
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(event)}\n\n"


def main() -> None:
    """Serve until stopped."""
    known = [call for sdk in SDKS for call in calls(sdk)]
    handler = type("Handler", (_Handler,), {"calls": known, "seen": [], "next_ids": []})
    server = _Server(("127.0.0.1", 0), handler)
    templates = [[call.sdk, call.method, call.path, call.pattern.pattern] for call in known]
    url = f"http://127.0.0.1:{server.server_port}"
    print(json.dumps({"url": url, "templates": templates}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
