"""The console as an ASGI application: sign-in, views, scripts and live events."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from remit.agents import ApprovalQueue
from remit.gateway.auth import AuthUnavailableError, Identity, KeyStore
from remit.kernel.errors import InvalidInputError, NotFoundError, RemitError
from remit.ledger import (
    LedgerClosedError,
    LedgerConnectionError,
    LedgerWriteError,
    open_root_ledger,
)
from remit.runtime import OpenRoot, Runtime
from remit.server.asgi import (
    PROVE,
    Answer,
    Headers,
    Receive,
    Scope,
    Send,
    limits_of,
    reply,
)
from remit.server.authentication import Authenticator
from remit.server.console import (
    approvals,
    calls,
    decisions,
    device,
    journeys,
    key_pages,
    now,
    proposals,
    sessions,
    spend,
    verification,
)
from remit.server.console.assets import ASSETS, scripts, style
from remit.server.console.caches import KeptReport, KeptUsage, UntilNextEntry, WaitingApprovals
from remit.server.console.cookies import Login
from remit.server.console.forms import PREFIX, not_own, read_form, read_query, see
from remit.server.console.live import Live
from remit.server.console.pages import (
    Asked,
    Page,
    Sources,
    View,
    templates,
)
from remit.server.console.sign_in import LOGIN, Entrance
from remit.server.device_sign_in import PAGE
from remit.server.in_flight_limits import SHARE
from remit.server.refusals import HttpError
from remit.views import POSITIONS
from remit.views.page import style_hash

_log = logging.getLogger("remit.server.console")

_VIEWS = (
    *now.VIEWS, *calls.VIEWS, *sessions.VIEWS, *journeys.VIEWS, *decisions.VIEWS, *spend.VIEWS,
    *key_pages.VIEWS, *approvals.VIEWS, *verification.VIEWS, *proposals.VIEWS, *device.VIEWS,
)  # fmt: skip
_LOGOUT, _LIVE, _FIND = (f"{PREFIX}/{name}" for name in ("logout", "live", "find"))
_THREADS = 2  # Pages share the CPU with model calls, so few threads render them.
_MAX_WAITING_PAGES = 100
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'sha256-{style}' 'sha256-{positions}'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_MAX_RETRY_S = 1.0  # A page without its database must not block one of the few threads.
_NO_DATABASE = "The database of the ledger does not answer."
_COMES_BACK = (
    "Until it does, model calls are refused, because they could not be recorded. "
    "Reload the page later."
)
_SOON = ((b"retry-after", b"1"),)
_SEE_LOG = "See the server log for the reason."
_HTML = b"text/html; charset=utf-8"
_FOUND_BY = (("LED-", "journey"), ("SES-", "sessions"), ("WO-", "journey"), ("DEC-", "why"),
             ("PRP-", "proposals"))  # fmt: skip

_CONTENT = b'<main id="main">'  # The head of every page ends with this tag.
_OVERLOADED = 500  # From this status on, an error page asks the database for nothing.

_T = TypeVar("_T")


class _Begun(NamedTuple):
    """A page with its head, and the function that reads its content."""

    head: Answer
    content: Callable[[], bytes]


class Console:
    """The ASGI application of a root's console, in use until :meth:`close`.

    Creation opens the ledger a second time, for reading. Pages are rendered in the console's own
    threads with its own database connections, so model calls do not wait for them. The file with
    the secret of logins is made if it is missing.

    Args:
        runtime: the open root.
        keys: the virtual keys of the root.
        authenticator: the server's authenticator; without a provider (dev mode) every visitor is
            the developer.

    Raises:
        LedgerError: the ledger cannot be opened.
        RemitError: the secret of logins cannot be read or made.
    """

    def __init__(self, runtime: Runtime, keys: KeyStore, authenticator: Authenticator) -> None:
        settings = runtime.loaded.settings
        wait_s = min(settings.ledger.lock_timeout_s, _MAX_RETRY_S)
        own = settings.ledger.model_copy(update={"lock_timeout_s": wait_s})
        self._ledger = open_root_ledger(runtime.root, own, signing=False)
        approvals_read = ApprovalQueue(self._ledger, settings.approvals)
        self._sources = Sources(
            runtime,
            self._ledger,
            approvals_read,
            OpenRoot(lambda: (runtime.root, runtime.loaded), lambda: self._ledger),
            OpenRoot(
                lambda: (runtime.root, runtime.loaded),
                lambda: runtime.ledger,
                keys=keys,
                budgeter=runtime.budgeter,
            ),
            KeptUsage(self._ledger),
            KeptReport(runtime.root, self._ledger),
            WaitingApprovals(self._ledger, approvals_read),
            UntilNextEntry(self._ledger),
        )
        self._entrance = Entrance(runtime, keys, authenticator)
        self._threads = ThreadPoolExecutor(_THREADS, "remit-console")
        self._waiting = 0
        self._is_ready = False
        self._live = Live(self._ledger)

    def end_streams(self) -> None:
        """End all live event streams and refuse new ones; call this in the event loop."""
        self._live.end()

    def close(self) -> None:
        """End the streams, threads and database connections.

        Pages that are being made are finished first, and waiting ones dropped. Blocks.
        """
        self._live.close()
        self._threads.shutdown(cancel_futures=True)
        self._ledger.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP request under the paths of the console.

        Errors are shown as pages with a status of 4xx or 5xx; none is raised. Without a login a
        ``GET`` or ``HEAD`` of a page is redirected to the login page, and any other request is
        answered 401. Requests count under the key of their login. The first page also compiles all
        templates and the learning report, in a thread.
        """
        try:
            answer = await self._answered(scope, receive, send)
            if isinstance(answer, _Begun):
                # HTTP/1.0 has no chunks, and an answer to HEAD has the length of the whole page.
                if scope.get("http_version") != "1.0" and scope["method"] != "HEAD":
                    await self._send_in_parts(scope, send, answer)
                    return
                head, content = answer
                answer = head._replace(body=head.body + await self._run(content))
        except Exception as error:  # noqa: BLE001 - shown as a page
            answer = await self._failure(scope, error)
        if answer is not None:
            await reply(send, answer._replace(headers=_merged(answer.headers)))

    async def _send_in_parts(self, scope: Scope, send: Send, begun: _Begun) -> None:
        """Send a page's head, so that a browser can paint it, then read and send its content.

        The content of an error page takes the place of content that cannot be read.
        """
        head = begun.head
        headers = [(b"content-type", head.content_type), *_merged(head.headers)]
        await send({"type": "http.response.start", "status": head.status, "headers": headers})
        await send({"type": "http.response.body", "body": head.body, "more_body": True})
        try:
            content = await self._run(begun.content)
        except Exception as error:  # noqa: BLE001 - shown in the page
            failed = await self._failure(scope, error)
            content = failed.body[failed.body.index(_CONTENT) + len(_CONTENT) :]
        await send({"type": "http.response.body", "body": content})

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> Answer | _Begun | None:
        path, method = scope["path"], scope["method"]
        if path.startswith(ASSETS):
            return _asset(path.removeprefix(ASSETS), method)
        if method not in ("GET", "HEAD", "POST") or (path == _LIVE and method != "GET"):
            raise HttpError(405, "method_not_allowed", f"A page does not accept {method[:16]}.")
        if self._entrance.is_entrance(path):
            made = await self._entrance.answered(scope, receive)
            return self._rendered(made, None, path, "") if isinstance(made, Page) else made
        login = self._entrance.login(scope["headers"])
        if login is None:
            if method == "POST" or path == _LIVE:
                raise HttpError(
                    401,
                    "not_signed_in",
                    "You are not signed in, or your session has expired. Sign in again.",
                )
            query_text = scope["query_string"].decode("latin-1")
            wanted = quote(path) + (f"?{query_text}" if query_text else "")
            return see(f"{LOGIN}?next={quote(wanted, safe='')}")
        identity, token = login
        _take_place(scope, identity)
        form: Mapping[str, str] = {}
        if method == "POST":
            form = await read_form(scope, receive)
            if token and form.get("token") != token:
                raise not_own()
            if path == _LOGOUT:
                return self._entrance.leave(scope)
        if path != PAGE and not identity.may("read"):
            said = f"The role {identity.role} may not read the ledger."
            raise HttpError(403, "forbidden", said)
        if path == _LIVE:
            await self._live.serve(send, receive, lambda: self._still(scope), _headers())
            return None
        query = read_query(scope)
        if path == _FIND:
            return see(_place_of(query.get("id", "").strip()))
        if path in (PREFIX, f"{PREFIX}/"):
            return see("/")
        view, rest = _view_of(path)
        asked = Asked(path, rest, identity, query, form)
        answer = await self._run(lambda: self._made(view, asked, login, method))
        if not self._is_ready:
            self._is_ready = True
            self._threads.submit(self._make_ready)
        return answer

    def _make_ready(self) -> None:
        """Compile the templates and compute the learning report, so that first visits are fast."""
        made = templates()
        for name in made.list_templates(extensions=["j2"]):
            made.get_template(name)
        with contextlib.suppress(RemitError):  # The report page shows the error.
            self._sources.learned.read()

    def _made(self, view: View, asked: Asked, login: Login, method: str) -> Answer | _Begun:
        if method == "POST":
            if view.change is None:
                raise HttpError(405, "method_not_allowed", "This page accepts no changes.")
            if not asked.identity.may(view.needs):
                said = f"The role {asked.identity.role} lacks the permission {view.needs}."
                raise HttpError(403, "forbidden", said)
            made = view.change(self._sources, asked)
        else:
            made = view.show(self._sources, asked)
        if isinstance(made, Answer):
            return made
        waiting = len(self._sources.waiting.read()) if asked.identity.may("read") else 0
        parts = self._parts(made, login, asked.path, view.path, waiting)
        head, rest = [], ""
        for part in parts:
            before, mark, rest = part.partition(_CONTENT.decode())
            head += [before, mark]
            if mark:
                break
        return _Begun(
            Answer(made.status, _encoded("".join(head)), _HTML, made.headers),
            lambda: _encoded("".join([rest, *parts])),
        )

    def _rendered(
        self, page: Page, login: Login | None, path: str, at: str, waiting: int = 0
    ) -> Answer:
        text = "".join(self._parts(page, login, path, at, waiting))
        return Answer(page.status, _encoded(text), _HTML, page.headers)

    def _parts(
        self, page: Page, login: Login | None, path: str, at: str, waiting: int
    ) -> Iterator[str]:
        """Yield the text of a page; values that the page's content reads are read when it is due.

        Args:
            page: the page.
            login: the visitor's login; None if nobody is signed in.
            path: the path of the request.
            at: the path of the view, which the navigation marks.
            waiting: the number of open approval requests.
        """
        identity, token = login or (None, "")
        return (
            templates()
            .get_template(page.template)
            .generate(
                **page.data,
                here=quote(path),
                at=at,
                identity=identity,
                token=token,
                signs_out=not self._entrance.is_open,
                waiting_approvals=waiting,
            )
        )

    async def _run(self, make: Callable[[], _T]) -> _T:
        """Run ``make`` in a thread of the console and return the result.

        Raises:
            HttpError: 503, too many pages are waiting.
        """
        if self._waiting >= _MAX_WAITING_PAGES:
            raise HttpError(
                503,
                "overloaded",
                "Too many pages are being loaded. Retry in a second.",
                retry_after_s=1,
            )
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, make)
        finally:
            self._waiting -= 1

    async def _failure(self, scope: Scope, error: Exception) -> Answer:
        """Return the page of an error, with the count of open approvals if the ledger answers.

        A throttled caller's page states no count: it must not cost more work.
        """
        status, message, next_step, headers = _explained(error)
        login, waiting = None, 0
        with contextlib.suppress(RemitError):
            login = self._entrance.login(scope["headers"])
        if status < _OVERLOADED and status != 429 and login is not None and login[0].may("read"):
            with contextlib.suppress(HttpError, RemitError):
                waiting = await self._run(lambda: len(self._sources.waiting.read()))
        data = {"status": status, "message": message, "next_step": next_step}
        page = Page("failure.html.j2", data, status)
        answer = self._rendered(page, login, scope["path"], "", waiting)
        return answer._replace(headers=headers)

    def _still(self, scope: Scope) -> bool:
        """Return True if the login is valid; also True while keys cannot be read."""
        try:
            return self._entrance.login(scope["headers"]) is not None
        except AuthUnavailableError:
            return True


