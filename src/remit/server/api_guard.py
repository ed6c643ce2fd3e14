"""Authentication and body limits in front of an ASGI application (``/api``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from remit.server.asgi import Receive, Scope, Send, read_body
from remit.server.authentication import Authenticator
from remit.server.in_flight_limits import SHARE
from remit.server.refusals import HttpError

IDENTITY = "remit.identity"
"""Key of a request's scope: the caller's :class:`~remit.gateway.auth.Identity`."""

CONTEXT = "remit.context"
"""Key of a request's scope: the :class:`~remit.server.request_context.RequestContext`."""

TOKEN = "remit.token"  # noqa: S105 - a name
"""Key of a request's scope: the token that it was authenticated by, or ``None``."""

# Answers contain keys and conversations: caches must not store them.
_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))

_App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """ASGI middleware that passes on authenticated requests with a complete body of limited length.

    The caller is authenticated before any of the body is read. Errors are answered by ``refusal``.

    Args:
        app: the guarded application; an :class:`HttpError` that it raises is answered here.
        authenticator: authenticates each request.
        refusal: returns the application that answers an error.
        max_body_bytes: longest body, in bytes.
        body_timeout_s: longest time for the body to arrive, in seconds.
        open_path: a path that needs no authentication, but has the limits; empty for none.
    """

    def __init__(
        self,
        app: _App,
        authenticator: Authenticator,
        refusal: Callable[[Scope, HttpError], _App],
        *,
        max_body_bytes: int,
        body_timeout_s: float,
        open_path: str = "",
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._refusal = refusal
        self._max_body_bytes = max_body_bytes
        self._body_timeout_s = body_timeout_s
        self._open_path = open_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an ASGI 3 request; requests that are not HTTP pass unchanged.

        The key's share counts the request, and the body is read first. The scope that is passed on
        holds identity, token and context of the caller, except on the open path. Answers get
        headers that forbid caching. An :class:`HttpError` is answered, not raised; after the
        beginning of a stream it ends the stream. Other errors of the application are let through.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        last = ""

        async def marked(message: MutableMapping[str, Any]) -> None:
            nonlocal last
            last = message["type"] + ("+" if message.get("more_body") else "")
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
            await send(message)

        try:
            if scope["path"] != self._open_path:
                request = await self._authenticator.caller(scope)
                scope = {
                    **scope, IDENTITY: request.identity, TOKEN: request.token,
                    CONTEXT: self._authenticator.context(request),
                }  # fmt: skip
            length = dict(scope["headers"]).get(b"content-length")
            share = scope.get(SHARE)
            body = await read_body(
                receive, length, self._max_body_bytes, self._body_timeout_s, share
            )
            await self._app(scope, replayed(body, receive), marked)
        except HttpError as error:
            if not last:
                await self._refusal(scope, error)(scope, receive, marked)
            elif last != "http.response.body":  # End the stream, whose key was revoked.
                await marked({"type": "http.response.body", "body": b""})


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that first returns ``body`` as a complete message.

    Args:
        body: the whole body.
        receive: ASGI's function, used for all later messages.
    """
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def again() -> MutableMapping[str, Any]:
        return next(messages, None) or await receive()

    return again
