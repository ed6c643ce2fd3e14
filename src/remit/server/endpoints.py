"""Paths of the endpoints that call models, and paths with an id."""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import unquote

from remit.providers.wire import ENDPOINTS, Endpoint
from remit.server import request
from remit.server.calls import ModelCalls
from remit.server.replies import Receive, Scope, Send

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]
ObjectHandler = Callable[[str, Scope, Receive, Send], Awaitable[None]]

_PREFIXES = {
    "openai": ("/v1", "", "/openai/v1", "/openai"),
    "anthropic": ("/v1", "", "/anthropic/v1", "/anthropic"),
}


def paths_of(path: str, dialect: str | None = None) -> tuple[str, ...]:
    """Return all paths under which one path of a dialect is served.

    Args:
        path: the path without the version prefix, such as ``/models``.
        dialect: ``openai`` or ``anthropic``; ``None`` for both.
    """
    dialects = (dialect,) if dialect else tuple(_PREFIXES)
    return tuple(dict.fromkeys(prefix + path for name in dialects for prefix in _PREFIXES[name]))


def call_routes(calls: ModelCalls) -> dict[str, request.Handler]:
    """Return the handlers of ``POST`` requests that call a model, keyed by path."""
    return {
        path: functools.partial(calls.serve, endpoint)
        for endpoint in ENDPOINTS.values()
        for path in paths_of(_tail(endpoint), endpoint.dialect)
    }


class Templates:
    """Handlers of paths that contain an id, such as ``/v1/files/{id}``."""

    def __init__(self, handlers: Mapping[tuple[str, str], ObjectHandler]) -> None:
        self._found = [
            (method, re.compile(path.replace("{id}", "([^/]{1,512})")), handler)
            for (method, path), handler in handlers.items()
        ]

    def match(self, path: str) -> dict[str, Handler]:
        """Return the handlers of a path, keyed by method; empty if no template matches."""
        return {
            method: functools.partial(handler, unquote(named[1]))
            for method, pattern, handler in self._found
            if (named := pattern.fullmatch(path)) is not None
        }


def _tail(endpoint: Endpoint) -> str:
    return endpoint.path.removeprefix("/v1")
