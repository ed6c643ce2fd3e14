"""A plugin of pytest for an SDK's own suite: each test's requests and outcome, a line each.

``SUITE`` names the SDK, ``SUITE_KEY`` is used instead of the key that the suite's modules name,
``SUITE_PROVIDER`` is the URL of the server of ``answers.py`` and ``SUITE_OUTCOMES`` the file to
write. The plugin runs in the SDK's environment and imports nothing of Remit.
"""

from __future__ import annotations

import importlib
import json
import os
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
_KEYS = ("api_key", "admin_api_key")
_requests: list[tuple[str, str, int]] = []


def _note(request: Any, response: Any) -> Any:
    _requests.append((request.method, request.url.path, response.status_code))
    return response


def pytest_configure() -> None:
    """Note what each transport that a test does not replace itself sends and gets."""
    for package, name, method in _TRANSPORTS:
        transport = getattr(importlib.import_module(package.replace("%s", os.environ["SUITE"])), name)
        send = getattr(transport, method)
        if method == "handle_request":
            def noted(self: Any, request: Any, _send: Any = send) -> Any:
                return _note(request, _send(self, request))
        else:
            async def noted(self: Any, request: Any, _send: Any = send) -> Any:
                return _note(request, await _send(self, request))
        setattr(transport, method, noted)


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
        with urllib.request.urlopen(os.environ["SUITE_PROVIDER"] + "/seen", timeout=30) as answer:
            reached = json.load(answer)
        line = {"test": item.nodeid, "outcome": report.outcome, "requests": list(_requests),
                "reached": reached, "error": f"{type(error).__name__}: {error}"[:600] if error else "",
                "body": getattr(error, "body", None)}
        with open(os.environ["SUITE_OUTCOMES"], "a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str) + "\n")
    if call.when == "call":
        _requests.clear()
    return report
