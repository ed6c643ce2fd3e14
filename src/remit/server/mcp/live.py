"""What is open for whom over HTTP: each caller's share of it, and its end with the key."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from remit.gateway.auth import AuthProvider, AuthUnavailableError
from remit.kernel.errors import RemitError

__all__ = ["Live", "TooManySessionsError", "header"]

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[MutableMapping[str, Any], _Receive, _Send], Awaitable[None]]

_SESSION = b"mcp-session-id"
_VERSION = b"mcp-protocol-version"  # the versions after those of the handshake have no sessions
_log = logging.getLogger("remit.mcp")


class TooManySessionsError(RemitError):
    """A caller has its share of MCP sessions open."""


@dataclass(slots=True)
class _Session:
    owner: str
    token: str | None  # the last that was shown for it
    scope: MutableMapping[str, Any]  # of a request in it, to end it with
    requests: int = 0
    used: float = 0.0  # monotonic, when its last request ended


@dataclass(eq=False, slots=True)
class _Request:
    token: str | None
    cut: anyio.CancelScope


class Live:
    """The MCP sessions that are open, and the requests under way.

    Args:
        app: the SDK's application.
        authority: tells whether a token still counts; ``None`` where nobody is asked.
        each: most sessions of one caller.
        idle_s: after this time without a request the SDK ends a session, seconds.
    """

    def __init__(
        self, app: _App, authority: AuthProvider | None, *, each: int, idle_s: float
    ) -> None:
        self._app = app
        self._authority = authority
        self._each = each
        self._idle_s = idle_s
        self._sessions: dict[str, _Session] = {}
        self._opening: Counter[str] = Counter()
        self._requests: set[_Request] = set()

    async def serve(
        self,
        scope: MutableMapping[str, Any],
        receive: _Receive,
        send: _Send,
        *,
        owner: str,
        token: str | None,
    ) -> bool:
        """Have one request answered; false when its token ended meanwhile, and with it the request.

        Args:
            scope: of the request, as receive and send are (ASGI 3).
            owner: whose it is.
            token: with which it came.

        Raises:
            TooManySessionsError: it would open one more than the caller's share.
        """
        session_id = header(scope["headers"], _SESSION).decode("latin-1")
        version = header(scope["headers"], _VERSION).decode("latin-1")
        opening = not session_id and (not version or version in HANDSHAKE_PROTOCOL_VERSIONS)
        known = self._sessions.get(session_id)
        if known is not None and known.scope["user"].username != scope["user"].username:
            known = None  # the SDK tells another's key that there is no such session
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

        async def watched(message: _Message) -> None:
            if message["type"] == "http.response.start":
                named = header(message.get("headers", ()), _SESSION).decode("latin-1")
                if opening and named and message["status"] < 400:
                    kept = {**scope, "headers": [*scope["headers"]]}
                    self._sessions[named] = _Session(owner, token, kept, used=time.monotonic())
                    opened()  # counted there now
                elif known is not None and message["status"] == 404:
                    self._sessions.pop(session_id, None)  # it ended by itself
            await send(message)

        request = _Request(token, anyio.CancelScope())
        self._requests.add(request)
        try:
            with request.cut:
                await self._app(scope, receive, watched)
        finally:
            self._requests.discard(request)
            opened()
            if known is not None:
                known.requests -= 1
                known.used = time.monotonic()
                if scope["method"] == "DELETE":
                    self._sessions.pop(session_id, None)
        return not request.cut.cancelled_caught

    async def watch(self, every_s: float) -> None:
        """Look every so many seconds for what is to end; until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - it must look again, whatever it was
                _log.error("open MCP sessions cannot be looked through: %s", type(error).__name__)

    async def look(self) -> None:
        """End what belongs to tokens that do not count any more; forget what has ended itself."""
        tokens = {one.token for one in self._sessions.values()}
        tokens |= {one.token for one in self._requests}
        ended = {token for token in tokens if not self._counts(token)}
        for session_id, session in [*self._sessions.items()]:
            # A little longer than the SDK keeps it, so that none is open and not counted.
            idle = not session.requests and time.monotonic() - session.used > self._idle_s + 1
            if session.token in ended or idle:
                del self._sessions[session_id]
                await self._end(session_id, session)
        for request in self._requests:
            if request.token in ended:
                request.cut.cancel()

    def _counts(self, token: str | None) -> bool:
        if self._authority is None:
            return True
        try:
            self._authority.authenticate(token)
        except AuthUnavailableError:  # nothing new is let in; what runs is left
            return True
        except RemitError:
            return False
        return True

    def _require_room(self, owner: str) -> None:
        count = sum(one.owner == owner for one in self._sessions.values()) + self._opening[owner]
        if count >= self._each:
            raise TooManySessionsError(
                f"This key has {count} MCP sessions open, and may have no more.",
                next_step="End some with DELETE, or wait until idle ones end.",
            )

    async def _end(self, session_id: str, session: _Session) -> None:
        """As if its client had: that ends its streams and calls too."""
        kept = [pair for pair in session.scope["headers"] if pair[0] in (b"host", b"accept")]
        headers = [*kept, (_SESSION, session_id.encode("latin-1"))]

        async def nothing() -> _Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def nowhere(_: _Message) -> None:
            return

        await self._app({**session.scope, "method": "DELETE", "headers": headers}, nothing, nowhere)


def header(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> bytes:
    """The value of a header, of the first of that name; empty without one."""
    return next((value for found, value in headers if found == name), b"")
