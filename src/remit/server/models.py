"""``GET /v1/models``: the models of the providers and of Remit, in the caller's dialect."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import unquote

import orjson

from remit.kernel.json_splice import elements, set_member, spans
from remit.kernel.json_text import JsonTextError, load
from remit.providers import ProviderError, Timeouts, UpstreamProvider
from remit.runtime import Runtime
from remit.server.asgi import Receive, Scope, Send, reply_json, shape_of
from remit.server.authentication import Authenticator
from remit.server.refusals import HttpError
from remit.server.request_context import AuthenticatedRequest

_CACHE_S = 60.0
_WITHIN = Timeouts(2.0, 3.0, 3.0)
_MAX_BYTES = 4 * 1024 * 1024
_MAX_MODELS = 5_000
_PREFIX = "models/"  # Names in lists of Gemini begin so.
_LISTS = {"anthropic": "/v1/models?limit=1000", "gemini": "/models?pageSize=1000"}

_Listed = list[tuple[str, bytes]]  # (name, exact text) of each model of a provider.


class ModelListing:
    """The models that a caller may use. Lists of providers are cached for a minute.

    Of a provider's list the first 5,000 models are read.

    A provider that does not answer in a few seconds contributes only models that Remit knows
    itself, for a minute too. Cloud platforms are not asked. :meth:`models` and :meth:`model` answer
    requests, in one event loop. The lists are shared by all callers, and each sees its own part.

    Args:
        runtime: the open root.
        authenticator: authenticates each request.
    """

    def __init__(self, runtime: Runtime, authenticator: Authenticator) -> None:
        self._runtime = runtime
        self._authenticator = authenticator
        self._lists: dict[str, tuple[float, _Listed]] = {}
        self._reading: dict[str, asyncio.Task[_Listed]] = {}

    async def models(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with all models that the caller may use, in the dialect of the request.

        The models are sorted by name, without pages. The description of a model is the provider's
        own, if the provider speaks the client's dialect. Providers are asked if the cached lists
        are older than a minute.

        Args:
            scope: ASGI's scope of the request.
            receive: not used.
            send: takes the answer.

        Raises:
            HttpError: the caller is refused, as by :meth:`Authenticator.caller`.
            LedgerError: the ledger cannot be read.
        """
        shape = shape_of(scope)
        found = await self._of(await self._authenticator.caller(scope), shape)
        if shape == "gemini":
            await reply_json(send, b'{"models":[' + b",".join(found.values()) + b"]}")
            return
        data = b'"data":[' + b",".join(found.values()) + b"]"
        if shape == "openai":
            await reply_json(send, b'{"object":"list",' + data + b"}")
            return
        names: list[str | None] = [*found] or [None]
        ends = orjson.dumps({"has_more": False, "first_id": names[0], "last_id": names[-1]})
        await reply_json(send, b"{" + data + b"," + ends[1:])

    async def model(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the model that the path names, as in the list of :meth:`models`.

        ``provider/model`` names a model too, however the list names it.

        Args:
            scope: ASGI's scope of the request, whose path ends with the model.
            receive: not used.
            send: takes the answer.

        Raises:
            HttpError: the caller is refused, as by :meth:`Authenticator.caller`; 404, there is no
                such model, or the caller may not use it.
            LedgerError: the ledger cannot be read.
        """
        wanted = unquote(scope["path"].partition("/models/")[2]).removeprefix(_PREFIX)
        caller = await self._authenticator.caller(scope)
        models = await self._of(caller, shape_of(scope))
        provider_id, _, model = wanted.partition("/")
        if wanted not in models and provider_id in self._runtime.gateway.providers:
            wanted = self._runtime.gateway.name_of(provider_id, model)
        found = models.get(wanted)
        if found is None:
            raise HttpError(
                404,
                "model_not_found",
                "This model does not exist here; GET /v1/models lists all models.",
                param="model",
            )
        await reply_json(send, found)

    async def _of(self, caller: AuthenticatedRequest, shape: str) -> dict[str, bytes]:
        """Return the object of each model that a caller may use, keyed by name."""
        own = dict(self._own(caller))
        named: dict[str, tuple[str, bytes | None]] = {
            name: (owner, None) for name, owner in own.items()
        }
        identity = caller.identity
        for provider_id, dialect, listed in await self._upstream():
            for model, exact in listed:
                name = self._runtime.gateway.name_of(provider_id, model)
                may = any(map(identity.may_use_model, (model, f"{provider_id}/{model}")))
                if not may or (name in named and named[name][1] is not None):
                    continue
                text = exact if dialect == shape else None
                if text is not None and name != model:
                    member = "name" if shape == "gemini" else "id"
                    prefix = _PREFIX if shape == "gemini" else ""
                    text = set_member(text, (member,), orjson.dumps(prefix + name))
                named[name] = (named.get(name, (provider_id,))[0], text)
        make = {"openai": _openai, "gemini": _gemini}.get(shape, _anthropic)
        return {
            name: text or orjson.dumps(make(name, owner))
            for name, (owner, text) in sorted(named.items())
        }

    def _own(self, caller: AuthenticatedRequest) -> list[tuple[str, str]]:
        known = dict(self._runtime.models())
        router = self._runtime.router
        for name in caller.identity.models:  # Models that a key names exactly can be called.
            if not any(mark in name for mark in "*?["):
                known.setdefault(name, "remit")
        return [
            (model, owner)
            for model, owner in known.items()
            if caller.identity.may_use_model(model)
            or (router.knows(model) and router.may_use(model, caller.identity))
        ]

    async def _upstream(self) -> list[tuple[str, str, _Listed]]:
        """Return provider id, dialect and models of each provider; no models if a provider does not
        answer.
        """
        providers = {
            name: provider
            for name, provider in self._runtime.gateway.providers.items()
            if isinstance(provider, UpstreamProvider) and not provider.cloud
        }
        lists = await asyncio.gather(
            *(self._list(name, provider) for name, provider in providers.items())
        )
        dialects = (provider.home.dialect for provider in providers.values())
        return list(zip(providers, dialects, lists, strict=True))

    async def _list(self, name: str, provider: UpstreamProvider) -> _Listed:
        kept = self._lists.get(name)
        if kept is not None and time.monotonic() - kept[0] < _CACHE_S:
            return kept[1]
        task = self._reading.get(name)
        if task is None:
            task = self._reading[name] = asyncio.create_task(_fetch(provider))
            task.add_done_callback(lambda _: self._reading.pop(name, None))
        found = await asyncio.shield(task)
        self._lists[name] = (time.monotonic(), found)
        return found


async def _fetch(provider: UpstreamProvider) -> _Listed:
    dialect = provider.home.dialect
    path = _LISTS.get(dialect, "/models")
    listed, member = ("models", "name") if dialect == "gemini" else ("data", "id")
    try:
        async with await provider.fetch(path, {}, _WITHIN) as came:
            raw = await came.read(_MAX_BYTES)
        value = load(raw) if came.status == 200 else None
    except (ProviderError, JsonTextError):
        return []
    if not isinstance(value, dict) or not isinstance(value.get(listed), list):
        return []
    start, end = spans(raw, (listed,))[listed]
    return [
        (item[member].removeprefix(_PREFIX), text.strip())
        for item, text in zip(value[listed], elements(raw[start:end]), strict=True)
        if isinstance(item, dict) and isinstance(item.get(member), str)
    ][:_MAX_MODELS]


def _openai(name: str, owner: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": owner}


def _gemini(name: str, owner: str) -> dict[str, Any]:
    methods = ["generateContent", "countTokens"]
    return {"name": _PREFIX + name, "displayName": name, "supportedGenerationMethods": methods}


def _anthropic(name: str, owner: str) -> dict[str, Any]:
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
    }
