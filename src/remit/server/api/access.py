"""Permissions of routes, and how they fail."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Request

from remit.gateway.auth import Identity
from remit.server.api.responses import Error
from remit.server.guard import IDENTITY
from remit.server.refusals import HttpError

__all__ = ["Caller", "allow", "failures", "name_of"]

_MEANINGS = {
    400: "The request cannot be understood.",
    401: "The key is missing, unknown, expired or revoked.",
    403: "The key's role may not do this.",
    404: "There is no such thing.",
    409: "It cannot be done as things stand, such as when a name is taken.",
}


async def _caller(request: Request) -> Identity:
    identity: Identity = request.scope[IDENTITY]
    return identity


Caller = Annotated[Identity, Depends(_caller)]
"""The authenticated caller."""


def name_of(identity: Identity) -> str:
    """The caller for the record: name and id, as a revoked key's name may be used again."""
    return f"{identity.name} ({identity.key_id})" if identity.key_id else identity.name


def allow(permission: str) -> Any:
    """A route's dependency that lets only roles with this permission pass.

    Raises:
        HttpError: 403 for other roles; 400 for a query that names a value twice.
    """

    async def check(request: Request, caller: Caller) -> None:
        if not caller.may(permission):
            raise HttpError(
                403,
                "forbidden",
                f"The role {caller.role} may not {permission.replace('_', ' ')}.",
            )
        names = [name for name, _ in request.query_params.multi_items()]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise HttpError(400, "invalid_input", f"{twice} is given twice.", param=twice)

    required: Callable[..., Coroutine[Any, Any, None]] = check
    return Depends(required)


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """A route's failures for OpenAPI: these statuses, and those of every route."""
    found: dict[int | str, dict[str, Any]] = {
        status: {"model": Error, "description": _MEANINGS[status]}
        for status in sorted({400, 401, 403, *statuses})
    }
    # Such as a body too long or too slow, or a database that does not answer.
    found["default"] = {"model": Error, "description": "Anything else that went wrong."}
    return found
