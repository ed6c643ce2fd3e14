"""MCP sessions and requests over HTTP: a limit for each caller, ended when its key ends."""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from remit.gateway.auth import AuthProvider, AuthUnavailableError, Identity
from remit.kernel.errors import RemitError
from remit.server.api_guard import IDENTITY, TOKEN
from remit.server.asgi import Receive, Scope, Send
from remit.server.mcp.callers import Caller
from remit.server.refusals import HttpError

_SESSION = b"mcp-session-id"
_VERSION = b"mcp-protocol-version"  # versions later than those of the handshake have no sessions
_log = logging.getLogger("remit.mcp")


@dataclass(slots=True)
class _Session:
    owner: str
    token: str | None  # The bearer token of the latest request.
    scope: Scope  # The scope of an earlier request; the session's end is sent with it.
    requests: int = 0
    used: float = 0.0  # monotonic time at which its latest request ended


class SessionGuard:
    """An ASGI guard of MCP sessions: limits those of each caller, and ends those of ended keys.

    Args:
        manager: the SDK's session manager.
        provider: checks tokens; None in dev mode.
        per_caller: most sessions of one caller.
        idle_s: seconds after which the SDK ends an idle session.
    """

    def __init__(
        self,
        manager: StreamableHTTPSessionManager,
        provider: AuthProvider | None,
        *,
        per_caller: int,
        idle_s: float,
    ) -> None:
        self._app = manager.handle_request
        self._provider = provider
        self._per_caller = per_caller
        self._idle_s = idle_s
        self._sessions: dict[str, _Session] = {}
        self._opening: Counter[str] = Counter()
        self._requests: dict[anyio.CancelScope, str | None] = {}  # The token of each request.

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of an authenticated caller (ASGI 3).

        Raises:
            HttpError: 503 if the caller has its full share of sessions; 401 if its key ended
                meanwhile.
        """
        identity: Identity = scope[IDENTITY]
        owner, token = Caller(identity).owner, scope[TOKEN]
        scope = {**scope, "user": _user(identity)}
        session_id = _header(scope["headers"], _SESSION)
        version = _header(scope["headers"], _VERSION)
        opening = not session_id and (not version or version in HANDSHAKE_PROTOCOL_VERSIONS)
        known = self._known(scope, session_id)
        if opening:
            self._require_room(owner)
            self._opening[owner] += 1
        if known is not None:
            known.token = token
            known.requests += 1

        def opened() -> None:
            nonlocal opening
            if opening:
                opening = False
                self._opening[owner] -= 1
                if not self._opening[owner]:
                    del self._opening[owner]

        async def watched(message: Scope) -> None:
            if message["type"] == "http.response.start":
                new_id = _header(message.get("headers", ()), _SESSION)
                if opening and new_id and message["status"] < 400:
                    kept = {**scope, "headers": [*scope["headers"]]}
                    self._sessions[new_id] = _Session(owner, token, kept, used=time.monotonic())
                    opened()
                elif known is not None and message["status"] == 404:
                    self._sessions.pop(session_id, None)  # the SDK ended it
            await send(message)

        request = anyio.CancelScope()
        self._requests[request] = token
        try:
            with request:
                await self._app(scope, receive, watched)
        finally:
            del self._requests[request]
            opened()
            if known is not None:
                known.requests -= 1
                known.used = time.monotonic()
                if scope["method"] == "DELETE":
                    self._sessions.pop(session_id, None)
        if request.cancelled_caught:
            raise HttpError(
                401,
                "invalid_api_key",
                "The key was revoked or has expired; ask the operator for another.",
            )

    def _known(self, scope: Scope, session_id: str) -> _Session | None:
        known = self._sessions.get(session_id)
        if known is not None and known.scope["user"].username != scope["user"].username:
            return None  # the SDK answers another caller that there is no such session
        return known

    async def sweep(self) -> None:
        """End sessions and requests of invalid tokens, and idle sessions.

        A session ends as if its client had deleted it. Tokens count as valid while they cannot be
        checked, and in dev mode.
        """
        tokens = {session.token for session in self._sessions.values()}
        tokens |= set(self._requests.values())
        ended = {token for token in tokens if not self._is_valid(token)}
        for session_id, session in [*self._sessions.items()]:
            # A little longer than the SDK keeps it, so that no open session goes uncounted.
            idle = not session.requests and time.monotonic() - session.used > self._idle_s + 1
            if session.token in ended or idle:
                del self._sessions[session_id]
                await self._end(session_id, session)
        for request, token in self._requests.items():
            if token in ended:
                request.cancel()

    def _is_valid(self, token: str | None) -> bool:
        if self._provider is None:
            return True
        try:
            self._provider.authenticate(token)
        except AuthUnavailableError:  # nothing new is accepted; what runs goes on
            return True
        except RemitError:
            return False
        return True

    def _require_room(self, owner: str) -> None:
        open_ = sum(session.owner == owner for session in self._sessions.values())
        count = open_ + self._opening[owner]
        if count >= self._per_caller:
            raise HttpError(
                503,
                "too_many_sessions",
                f"This key has {count} open MCP sessions, the maximum. End some with DELETE, or "
                "wait until idle ones end.",
            )

    async def _end(self, session_id: str, session: _Session) -> None:
        """End a session as its client would, with its streams and calls."""
        kept = [pair for pair in session.scope["headers"] if pair[0] in (b"host", b"accept")]
        headers = [*kept, (_SESSION, session_id.encode("latin-1"))]

        async def receive() -> Scope:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(_: Scope) -> None:
            return

        await self._app({**session.scope, "method": "DELETE", "headers": headers}, receive, send)


def _header(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> str:
    """Return the first header with this name; empty without one."""
    return next((value.decode("latin-1") for found, value in headers if found == name), "")


def _user(identity: Identity) -> AuthenticatedUser:
    """Return the user that the SDK ties a session to; no other key or token can continue it."""
    text = repr((identity.key_id, identity.name, identity.role, identity.agents,
                 identity.session_id, identity.work_order_id))  # fmt: skip
    digest = hashlib.sha256(text.encode()).hexdigest()
    return AuthenticatedUser(AccessToken(token="", client_id=digest, scopes=[]))
