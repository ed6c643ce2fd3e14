"""``GET /v1/models``, in the dialect of who asks."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from remit.runtime import Runtime
from remit.server.authentication import AuthenticatedRequest, Authenticator
from remit.server.refusals import HttpError
from remit.server.replies import Receive, Scope, Send, reply_json, shape_of


class ModelListing:
    """The models that can be named here by who asks."""

    def __init__(self, runtime: Runtime, authenticator: Authenticator) -> None:
        self._runtime = runtime
        self._authenticator = authenticator

    async def models(self, scope: Scope, receive: Receive, send: Send) -> None:
        """All of them."""
        known = self._known(await self._authenticator.authenticate(scope["headers"]))
        if shape_of(scope) == "openai":
            data = [_openai(name, owner) for name, owner in known]
            await reply_json(send, {"object": "list", "data": data})
            return
        models = [_anthropic(name) for name, _ in known]
        await reply_json(
            send,
            {
                "data": models,
                "has_more": False,
                "first_id": models[0]["id"] if models else None,
                "last_id": models[-1]["id"] if models else None,
            },
        )

    async def model(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One of them."""
        wanted = unquote(scope["path"].removeprefix("/v1/models/"))
        known = dict(self._known(await self._authenticator.authenticate(scope["headers"])))
        if wanted not in known:
            raise HttpError(404, "model_not_found", "There is no such model here.")
        if shape_of(scope) == "openai":
            await reply_json(send, _openai(wanted, known[wanted]))
        else:
            await reply_json(send, _anthropic(wanted))

    def _known(self, caller: AuthenticatedRequest) -> list[tuple[str, str]]:
        known = dict(self._runtime.models())
        router = self._runtime.router
        for name in caller.identity.models:  # what a key names by itself can be called
            if not any(mark in name for mark in "*?["):
                known.setdefault(name, "remit")
        return [
            (model, owner)
            for model, owner in sorted(known.items())
            if caller.identity.may_use_model(model)
            or (router.knows(model) and router.may_use(model, caller.identity))
        ]


def _openai(name: str, owner: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": owner}


def _anthropic(name: str) -> dict[str, Any]:
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
    }
