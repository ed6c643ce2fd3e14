"""Paths of the endpoints that call models, and paths with an id."""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from remit.providers.wire import CONVERSE, ENDPOINTS, PASSED_PATHS, Endpoint
from remit.server import request
from remit.server.asgi import Receive, Scope, Send

if TYPE_CHECKING:
    from remit.server.calls import ModelCalls

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]
ObjectHandler = Callable[..., Awaitable[None]]
"""A handler that gets the ids of the path, then scope, ``receive`` and ``send``."""

_TAILS = "|".join(each.path for each in ENDPOINTS.values() if each.dialect == "openai")
_DEPLOYMENT = re.compile(f"/openai/deployments/(.{{1,256}}?)({_TAILS})/?")
_GEMINI = re.compile(
    r"/v1(?:beta1?)?(?:/projects/[^/]+/locations/[^/]+)?(?:/publishers/(google|anthropic))?"
    r"/models/(.{1,512}):(\w+)"
)
_BEDROCK = re.compile(
    "(?:/bedrock)?/model/(.{1,512})/(invoke|converse)(?:-stream|-with-response-stream)?"
)
_STREAMED = {"streamGenerateContent": "generateContent"}
_OF_PATHS = {"bedrock": "", "gemini": "/v1beta"}
"""Dialects whose paths name the model, and what their paths begin with."""
_COUNT = "count-tokens"
_PREFIXES = {
    "openai": ("/v1", "", "/openai/v1", "/openai"),
    "anthropic": ("/v1", "", "/anthropic/v1", "/anthropic"),
}


def paths_of(path: str, dialect: str | None = None) -> tuple[str, ...]:
    """Return all paths under which a path of a dialect is served, without repetitions.

    The two first dialects have several prefixes: ``/v1``, none, and both after the dialect's name.

    Args:
        path: the path without the version prefix, such as ``/models``.
        dialect: ``openai``, ``anthropic``, ``bedrock`` or ``gemini``; ``None`` for the first two.
    """
    if dialect in _OF_PATHS:
        return (_OF_PATHS[dialect] + path,)
    dialects = (dialect,) if dialect else tuple(_PREFIXES)
    return tuple(dict.fromkeys(prefix + path for name in dialects for prefix in _PREFIXES[name]))


@functools.cache
def served_paths() -> str:
    """Return the served paths as a text for error messages, sorted; long paths end with ``…``."""
    calls = {_tail(each) for each in ENDPOINTS.values() if each.dialect not in _OF_PATHS}
    passed = {f"/{row.template.split('/')[1]}…" for row in PASSED_PATHS}
    own = {"/batches", "/conversations", "/files", "/key", "/messages/batches", "/models"}
    return ", ".join(f"/v1{path}" for path in sorted({*calls, *passed, *own}))


def split_prefix(path: str) -> tuple[tuple[str, ...], str]:
    """Return the dialects that a path may belong to, and the path without its prefix.

    ``/openai/v1/vector_stores`` gives ``("openai",)`` and ``/vector_stores``. A path without the
    name of a dialect gives ``("openai", "anthropic")``; only its ``/v1`` is removed.

    Args:
        path: path of a request.
    """
    for dialect in _PREFIXES:
        if path.startswith(f"/{dialect}/"):
            return (dialect,), _without_version(path.removeprefix(f"/{dialect}"))
    return tuple(_PREFIXES), _without_version(path)


def _without_version(path: str) -> str:
    return path.removeprefix("/v1") if path.startswith("/v1/") else path


def call_routes(calls: ModelCalls) -> dict[str, request.Handler]:
    """Return the handlers of ``POST`` requests that call a model, keyed by path.

    Each path is also present with a slash at its end.

    Args:
        calls: answers the requests.
    """
    return {
        path + slash: functools.partial(calls.serve, endpoint)
        for endpoint in ENDPOINTS.values()
        for path in paths_of(_tail(endpoint), endpoint.dialect)
        for slash in ("", "/")
    }


def deployment_of(path: str) -> tuple[str, str]:
    """Return the model that a path names, and the path without the model.

    ``/openai/deployments/gpt-4o/chat/completions``, as Azure spells it, gives ``gpt-4o`` and
    ``/openai/chat/completions``. ``/v1beta/models/gemini-2.5-pro:streamGenerateContent`` gives
    ``gemini-2.5-pro`` and ``/v1beta/models:generateContent``, as do the paths of Vertex. Vertex's
    ``rawPredict`` of Anthropic's models gives ``/v1/messages``, as does Bedrock's ``invoke``; for
    ``count-tokens`` in place of the model, an empty model and ``/v1/messages/count_tokens``.
    Bedrock's ``converse`` gives the path of Converse.

    Args:
        path: path of a request; a path without a model is returned unchanged, with an empty model.
    """
    if (named := _GEMINI.fullmatch(path)) is not None:
        publisher, model, verb = named.groups()
        if publisher != "anthropic":
            return model, f"/v1beta/models:{_STREAMED.get(verb, verb)}"
        if verb in ("rawPredict", "streamRawPredict"):
            return ("", "/v1/messages/count_tokens") if model == _COUNT else (model, "/v1/messages")
    if (named := _BEDROCK.fullmatch(path)) is not None:
        return named[1], "/v1/messages" if named[2] == "invoke" else CONVERSE.path
    found = _DEPLOYMENT.fullmatch(path)
    return (found[1], "/openai" + found[2]) if found is not None else ("", path)


def find_template(
    handlers: Mapping[tuple[str, str], ObjectHandler], path: str
) -> dict[str, Handler]:
    """Return the handlers of a path that contains ids, keyed by method.

    Args:
        handlers: handlers, keyed by (method, template), such as ``/v1/files/{id}``.
        path: path of a request.

    Returns:
        The handlers of all templates that match, each with the unquoted ids as its first arguments;
        empty if no template matches.
    """
    return {
        method: functools.partial(handler, *map(unquote, named.groups()))
        for (method, template), handler in handlers.items()
        if (named := _pattern(template).fullmatch(path)) is not None
    }


@functools.cache
def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(template.replace("{id}", "([^/]{1,512})"))


def _tail(endpoint: Endpoint) -> str:
    return endpoint.path.removeprefix("/v1")
