"""A plugin of pytest for an SDK's own suite: each test's requests and outcome, a line each.

``SUITE`` names the SDK, ``SUITE_KEY`` is used instead of the key that the suite's modules name,
``SUITE_PROVIDER`` is the URL of the server of ``answers.py`` and ``SUITE_OUTCOMES`` the file to
write. ``SUITE_OWNED`` lists the paths whose object must be the caller's, with the path that makes one:
through Remit, each caller reaches only its own objects, so that the plugin makes the ones that the
tests name. The plugin runs in the SDK's environment and imports nothing of Remit.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

_TRANSPORTS = (
    ("httpx", "HTTPTransport", "handle_request"),
    ("httpx", "AsyncHTTPTransport", "handle_async_request"),
    ("httpx2", "HTTPTransport", "handle_request"),
    ("httpx2", "AsyncHTTPTransport", "handle_async_request"),
    ("%s._vendor.httpx_aiohttp.transport", "AiohttpTransport", "handle_async_request"),
)
_MESSAGE = {"model": "claude-sonnet-4-5", "max_tokens": 9,
            "messages": [{"role": "user", "content": "hi"}]}  # fmt: skip
_BODIES: dict[str, dict[str, Any]] = {
    "/v1/responses": {"model": "gpt-4o-mini", "input": "hi"},
    "/v1/chat/completions": {"model": "gpt-4o-mini", "store": True, "messages": _MESSAGE["messages"]},
    "/v1/messages/batches": {"requests": [{"custom_id": "a", "params": _MESSAGE}]},
    "/v1/batches": {"input_file_id": "file_id", "endpoint": "/v1/responses",
                    "completion_window": "24h"},
}  # fmt: skip
_KEYS = ("api_key", "admin_api_key")
_OWNED = [
    (re.compile(each["path"]), each["made_by"]) for each in json.loads(os.environ["SUITE_OWNED"])
]
_NAMED = re.compile(rb'"(previous_response_id|input_file_id)": ?"([^"]+)"')
_CONVERSATION = re.compile(rb"/conversations/([^/?]+)(?:/items/([^/?]+))?")
_CANCELLED = re.compile(rb"/responses/([^/?]+)(?=/cancel)")
_requests: list[tuple[str, str, int]] = []
_reached: list[Any] = []


def _ask(
    url: str, body: dict[str, Any] | bytes | None, media_type: str = "application/json"
) -> Any:
    headers = {"content-type": media_type, "authorization": f"Bearer {os.environ['SUITE_KEY']}"}
    if os.environ["SUITE"] == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
        return json.load(answer)


def _make(path: str, name: str) -> None:
    """Have the caller own the object ``name``: make it, by a request that the provider answers so."""
    base = os.environ["TEST_API_BASE_URL"].removesuffix("/v1")
    if path == "/v1/batches":
        _make("/v1/files", _BODIES[path]["input_file_id"])
    _ask(os.environ["SUITE_PROVIDER"] + "/next", {"id": name})
    if path.endswith("/files"):
        form = ('--x\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x\r\n'
                'content-disposition: form-data; name="file"; filename="a"\r\n\r\n'
                "{}\r\n--x--\r\n")  # fmt: skip
        _ask(base + path, form.encode(), "multipart/form-data; boundary=x")
    else:
        _ask(base + path, _BODIES.get(path, {}))


def _drain() -> list[Any]:
    """Return the requests that reached the provider since the last time."""
    with urllib.request.urlopen(os.environ["SUITE_PROVIDER"] + "/seen", timeout=30) as answer:
        return list(json.load(answer))


def _own(request: Any) -> None:
    """Make what a request names, and what earlier tests have deleted or never made."""
    _reached.extend(_drain())
    base = os.environ["TEST_API_BASE_URL"]
    path = new = request.url.raw_path
    if found := _CONVERSATION.search(path):
        items = [{"type": "message", "role": "user", "content": "hi"}] * bool(found[2])
        new = b"/conversations/" + _ask(base + "/conversations", {"items": items})["id"].encode()
        if found[2]:
            listed = _ask(f"{base}{new.decode()}/items", None)
            new += b"/items/" + listed["data"][0]["id"].encode()
    elif found := _CANCELLED.search(path):
        body = {**_BODIES["/v1/responses"], "background": True}
        new = b"/responses/" + _ask(base + "/responses", body)["id"].encode()
    if found:
        new = path[: found.start()] + new + path[found.end() :]
        request.url = request.url.copy_with(raw_path=new)
    matched = [(pattern, made_by, found) for pattern, made_by in _OWNED
               if (found := pattern.fullmatch(request.url.path))]  # fmt: skip
    if matched and not found:
        pattern, made_by, found = min(matched, key=lambda each: each[0].pattern.count("("))
        if found.groups():
            _make(made_by, found[1])
    if request.method == "POST":
        for field, name in _NAMED.findall(getattr(request, "_content", b"")):
            _make("/v1/files" if b"file" in field else "/v1/responses", name.decode())
    _drain()


def _note(request: Any, response: Any) -> Any:
    _requests.append((request.method, request.url.path, response.status_code))
    return response


def pytest_configure() -> None:
    """Note what each transport that a test does not replace itself sends and gets."""
    for package, name, method in _TRANSPORTS:
        module = importlib.import_module(package.replace("%s", os.environ["SUITE"]))
        transport = getattr(module, name)
        setattr(transport, method, _noted(getattr(transport, method), method))


def _noted(send: Any, method: str) -> Any:
    if method == "handle_request":

        def noted(self: Any, request: Any) -> Any:
            if _OWNED:
                _own(request)
            return _note(request, send(self, request))

        return noted

    async def noted_async(self: Any, request: Any) -> Any:
        if _OWNED:
            await asyncio.to_thread(_own, request)
        return _note(request, await send(self, request))

    return noted_async


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Give the suite's modules the key."""
    modules = {importlib.import_module("tests.conftest"), *(item.module for item in items)}
    for module in modules:
        for name in _KEYS:
            if hasattr(module, name):
                setattr(module, name, os.environ["SUITE_KEY"])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Write a test's line when its call is over."""
    report: Any = yield  # type: ignore[misc]
    if call.when == "call" or report.outcome != "passed":
        error = call.excinfo.value if call.excinfo else None
        reached = [*_reached, *_drain()]
        line = {
            "test": item.nodeid,
            "outcome": report.outcome,
            "requests": list(_requests),
            "reached": reached,
            "error": f"{type(error).__name__}: {error}"[:600] if error else "",
            "body": getattr(error, "body", None),
        }
        with open(os.environ["SUITE_OUTCOMES"], "a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str) + "\n")
    if call.when == "call":
        _requests.clear()
        _reached.clear()
    return report
