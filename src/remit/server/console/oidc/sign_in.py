"""Sign-in by Authorization Code with PKCE (OpenID Connect Core, section 3.1)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlencode, urlsplit

from remit.gateway.auth import Identity
from remit.kernel.settings import OidcSettings
from remit.server.console.cookies import SignedCookie
from remit.server.console.oidc.errors import AGAIN, SignInError, rejected
from remit.server.console.oidc.person import person_of
from remit.server.console.oidc.provider import Provider
from remit.server.console.oidc.tokens import verified
from remit.server.replies import Headers

_LASTS_S = 600  # The longest time from the link to the callback.
_MAX_WAITING = 50
_MAX_USED = 10_000
_PURPOSE = b"remit console oidc v1"
_COOKIE = "remit_console_oidc"
_ERROR = re.compile(r"[a-z_]{1,64}")


class SignIn:
    """Sign-ins with one provider.

    A cookie of the browser that begins a sign-in holds the state: no other browser can finish the
    sign-in, and no browser can finish it twice.

    Args:
        settings: ``[server.oidc]``.
        secret: the root's random secret.
        callback: path that the provider sends browsers back to.
    """

    def __init__(self, settings: OidcSettings, secret: bytes, *, callback: str) -> None:
        self._settings = settings
        self._redirect_uri = f"{settings.public_url.rstrip('/')}{callback}"
        self.is_secure = settings.public_url.startswith("https://")
        self.label = settings.label or urlsplit(settings.issuer).netloc
        # With the prefix, no other host of the domain can set it.
        name = f"__Host-{_COOKIE}" if self.is_secure else _COOKIE
        self._cookie = SignedCookie(name, secret, _PURPOSE)
        self._provider = Provider(settings, self._redirect_uri)
        self._used: dict[str, float] = {}
        self._running = 0

    async def begin(self, following: str) -> tuple[str, tuple[bytes, bytes]]:
        """Return the address at the provider, and the cookie of this sign-in.

        Args:
            following: the page of the console to show afterwards.

        Raises:
            SignInError: the provider cannot be reached.
        """
        async with self._place():
            published = await self._provider.published()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self._settings.client_id,
                "redirect_uri": self._redirect_uri,
                "scope": " ".join(self._settings.scopes),
                "state": state,
                "nonce": nonce,
                "code_challenge": challenge.rstrip(b"=").decode(),
                "code_challenge_method": "S256",
            }
        )
        claims = {"state": state, "nonce": nonce, "verifier": verifier, "next": following}
        joint = "&" if "?" in published.authorization_endpoint else "?"
        return (
            f"{published.authorization_endpoint}{joint}{query}",
            self._cookie.begin(claims, _LASTS_S, secure=self.is_secure),
        )

    async def finish(self, query: Mapping[str, str], headers: Headers) -> tuple[Identity, str]:
        """Return the person who signed in, and the page to show.

        Args:
            query: the query of the callback.
            headers: the headers of the request.

        Raises:
            SignInError: the callback signs nobody in.
        """
        found = self._cookie.read(headers)
        if found is None:
            raise rejected("No sign-in was begun in this browser, or it took too long.")
        begun = found[1]
        if not hmac.compare_digest(query.get("state", "").encode(), begun["state"].encode()):
            raise rejected("This answer belongs to another sign-in.")
        self._use(begun["state"], begun["until"])
        if error := query.get("error", ""):
            why = error if _ERROR.fullmatch(error) else "an error"
            raise SignInError(f"The provider did not sign you in: {why}.", next_step=AGAIN)
        async with self._place():
            published = await self._provider.published()
            named = query.get("iss", "" if published.names_itself else self._settings.issuer)
            if named != self._settings.issuer or not query.get("code"):
                raise rejected("This answer is not the provider's.")
            token = await self._provider.redeem(query["code"], begun["verifier"])
            key = await self._provider.key_for(token)
        claims = verified(token, key, self._settings, begun["nonce"])
        return person_of(claims, self._settings), begun["next"]

    def cookie_ended(self) -> tuple[bytes, bytes]:
        """Return the header that deletes the cookie of a sign-in."""
        return self._cookie.end(secure=self.is_secure)

    def _use(self, state: str, until: float) -> None:
        """Mark a sign-in as used; the provider refuses a used code in other processes.

        Raises:
            SignInError: the sign-in was used before.
        """
        now = time.time()
        if state in self._used:
            raise rejected("This sign-in was used already.")
        # The set is in order of use: expired sign-ins come first.
        while self._used and (
            len(self._used) >= _MAX_USED or next(iter(self._used.values())) < now
        ):
            del self._used[next(iter(self._used))]
        self._used[state] = until

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """Limit the number of sign-ins that wait for the provider.

        Raises:
            SignInError: too many wait.
        """
        if self._running >= _MAX_WAITING:
            raise SignInError("Too many sign in just now.", next_step=AGAIN, status=503)
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1


__all__ = ["SignIn"]
