"""The table of endpoints for model calls: which path is answered how."""

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

_TAILS = "|".join(each.path for each in ENDPOINTS.values() if each.dialect == "openai")
_DEPLOYMENT = re.compile(f"/openai/deployments/(.{{1,256}}?)({_TAILS})/?")
_PREFIXES = {
    "openai": ("/v1", "", "/openai/v1", "/openai"),
    "anthropic": ("/v1", "", "/anthropic/v1", "/anthropic"),
}


def paths_of(path: str, dialect: str | None = None) -> tuple[str, ...]:
    """Return all paths for one path of a dialect; of both dialects if none is named."""
    dialects = (dialect,) if dialect else tuple(_PREFIXES)
    return tuple(dict.fromkeys(prefix + path for name in dialects for prefix in _PREFIXES[name]))


def call_routes(calls: ModelCalls) -> dict[str, request.Handler]:
    """Return the handlers of ``POST`` requests that call a model, keyed by path."""
    return {
        path + slash: functools.partial(calls.serve, endpoint)
        for endpoint in ENDPOINTS.values()
        for path in paths_of(_tail(endpoint), endpoint.dialect)
        for slash in ("", "/")
    }


def deployment_of(path: str) -> tuple[str, str]:
    """Return the model of an Azure path and the path without it; the model is empty in others.

    ``/openai/deployments/gpt-4o/chat/completions`` gives ``gpt-4o`` and
    ``/openai/chat/completions``.
    """
    found = _DEPLOYMENT.fullmatch(path)
    return (found[1], "/openai" + found[2]) if found is not None else ("", path)


class Templates:
    """Paths with an id in them, as ``/v1/files/{id}``."""

    def __init__(self, handlers: Mapping[tuple[str, str], ObjectHandler]) -> None:
        self._found = [
            (method, re.compile(path.replace("{id}", "([^/]{1,512})")), handler)
            for (method, path), handler in handlers.items()
        ]

    def match(self, path: str) -> dict[str, Handler]:
        """Return the handlers of a path, keyed by method."""
        return {
            method: functools.partial(handler, unquote(named[1]))
            for method, pattern, handler in self._found
            if (named := pattern.fullmatch(path)) is not None
        }


def _tail(endpoint: Endpoint) -> str:
    return endpoint.path.removeprefix("/v1")
