"""The console as an ASGI application: logins, views, files, live events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

from remit.agents.approvals import ApprovalQueue
from remit.gateway.auth import AuthUnavailableError, KeyStore, agent_secret
from remit.kernel.errors import InvalidInputError, RemitError
from remit.ledger import open_root_ledger
from remit.runtime import Runtime
from remit.server.authentication import DEVELOPER, Authenticator
from remit.server.console import (
    approvals,
    decisions,
    journeys,
    now,
    proposals,
    sessions,
    spend,
    verification,
)
from remit.server.console.assets import ASSETS, assets
from remit.server.console.kept_usage import KeptUsage
from remit.server.console.live import Live
from remit.server.console.login import Login, Logins, set_cookie
from remit.server.console.pages import (
    Asked,
    NotFoundError,
    Page,
    Redirect,
    Sources,
    View,
    templates,
)
from remit.server.refusals import HttpError
from remit.server.replies import Answer, Headers, Receive, Scope, Send, read_body, reply

PREFIX = "/console"

_log = logging.getLogger("remit.server.console")

_VIEWS = (
    *now.VIEWS, *sessions.VIEWS, *journeys.VIEWS, *decisions.VIEWS, *spend.VIEWS,
    *approvals.VIEWS, *verification.VIEWS, *proposals.VIEWS,
)  # fmt: skip
_LOGIN, _LOGOUT, _LIVE, _FIND = (f"{PREFIX}/{name}" for name in ("login", "logout", "live", "find"))
_MOST_FORM_BYTES = 64 * 1024
_FORM_S = 10.0
_THREADS = 2  # that make pages: what they do is time that calls do not have
_MOST_WAITING = 100  # pages
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_NOT_OWN = "This form is not of this console. Open the page again."
_SEE_LOG = "The log of the server says why."
_HTML = b"text/html; charset=utf-8"
_FOUND_BY = (("LED-", "journey"), ("SES-", "sessions"), ("WO-", "journey"), ("DEC-", "why"),
             ("PRP-", "proposals"))  # fmt: skip

_T = TypeVar("_T")


class Console:
    """The pages of one root.

    They are made in threads and from connections of their own: calls do not wait for them.

    Args:
        runtime: the open root.
        keys: its virtual keys.
        authenticator: of the server; without a provider everyone is the developer.
    """

    def __init__(self, runtime: Runtime, keys: KeyStore, authenticator: Authenticator) -> None:
        settings = runtime.loaded.settings
        self._ledger = open_root_ledger(runtime.root, settings.ledger, signing=False)
        self._sources = Sources(
            runtime,
            self._ledger,
            ApprovalQueue(self._ledger, settings.approvals),
            keys,
            KeptUsage(self._ledger),
        )
        self._authenticator = authenticator
        self._open = authenticator.provider is None
        self._logins = Logins(agent_secret(runtime.root), keys)
        self._threads = ThreadPoolExecutor(_THREADS, "remit-console")
        self._waiting = 0
        self._live = Live(self._ledger)

    def close(self) -> None:
        """End its threads and connections."""
        self._live.close()
        self._threads.shutdown(cancel_futures=True)
        self._ledger.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3, of paths that are the console's."""
        try:
            answer = await self._answered(scope, receive, send)
        except HttpError as error:
            answer = await self._failure(scope, error.status, error.message, "")
        except AuthUnavailableError as error:
            answer = await self._failure(scope, 503, error.message, error.next_step)
        except NotFoundError as error:
            answer = await self._failure(scope, 404, str(error), "")
        except InvalidInputError as error:
            answer = await self._failure(scope, 400, error.message, error.next_step)
        except RemitError as error:
            answer = await self._failure(scope, 409, error.message, error.next_step)
        except Exception:  # noqa: BLE001 - shown as a page too
            _log.exception("a page could not be made")
            answer = await self._failure(scope, 500, "This page could not be made.", _SEE_LOG)
        if answer is not None:
            await reply(send, answer._replace(headers=_merged(answer.headers)))

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> Answer | None:
        path, method = scope["path"], scope["method"]
        if path.startswith(ASSETS):
            return _asset(path.removeprefix(ASSETS), method)
        if path == _LOGIN:
            return await self._log_in(scope, receive)
        login = self._login(scope)
        if login is None:
            if method != "GET":
                raise HttpError(401, "not_signed_in", "You are not signed in, or no longer.")
            wanted = path + (
                f"?{query}" if (query := scope["query_string"].decode("latin-1")) else ""
            )
            return _see(f"{_LOGIN}?next={quote(wanted, safe='')}")
        if path == _LIVE:
            await self._live.serve(send, receive, lambda: self._login(scope) is not None, _HEADERS)
            return None
        form: Mapping[str, str] = {}
        if method == "POST":
            form = await _form(scope, receive)
            if not _is_own(scope["headers"]) or (login.token and form.get("token") != login.token):
                raise HttpError(
                    403, "forbidden", "This form is not of this console. Open the page again."
                )
        elif method not in ("GET", "HEAD"):
            raise HttpError(405, "method_not_allowed", f"A page does not take {method[:16]}.")
        if path == _LOGOUT and method == "POST":
            return _see(_LOGIN, set_cookie("", secure=_is_secure(scope)))
        if not login.identity.may("read"):
            said = f"The role {login.identity.role} may not read the record."
            raise HttpError(403, "forbidden", said)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        if path == _FIND:
            return _see(_place_of(query.get("id", "").strip()))
        view, rest = _view_of(path)
        asked = Asked(path, rest, login.identity, query, form)
        return await self._run(lambda: self._made(view, asked, login, method))

    def _made(self, view: View, asked: Asked, login: Login, method: str) -> Answer:
        if method == "POST":
            if view.change is None:
                raise HttpError(405, "method_not_allowed", "Nothing can be changed here.")
            if not asked.identity.may(view.needs):
                said = f"The role {asked.identity.role} may not do this."
                raise HttpError(403, "forbidden", said)
            made = view.change(self._sources, asked)
        else:
            made = view.show(self._sources, asked)
        if isinstance(made, Redirect):
            return _see(made.to)
        return self._rendered(made, login, asked.path, view.path)

    def _rendered(self, page: Page, login: Login | None, path: str, at: str) -> Answer:
        text = (
            templates()
            .get_template(page.template)
            .render(
                **page.data,
                here=path,
                at=at,
                identity=login.identity if login is not None else None,
                token=login.token if login is not None else "",
                signs_out=not self._open,
            )
        )
        return Answer(page.status, text.encode("utf-8", "replace"), _HTML)

    async def _run(self, make: Callable[[], _T]) -> _T:
        """In one of the console's threads.

        Raises:
            HttpError: 503, too many pages wait.
        """
        if self._waiting >= _MOST_WAITING:
            raise HttpError(503, "overloaded", "Too many pages are asked for.", retry_after_s=1)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, make)
        finally:
            self._waiting -= 1

    async def _failure(self, scope: Scope, status: int, message: str, next_step: str) -> Answer:
        try:
            login = self._login(scope)
        except RemitError:
            login = None
        data = {"status": status, "message": message, "next_step": next_step}
        page = Page("failure.html.j2", data, status)
        return self._rendered(page, login, scope["path"], "")

    # Logins.

    def _login(self, scope: Scope) -> Login | None:
        if self._open:
            return Login(DEVELOPER, "")
        return self._logins.of(scope["headers"])

    async def _log_in(self, scope: Scope, receive: Receive) -> Answer:
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        if self._open:
            return _see("/")
        if scope["method"] != "POST":
            page = Page("login.html.j2", {"next": _own_path(query.get("next", "")), "failed": ""})
            return self._rendered(page, None, _LOGIN, "")
        form = await _form(scope, receive)
        if not _is_own(scope["headers"]):
            raise HttpError(
                403, "forbidden", "This form is not of this console. Open the page again."
            )
        following = _own_path(form.get("next", ""))
        key = form.get("key", "").strip().encode("utf-8", "replace")
        failed = ""
        try:
            identity = (await self._authenticator.authenticate([(b"x-api-key", key)])).identity
            if not identity.key_id or identity.within is not None:
                failed = "Sign in with a virtual key, not with an agent's token."
            elif not identity.may("read"):
                failed = f"A key of the role {identity.role} may not read the record."
        except HttpError as error:
            if error.status != 401:
                raise
            failed = "This key is unknown, expired or revoked."
        if failed:
            page = Page("login.html.j2", {"next": following, "failed": failed}, 403)
            return self._rendered(page, None, _LOGIN, "")
        cookie = set_cookie(self._logins.begin(identity), secure=_is_secure(scope))
        return _see(following, cookie)


