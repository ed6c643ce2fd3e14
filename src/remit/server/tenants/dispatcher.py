"""Passes each request on to the application of the tenant that it names, or to the host's."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from remit.gateway.auth import agent_secret, tenant_of_key
from remit.kernel.errors import RemitError
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
from remit.server.app import App
from remit.server.guard import replayed
from remit.server.listening import Options
from remit.server.refusals import HttpError
from remit.server.replies import (
    Receive,
    Scope,
    Send,
    dialect_of,
    read_body,
    refusal,
    reply,
    shape_of,
)
from remit.server.shares import Shares
from remit.server.tenants.heads import Heads
from remit.server.tenants.naming import Named, choice, chosen, named
from remit.server.tenants.open_tenants import OpenTenant, OpenTenants

__all__ = ["Dispatcher", "has_tenants"]

_POLL_S = 1.0  # for tenants that are idle, are to be moved, or whose policy changed
_OWN = ("/healthz", "/readyz")  # of the process
_LOGIN = "/console/login"
_MOST_LOGIN_BYTES, _LOGIN_S = 16 * 1024, 10.0


def has_tenants(root: Path) -> bool:
    """Whether a root has tenants, so that a :class:`Dispatcher` is needed."""
    return (root / TENANTS).is_dir() and bool(tenant_names(Root(root)))


class Dispatcher:
    """Stands in the place of the host's :class:`App`.

    Attributes:
        direct: as :attr:`App.direct`.
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
        self._heads = Heads(root, app.runtime.ledger, self._tenants)
        self._running: list[asyncio.Task[None]] = []

    def _admit(self, name: str) -> None:
        """Recover a tenant before it is opened; refuse a root that the host did not make.

        Recovery ends a move or removal that a process began before it died.
        """
        root, ledger = self.runtime.root, self.runtime.ledger
        recover_tenant(TenantHost(root, ledger, self._host_path), name)
        require_recorded(ledger, find_tenant(root, name))

    @property
    def ready(self) -> bool:
        """Whether calls are taken."""
        return self._host.ready

    @ready.setter
    def ready(self, value: bool) -> None:
        self._host.ready = value

    async def _call(self, path: bytes, call: request.Request) -> None:
        """Answer a model call that comes straight from the parser."""
        asked = named(call.headers)
        try:
            found = await self._tenants.of(asked) if asked.tenant else None
        except HttpError as error:
            call.answer(refusal(dialect_of(call.path, call.headers), error))
            return
        if found is None:
            await self._host.direct[path](call)
            return
        with found:
            if (handler := found.app.direct.get(path)) is not None:
                await handler(call)
            else:  # an agent of the host's
                nothing = HttpError(
                    404,
                    "not_found",
                    "There is nothing here. Model calls go to /v1/chat/completions and "
                    "/v1/messages.",
                )
                call.answer(refusal(dialect_of(call.path, call.headers), nothing))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an ASGI 3 request; the lifespan is not handled here."""
        if scope["type"] != "http" or scope["path"] in _OWN:
            await self._host(scope, receive, send)
            return
        path = scope["path"]
        is_console = path == "/" or path == "/console" or path.startswith("/console/")
        try:
            if not is_console:
                asked = named(scope["headers"])
                found = await self._tenants.of(asked) if asked.tenant else None
            elif path == _LOGIN and scope["method"] == "POST":
                found, receive = await self._signing_in(scope, receive)
                send = _choosing(send, scope, found)
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
        """The tenant whose console is signed in to, by the key in the form."""
        length = dict(scope["headers"]).get(b"content-length")
        body = await read_body(receive, length, _MOST_LOGIN_BYTES, _LOGIN_S, None)
        with contextlib.suppress(ValueError):  # what is no form is refused by who reads it
            form = dict(parse_qsl(body.decode(), max_num_fields=50))
            key = form.get("key", "").strip()
            if key.isascii() and (tenant := tenant_of_key(key)):
                return await self._tenants.of(Named(tenant, key)), replayed(body, receive)
        return None, replayed(body, receive)

    async def _visited(self, scope: Scope, send: Send) -> tuple[OpenTenant | None, Send]:
        """Return the tenant whose console a browser has selected, and the ``send`` to answer with.

        ``/console/login?tenant=NAME`` selects a tenant; other requests carry the selection in a
        cookie.
        """
        name = chosen(scope["headers"])
        if scope["path"] == _LOGIN:
            query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
            if "tenant" in query:
                found = await self._tenants.of_visitor(query["tenant"], is_known=False)
                return found, _choosing(send, scope, found, always=query["tenant"])
        if not name:
            return None, send
        is_known = name in self._tenants.all or await self._tenants.run(
            self._is_signed_in, name, scope
        )
        return await self._tenants.of_visitor(name, is_known=is_known), send

    def _is_signed_in(self, name: str, scope: Scope) -> bool:
        """Whether a browser shows a login that this tenant made."""
        from remit.server.console.login import login_cookie  # calls do without the console

        try:
            secret = agent_secret(find_tenant(self.runtime.root, name).root)
        except RemitError:
            return False
        return login_cookie(secret).read(scope["headers"]) is not None

    async def start(self) -> None:
        """Start the host, and the tasks that run on a schedule."""
        await self._host.start()
        self._running = [
            asyncio.create_task(self._heads.go_on()), asyncio.create_task(self._look())
        ]  # fmt: skip

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_POLL_S)
            await self._tenants.close_idle()

    async def stop(self, *, at_once: bool = True) -> None:
        """Stop the host and all tenants, as :meth:`App.stop` does."""
        for task in self._running:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._tenants.stop(at_once=at_once)
        await asyncio.to_thread(self._heads.take_now)
        await self._host.stop(at_once=at_once)

    def is_behind(self) -> bool:
        """Return :meth:`App.is_behind` of the host; the server watches its tenants itself."""
        return self._host.is_behind()

    def end_streams(self) -> None:
        """End the streams of the host and of all tenants, as :meth:`App.end_streams` does."""
        self._host.end_streams()
        self._tenants.end_streams()


def _choosing(send: Send, scope: Scope, found: OpenTenant | None, always: str = "") -> Send:
    """Sends on; a login that succeeds, or ``always``, has the browser keep to that console."""
    name = found.name if found is not None else ""
    forwarded = dict(scope["headers"]).get(b"x-forwarded-proto", b"")
    secure = scope.get("scheme") == "https" or forwarded == b"https"

    async def choosing(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start" and (always or message["status"] == 303):
            message = {**message, "headers": [*message["headers"], choice(name, secure=secure)]}
        await send(message)

    return choosing