def _explained(error: Exception) -> tuple[int, str, str, Headers]:
    """Return the status of an error, its message, the next step and further headers."""
    if isinstance(error, HttpError):
        return error.status, error.message, "", limits_of(error)
    if isinstance(error, LedgerConnectionError):
        return 503, _NO_DATABASE, _COMES_BACK, _SOON
    if isinstance(error, (AuthUnavailableError, LedgerWriteError, LedgerClosedError)):
        return 503, error.message, error.next_step, _SOON
    if isinstance(error, RemitError):
        known = ((NotFoundError, 404), (InvalidInputError, 400))
        status = next((status for kind, status in known if isinstance(error, kind)), 409)
        return status, error.message, error.next_step, ()
    _log.error("a page failed", exc_info=error)
    return 500, "An internal error occurred; this page cannot be shown.", _SEE_LOG, ()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _take_place(scope: Scope, identity: Identity) -> None:
    """Count the request against its key's share, and mark the connection as authenticated.

    Raises:
        HttpError: 429, the key has reached its limit of concurrent requests.
    """
    if PROVE in scope:
        scope[PROVE]()
    if (share := scope.get(SHARE)) is not None:
        share.begin(identity.key_id)


def _view_of(path: str) -> tuple[View, str]:
    for view in _VIEWS:
        if path == view.path:
            return view, ""
        if view.path != "/" and path.startswith(f"{view.path}/"):
            return view, path[len(view.path) + 1 :]
    raise NotFoundError("This page does not exist.")


def _place_of(name: str) -> str:
    """Return the path of an id's page; for another text, of the calls that contain the text."""
    for prefix, view in _FOUND_BY:
        if name.startswith(prefix):
            return f"{PREFIX}/{view}/{quote(name, safe='')}"
    return f"{PREFIX}/calls?word={quote(name, safe='')}"


def _asset(name: str, method: str) -> Answer:
    body = scripts().get(name)
    if body is None or method not in ("GET", "HEAD"):
        raise NotFoundError("This file does not exist.")
    immutable = (b"cache-control", b"public, max-age=31536000, immutable")
    return Answer(200, body, b"text/javascript; charset=utf-8", [immutable])


@functools.cache
def _headers() -> tuple[tuple[bytes, bytes], ...]:
    """Return the security headers of every answer."""
    policy = _POLICY.format(style=style_hash(style()), positions=style_hash(POSITIONS))
    return (
        (b"content-security-policy", policy.encode()),
        (b"x-frame-options", b"DENY"),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"same-origin"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cache-control", b"no-store"),
    )


def _merged(headers: Headers) -> list[tuple[bytes, bytes]]:
    own = {name for name, _ in headers}
    return [*headers, *(pair for pair in _headers() if pair[0] not in own)]
