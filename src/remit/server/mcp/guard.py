"""What stands before MCP over HTTP: who asks, and how much they may send."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import orjson
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from remit.gateway.auth import (
    AuthenticationError,
    AuthProvider,
    AuthUnavailableError,
    Identity,
    token_from_headers,
)
from remit.kernel.errors import RemitError
from remit.server.mcp.caller import DEVELOPER, Caller
from remit.server.mcp.live import Live, TooManySessionsError

__all__ = ["IDENTITY", "PATH", "Guard", "Receive", "Scope", "Send"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_Headers = Sequence[tuple[bytes, bytes]]

IDENTITY = "remit.identity"
"""Where in the scope of a request it stands who asks."""

PATH = "/mcp"
"""Where the server is reached."""

_log = logging.getLogger("remit.mcp")
_CLOSE = (b"connection", b"close")
_NO_STORE = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_SINGLE = (b"host", b"origin", b"authorization", b"x-api-key", b"mcp-session-id",
           b"mcp-protocol-version")  # fmt: skip
_LOOKS_NEW = "sk-remit-"


class _RefusedError(Exception):
    def __init__(self, status: int, code: str, why: str, headers: _Headers = ()) -> None:
        super().__init__(why)
        self.status = status
        self.code = code
        self.why = why
        self.headers = headers


class Guard:
    """Lets through who has a key, with a whole body of bounded length.

    Every request is asked for its key, whichever session it names; nothing of its body is read
    before that.

    Args:
        live: what is guarded.
        authority: tells whose a key is; ``None`` in dev mode, which lets everybody in.
        max_body_bytes: longest body.
        body_timeout_s: longest time for it to come, seconds.
        news_s: within this time a key that another process made is known here, seconds.
    """

    def __init__(
        self,
        live: Live,
        authority: AuthProvider | None,
        *,
        max_body_bytes: int,
        body_timeout_s: float,
        news_s: float,
    ) -> None:
        self._live = live
        self._authority = authority
        self._max_body_bytes = max_body_bytes
        self._body_timeout_s = body_timeout_s
        self._news_s = news_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3, for HTTP."""
        begun = ended = False

        async def watched(message: MutableMapping[str, Any]) -> None:
            nonlocal begun, ended
            if message["type"] == "http.response.body" and not message.get("more_body"):
                ended = True
            if message["type"] == "http.response.start":
                begun = True
                message = {**message, "headers": [*message.get("headers", ()), *_NO_STORE]}
            await send(message)

        try:
            await self._pass(scope, receive, watched)
        except _RefusedError as refused:
            if not begun:
                await _answer(watched, refused)
            elif not ended:  # a stream of a key that was revoked
                await watched({"type": "http.response.body", "body": b""})
        except Exception as error:  # noqa: BLE001 - answered here, whatever it was
            _log.error("a request over MCP failed: %s", type(error).__name__)
            if not begun:
                why = "Remit failed; its log tells more."
                await _answer(watched, _RefusedError(500, "internal_error", why))

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != PATH:
            raise _RefusedError(404, "not_found", f"There is nothing here. MCP is at {PATH}.")
        _require_single(scope["headers"])
        token = _token(scope["headers"])
        identity = await self._identity(token)
        body = await self._body(scope["headers"], receive)
        told = {**scope, IDENTITY: identity, "user": _user(identity)}
        first = True

        async def replayed() -> MutableMapping[str, Any]:
            nonlocal first
            if first:
                first = False
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        try:
            lasted = await self._live.serve(
                told, replayed, send, owner=Caller(identity).owner, token=token
            )
        except TooManySessionsError as error:
            raise _RefusedError(503, "too_many_sessions", str(error)) from error
        if not lasted:
            raise _unknown(AuthenticationError("This key does not count any more."), token)

    async def _identity(self, token: str | None) -> Identity:
        if self._authority is None:
            return DEVELOPER
        try:
            return self._authority.authenticate(token)
        except AuthUnavailableError as error:
            raise _unavailable(error) from error
        except RemitError as error:
            if token is None or not token.startswith(_LOOKS_NEW):
                raise _unknown(error, token) from error
        # It may have been made a moment ago, by another process.
        await asyncio.sleep(self._news_s)
        try:
            return self._authority.authenticate(token)
        except AuthUnavailableError as error:
            raise _unavailable(error) from error
        except RemitError as error:
            raise _unknown(error, token) from error

    async def _body(self, headers: _Headers, receive: Receive) -> bytes:
        length = dict(headers).get(b"content-length", b"")
        if length.isdigit() and int(length) > self._max_body_bytes:
            raise self._too_long()
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._body_timeout_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _RefusedError(499, "client_closed_request", "The client went away.")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._max_body_bytes:
                        raise self._too_long()
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError as error:
            why = "The body did not come in time."
            raise _RefusedError(408, "request_timeout", why, (_CLOSE,)) from error

    def _too_long(self) -> _RefusedError:
        why = f"The body is longer than {self._max_body_bytes:,} bytes."
        return _RefusedError(413, "request_too_large", why, (_CLOSE,))


def _token(headers: _Headers) -> str | None:
    named = {name: value.decode("latin-1") for name, value in headers}
    return token_from_headers(named.get(b"authorization"), named.get(b"x-api-key"))


def _require_single(headers: _Headers) -> None:
    """Of two, this server might read one and what stands before it the other."""
    names = [name for name, _ in headers]
    for name in _SINGLE:
        if names.count(name) > 1:
            why = f"There are several headers {name.decode()!r}."
            raise _RefusedError(400, "invalid_request", why, (_CLOSE,))


def _user(identity: Identity) -> AuthenticatedUser:
    """Whom the SDK ties an MCP session to: no other key or token can go on in it."""
    told = repr((identity.key_id, identity.name, identity.role, identity.agents,
                 identity.session_id, identity.work_order_id))  # fmt: skip
    digest = hashlib.sha256(told.encode()).hexdigest()
    return AuthenticatedUser(AccessToken(token="", client_id=digest, scopes=[]))


def _unavailable(error: RemitError) -> _RefusedError:
    return _RefusedError(503, "auth_unavailable", error.message, ((b"retry-after", b"1"),))


def _unknown(error: RemitError, token: str | None) -> _RefusedError:
    """RFC 6750, 3: without a token there is no error to tell of."""
    challenge = 'Bearer realm="remit"'
    if token is not None:
        challenge += ', error="invalid_token"'
    return _RefusedError(
        401, "invalid_token", str(error), ((b"www-authenticate", challenge.encode()),)
    )


async def _answer(send: Send, refused: _RefusedError) -> None:
    body = orjson.dumps({"error": refused.code, "error_description": refused.why})
    await send(
        {
            "type": "http.response.start",
            "status": refused.status,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                *refused.headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})
