"""Sign-in to the console with a key or a provider account, and sign-out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from remit.gateway.auth import KeyStore, agent_secret
from remit.runtime import Runtime
from remit.server.asgi import Answer, Headers, Receive, Scope
from remit.server.authentication import DEVELOPER, Authenticator
from remit.server.console.cookies import Login, Logins
from remit.server.console.forms import (
    MAX_LOGIN_BYTES,
    PREFIX,
    is_secure,
    own_path,
    read_form,
    read_query,
    see,
)
from remit.server.console.pages import Page
from remit.server.refusals import HttpError

if TYPE_CHECKING:
    from remit.server.console.oidc import SignIn

LOGIN = f"{PREFIX}/login"

_log = logging.getLogger("remit.server.console")
_OIDC = f"{PREFIX}/oidc/login"
_CALLBACK = f"{PREFIX}/oidc/callback"


class Entrance:
    """The sign-in pages, and the login of a request.

    Logins are cookies; the object stores none. The file with their secret is made if it is missing.

    Args:
        runtime: the open root.
        keys: the virtual keys of the root.
        authenticator: the server's authenticator; without a provider (dev mode) every visitor is
            the developer.

    Attributes:
        is_open: True in dev mode, where nobody signs in.

    Raises:
        RemitError: the secret of logins cannot be read or made.
    """

    def __init__(self, runtime: Runtime, keys: KeyStore, authenticator: Authenticator) -> None:
        oidc = runtime.loaded.settings.server.oidc
        secret = agent_secret(runtime.root)
        self._authenticator = authenticator
        self.is_open = authenticator.provider is None
        self._logins = Logins(secret, keys, oidc)
        self._sign_in: SignIn | None = None
        if oidc.issuer and not self.is_open:
            from remit.server.console.oidc import SignIn  # an extra

            self._sign_in = SignIn(oidc, secret, callback=_CALLBACK)

    def login(self, headers: Headers) -> Login | None:
        """Return the login of a request; ``None`` if nobody is signed in.

        In dev mode the login is the developer's.

        Args:
            headers: headers of the request.

        Raises:
            AuthUnavailableError: keys cannot be checked now.
        """
        return (DEVELOPER, "") if self.is_open else self._logins.of(headers)

    def leave(self, scope: Scope) -> Answer:
        """Return the redirect to the login page that deletes the login cookie.

        Args:
            scope: the request's scope, which tells if the browser uses HTTPS.
        """
        return see(LOGIN, self._logins.end(secure=is_secure(scope)))

    async def answered(self, scope: Scope, receive: Receive) -> Page | Answer:
        """Answer a request to a sign-in path.

        Args:
            scope: the request's scope; its path is one of :meth:`is_entrance`.
            receive: ASGI's function, which gives the form.

        Returns:
            A redirect with a login cookie on success, a redirect to the provider, or the login
            page. The page shows a refused sign-in, with status 403 or that of the SignInError; a
            fault of the provider is logged. In dev mode, a redirect to the start page.

        Raises:
            HttpError: the method or the form is not accepted, or keys cannot be checked now.
        """
        path, method = scope["path"], scope["method"]
        if self.is_open:
            return see("/")
        if path == LOGIN:
            if method == "POST":
                return await self._with_key(scope, await read_form(scope, receive, MAX_LOGIN_BYTES))
            return self._page(own_path(read_query(scope).get("next", "")))
        if method != "GET":
            raise HttpError(405, "method_not_allowed", f"This page does not accept {method[:16]}.")
        assert self._sign_in is not None  # is_entrance() admits these paths only with a provider.
        return await self._with_provider(self._sign_in, scope)

    def is_entrance(self, path: str) -> bool:
        """Return True if a path is a sign-in path, which requires no login.

        Paths of a provider count only if one is configured.

        Args:
            path: path of the request.
        """
        return path == LOGIN or (path in (_OIDC, _CALLBACK) and self._sign_in is not None)

    def _page(self, following: str, failed: str = "", status: int = 200) -> Page:
        data = {"next": following, "failed": failed, "provider": "", "provider_path": _OIDC}
        if self._sign_in is not None:
            data["provider"] = self._sign_in.label
        return Page("login.html.j2", data, status)

    async def _with_key(self, scope: Scope, form: dict[str, str]) -> Page | Answer:
        following = own_path(form.get("next", ""))
        key = form.get("key", "").strip()
        shown = key.encode("utf-8", "replace")
        failed = ""
        try:
            identity = (await self._authenticator.authenticate([(b"x-api-key", shown)])).identity
            if not identity.key_id or identity.within is not None:
                failed = "Sign in with a virtual key. Agent tokens are not accepted."
            elif not identity.may("read"):
                failed = f"A key with the role {identity.role} cannot read the ledger."
        except HttpError as error:
            if error.status != 401:
                raise
            failed = "This key is unknown, expired or revoked."
        if failed:
            return self._page(following, failed, 403)
        return see(following, self._logins.begin(identity, secure=is_secure(scope), key=key))

    async def _with_provider(self, sign_in: SignIn, scope: Scope) -> Page | Answer:
        from remit.server.console.oidc import SignInError

        query = read_query(scope)
        try:
            if scope["path"] == _OIDC:
                place, cookie = await sign_in.begin(own_path(query.get("next", "")))
                return see(place, cookie)
            person, following = await sign_in.finish(query, scope["headers"])
        except SignInError as error:
            if error.status == 502 and not error.is_known:  # The operator has to fix the provider.
                _log.warning("%s (%s)", error.message, type(error.__cause__).__name__)
            page = self._page("/", f"{error.message} {error.next_step}".strip(), error.status)
            return page._replace(headers=(sign_in.cookie_ended(),))
        login = self._logins.begin(person, secure=sign_in.is_secure or is_secure(scope))
        return see(following, login, sign_in.cookie_ended())
