"""What each route asks of who comes, and what it may answer besides."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Request

from remit.gateway.auth import Identity
from remit.server.api.shapes import Error
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
"""Who asks."""


def name_of(identity: Identity) -> str:
    """Who did it, for the record: name and id, as a name may be given again once its key is
    revoked."""
    return f"{identity.name} ({identity.key_id})" if identity.key_id else identity.name


def allow(permission: str) -> Any:
    """A dependency of a route: only roles with this permission go on.

    Raises:
        HttpError: 403, for all others; 400 for a question that says a thing twice.
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
    """How a route fails, for its documentation: by these statuses, beside the general ones."""
    found: dict[int | str, dict[str, Any]] = {
        status: {"model": Error, "description": _MEANINGS[status]}
        for status in sorted({400, 401, 403, *statuses})
    }
    # Whatever else: a body too long or too slow, a database that does not answer.
    found["default"] = {"model": Error, "description": "Anything else that went wrong."}
    return found
