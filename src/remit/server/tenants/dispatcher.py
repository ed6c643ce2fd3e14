"""Passes each request to the application of its tenant, or of the host."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from remit.gateway.auth import CREDENTIAL_HEADERS, agent_secret, tenant_of_key, token_from_headers
from remit.kernel.errors import RemitError
from remit.kernel.loops import repeat
from remit.kernel.root import Root
from remit.kernel.tenant import TENANTS
from remit.runtime import Runtime
from remit.runtime.tenants import (
    TenantHost,
    find_tenant,
    recover_tenant,
    require_recorded,
    tenant_names,
)
from remit.server import request
from remit.server.api_guard import replayed
from remit.server.app import App
from remit.server.asgi import (
    Headers,
    Receive,
    Scope,
    Send,
    dialect_of,
    read_body,
    refusal,
    reply,
    shape_of,
    with_key_of_query,
)
from remit.server.in_flight_limits import Shares
from remit.server.listener import Options
from remit.server.refusals import HttpError
from remit.server.tenants.open_tenants import OpenTenant, OpenTenants
from remit.server.websocket import WebSocket

_POLL_S = 1.0  # Pause between checks for idle, moved and changed tenants.
_HEADS_S = 10.0  # Pause between readings of the heads of tenants' logs.
_PROCESS_PATHS = ("/healthz", "/readyz")
_LOGIN = "/console/login"
_MAX_LOGIN_BYTES, _LOGIN_S = 16 * 1024, 10.0
_COOKIE = b"remit_tenant"


def has_tenants(root: Path) -> bool:
    """Return True if a root has tenants, so that a :class:`Dispatcher` is needed.

    Incomplete tenants count.

    Args:
        root: directory of the host's root.
    """
    return (root / TENANTS).is_dir() and bool(tenant_names(Root(root)))


class Dispatcher:
    """An ASGI application in front of the host's :class:`App` and the applications of its tenants.

    A request names its tenant by its key, by an agent's token with a header, or by the console's
    cookie. The host answers if the tenant is unknown, or is closed and has no such key.
    ``/healthz`` and ``/readyz`` belong to the process. The class has the interface of :class:`App`,
    so a server runs either. :meth:`start` comes before the first request, :meth:`stop` after the
    last, and all methods belong to one event loop.

    Args:
        app: the host's application.
        options: options of the server.
        shares: shares of all tenants of this process.

    Attributes:
        direct: handlers, keyed by the paths of the host's :attr:`App.direct`. Each passes a call to
            the handler of its tenant, or to the host's.
        runtime: the host's.
        metrics: the host's.
    """

    def __init__(self, app: App, options: Options, shares: Shares) -> None:
        self._host = app
        self.runtime: Runtime = app.runtime
        self.metrics = app.metrics
        self.direct: dict[bytes, request.Handler] = {
            path: functools.partial(self._call, path) for path in app.direct
        }
        root = app.runtime.root
        settings = app.runtime.loaded.settings
        self._host_path = settings.ledger.path
        self._tenants = OpenTenants(
            root, settings.server.open_tenants, options.flags, options.by, shares, self._admit,
            app.metrics,
        )  # fmt: skip
        self._running: list[asyncio.Task[None]] = []

    def _admit(self, name: str) -> None:
        """Recover a tenant before the opening; refuse a root that the host did not make.

        Recovery undoes or finishes a move or removal whose process died.

        Raises:
            RemitError: the tenant does not exist, is damaged or removed, or has another key than
                recorded.
        """
        root, ledger = self.runtime.root, self.runtime.ledger
        recover_tenant(TenantHost(root, ledger, self._host_path), name)
        require_recorded(ledger, find_tenant(root, name))

    @property
    def ready(self) -> bool:
        """True if the host takes calls; tenants are opened on demand."""
        return self._host.ready

    @ready.setter
    def ready(self, value: bool) -> None:
        self._host.ready = value

    async def _call(self, path: bytes, call: request.Request) -> None:
        """Answer a model call that comes straight from the parser."""
        name, token = tenant_and_token(call.headers)
        try:
            found = await self._tenants.of(name, token) if name else None
        except HttpError as error:
            call.answer(refusal(dialect_of(call.path, call.headers), error))
            return
        if found is None:
            await self._host.direct[path](call)
            return
        with found:
            if (handler := found.app.direct.get(path)) is not None:
                await handler(call)
            else:  # The path of an agent of the host.
                nothing = HttpError(
                    404,
                    "not_found",
                    "This path does not exist. Model calls go to /v1/chat/completions and "
                    "/v1/messages.",
                )
                call.answer(refusal(dialect_of(call.path, call.headers), nothing))

    async def answer_socket(self, socket: WebSocket) -> None:
        """Serve a WebSocket with the application of the tenant that its key names.

        A socket without a tenant's key is the host's. A tenant that cannot be opened answers 503.

        Args:
            socket: the connection, whose handshake was not answered yet.
        """
        name, token = tenant_and_token(socket.headers)
        try:
            found = await self._tenants.of(name, token) if name else None
        except HttpError as error:
            socket.refuse(error)
            return
        if found is None:
            await self._host.answer_socket(socket)
            return
        with found:
            await found.app.answer_socket(socket)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an ASGI 3 request; the lifespan is not handled here.

        The tenant that the request names is opened if needed. A request without a tenant is the
        host's; a tenant that cannot be opened is answered 503. Errors are answered, not raised.
        """
        if scope["type"] != "http" or scope["path"] in _PROCESS_PATHS:
            await self._host(scope, receive, send)
            return
        scope = with_key_of_query(scope)
        path = scope["path"]
        is_console = path == "/" or path == "/console" or path.startswith("/console/")
        try:
            if not is_console:
                name, token = tenant_and_token(scope["headers"])
                found = await self._tenants.of(name, token) if name else None
            elif path == _LOGIN and scope["method"] == "POST":
                found, receive = await self._signing_in(scope, receive)
                send = _selecting(send, scope, found)
            else:
                found, send = await self._visited(scope, send)
        except HttpError as error:
            await reply(send, refusal(shape_of(scope), error))
            return
        if found is None:
            await self._host(scope, receive, send)
            return
        with found:
            await found.app(scope, receive, send)

    async def _signing_in(
        self, scope: Scope, receive: Receive
    ) -> tuple[OpenTenant | None, Receive]:
        """Return the tenant of the key in a login form, and a ``receive`` for the same form.

        The tenant is ``None`` if the key is the host's, or not the tenant's.
        """
        length = dict(scope["headers"]).get(b"content-length")
        body = await read_body(receive, length, _MAX_LOGIN_BYTES, _LOGIN_S, None)
        with contextlib.suppress(ValueError):  # The console refuses a body that is not a form.
            form = dict(parse_qsl(body.decode(), max_num_fields=50))
            key = form.get("key", "").strip()
            if key.isascii() and (tenant := tenant_of_key(key)):
                return await self._tenants.of(tenant, key), replayed(body, receive)
        return None, replayed(body, receive)

    async def _visited(self, scope: Scope, send: Send) -> tuple[OpenTenant | None, Send]:
        """Return the tenant whose console a browser has selected, and the ``send`` to answer with.

        ``/console/login?tenant=NAME`` selects a tenant; other requests carry the selection in a
        cookie.
        """
        name = selected_tenant(scope["headers"])
        if scope["path"] == _LOGIN:
            query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
            if "tenant" in query:
                found = await self._tenants.of_visitor(query["tenant"], is_known=False)
                return found, _selecting(send, scope, found, always=query["tenant"])
        if not name:
            return None, send
        is_known = name in self._tenants.all or await self._tenants.run(
            self._is_signed_in, name, scope
        )
        return await self._tenants.of_visitor(name, is_known=is_known), send

    def _is_signed_in(self, name: str, scope: Scope) -> bool:
        """Return True if a browser shows a login that this tenant signed."""
        from remit.server.console.cookies import (
            login_cookie,  # The import is slow, and no call needs it.
        )

        try:
            secret = agent_secret(find_tenant(self.runtime.root, name).root)
        except RemitError:
            return False
        return login_cookie(secret).read(scope["headers"]) is not None

    async def start(self) -> None:
        """Start the host's application, and the tasks that record heads and close idle tenants.

        Tenants are not opened. Heads are read every ten seconds, and idle tenants are looked for
        every second.
        """
        await self._host.start()
        take_heads = functools.partial(
            self._tenants.run, self._tenants.take_heads, self.runtime.ledger
        )
        tasks = (
            repeat(take_heads, _HEADS_S, "the heads of tenants cannot be recorded"),
            repeat(self._tenants.close_idle, _POLL_S, "idle tenants cannot be closed"),
        )
        self._running = [asyncio.create_task(task) for task in tasks]

    async def stop(self, *, at_once: bool = True) -> None:
        """Stop the tenants, record the last heads of their logs, and stop the host.

        No request may be in flight any more.

        Args:
            at_once: cancel background responses, which are recorded as ended; else wait for them.
        """
        for task in self._running:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._tenants.stop(at_once=at_once)
        await asyncio.to_thread(self._tenants.take_heads, self.runtime.ledger)
        await self._host.stop(at_once=at_once)

    def is_behind(self) -> bool:
        """Return True if the policy or the prices of the host's root changed after it was opened.

        Tenants are not examined: a background task closes changed ones, and their next request
        opens them again. Reads the ledger. Blocks.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return self._host.is_behind()

    def end_streams(self) -> None:
        """End the live pages of the host and of all tenants, as :meth:`App.end_streams`."""
        self._host.end_streams()
        self._tenants.end_streams()


def _selecting(send: Send, scope: Scope, found: OpenTenant | None, always: str = "") -> Send:
    """Return a ``send`` that adds the cookie of a selection to a redirect, or to any answer.

    Args:
        send: ASGI's function.
        scope: the request.
        found: the selected tenant; ``None`` for the host.
        always: any text to add the cookie to every answer; empty for successful logins only.
    """
    name = found.name if found is not None else ""
    forwarded = dict(scope["headers"]).get(b"x-forwarded-proto", b"")
    secure = scope.get("scheme") == "https" or forwarded == b"https"

    async def selecting(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start" and (always or message["status"] == 303):
            message = {
                **message,
                "headers": [*message["headers"], selection_cookie(name, secure=secure)],
            }
        await send(message)

    return selecting


def tenant_and_token(headers: Headers) -> tuple[str, str]:
    """Return the tenant that a request names, and its key or token; neither is checked.

    A virtual key contains the name of its tenant; an agent's token comes with the header
    ``x-remit-tenant``. If there are two credentials, the one counts that the authenticator uses.

    Args:
        headers: headers of the request, names in lower case.

    Returns:
        Two empty texts if the request names the host.
    """
    read = (*CREDENTIAL_HEADERS, b"x-remit-tenant")
    shown = {name: value.decode("latin-1") for name, value in headers if name in read}
    token = token_from_headers(*(shown.get(name) for name in CREDENTIAL_HEADERS))
    tenant = shown.get(b"x-remit-tenant", "")
    if token is not None and (name := tenant_of_key(token)):
        return name, token
    if token is not None and tenant and token.startswith("rat1."):
        return tenant.strip(), token
    return "", ""


def selected_tenant(headers: Headers) -> str:
    """Return the tenant whose console a browser has selected; empty for the host's.

    The name is not checked: any text of the cookie is returned.

    Args:
        headers: headers of the request.
    """
    for header, value in headers:
        if header == b"cookie":
            for one in value.split(b";"):
                name, _, selected = one.strip().partition(b"=")
                if name == _COOKIE:
                    return selected.decode("latin-1")
    return ""


def selection_cookie(tenant: str, *, secure: bool) -> tuple[bytes, bytes]:
    """Return the header (name, value) that sets or deletes a browser's selection of a console.

    The selection grants no access: the login is another cookie, which only that tenant can sign.
    The cookie lasts until the browser is closed. The name is not checked.

    Args:
        tenant: name of the tenant; empty to delete the selection.
        secure: True if the browser uses HTTPS.
    """
    parts = [f"{_COOKIE.decode()}={tenant}", "Path=/", "HttpOnly", "SameSite=Lax"]
    if not tenant:
        parts.append("Max-Age=0")
    if secure:
        parts.append("Secure")
    return b"set-cookie", "; ".join(parts).encode("latin-1")