def _view_of(path: str) -> tuple[View, str]:
    for view in _VIEWS:
        if path == view.path:
            return view, ""
        if view.path != "/" and path.startswith(f"{view.path}/"):
            return view, path[len(view.path) + 1 :]
    raise NotFoundError("There is no such page.")


def _place_of(name: str) -> str:
    for prefix, view in _FOUND_BY:
        if name.startswith(prefix):
            return f"{PREFIX}/{view}/{quote(name, safe='')}"
    return f"{PREFIX}/sessions/{quote(name, safe='')}"


def _asset(name: str, method: str) -> Answer:
    found = assets().get(name)
    if found is None or method not in ("GET", "HEAD"):
        raise NotFoundError("There is no such file.")
    kept = (b"cache-control", b"public, max-age=31536000, immutable")
    return Answer(200, found.body, found.content_type.encode(), [kept])


async def _form(scope: Scope, receive: Receive) -> dict[str, str]:
    length = dict(scope["headers"]).get(b"content-length")
    body = await read_body(receive, length, _MOST_FORM_BYTES, _FORM_S, None)
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=50))
    except ValueError as error:
        raise HttpError(400, "invalid_input", "The form cannot be read.") from error


def _is_own(headers: Headers) -> bool:
    """Whether a form was sent from a page of this server, as far as the browser says."""
    named = dict(headers)
    if (site := named.get(b"sec-fetch-site")) is not None:
        return site == b"same-origin"
    origin = named.get(b"origin", b"").decode("latin-1")
    if not origin:
        return True  # no browser of today: the form's token counts
    return urlsplit(origin).netloc.lower() == named.get(b"host", b"").decode("latin-1").lower()


def _is_secure(scope: Scope) -> bool:
    """Whether the browser came over TLS, here or at a proxy."""
    named = dict(scope["headers"])
    return scope.get("scheme") == "https" or named.get(b"x-forwarded-proto", b"") == b"https"


def _own_path(text: str) -> str:
    """Where to go after a login: a page of the console, whatever a link says."""
    return text if text == "/" or text.startswith(f"{PREFIX}/") else "/"


def _see(place: str, *headers: tuple[bytes, bytes]) -> Answer:
    return Answer(303, b"", b"text/plain", [(b"location", place.encode("latin-1")), *headers])


def _merged(headers: Headers) -> list[tuple[bytes, bytes]]:
    own = {name for name, _ in headers}
    return [*headers, *(pair for pair in _HEADERS if pair[0] not in own)]


__all__ = ["PREFIX", "Console"]
