"""A sign-in by Authorization Code with PKCE, from the link to the person (OIDC Core, 3.1)."""

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
from remit.server.console.oidc.errors import SignInError
from remit.server.console.oidc.person import person_of
from remit.server.console.oidc.provider import Provider
from remit.server.console.oidc.tokens import verified
from remit.server.replies import Headers

_LASTS_S = 600  # from the link to the way back
_MOST_AT_ONCE = 50
_MOST_USED = 10_000
_PURPOSE = b"remit console oidc v1"
_COOKIE = "remit_console_oidc"
_ERROR = re.compile(r"[a-z_]{1,64}")
_AGAIN = "Sign in again."


class SignIn:
    """Signs people in with one provider.

    What belongs to a sign-in is in a cookie of the browser that began it: no other browser can end
    it, and none can end it twice.

    Args:
        settings: ``[server.oidc]``.
        secret: of the root, random.
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
        """Where the browser goes, and the cookie that it comes back with.

        Args:
            following: the page of the console that it is for.

        Raises:
            SignInError: the provider cannot be reached.
        """
        async with self._running_one():
            metadata = await self._provider.metadata()
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
        joint = "&" if "?" in metadata.authorization_endpoint else "?"
        return (
            f"{metadata.authorization_endpoint}{joint}{query}",
            self._cookie.begin(claims, _LASTS_S, secure=self.is_secure),
        )

    async def finish(self, query: Mapping[str, str], headers: Headers) -> tuple[Identity, str]:
        """The person who came back, and the page that it was for.

        Args:
            query: of the callback.
            headers: of the request.

        Raises:
            SignInError: nobody is signed in by this.
        """
        found = self._cookie.read(headers)
        if found is None:
            raise SignInError(
                "No sign-in was begun in this browser, or it took too long.",
                next_step=_AGAIN, status=400,
            )  # fmt: skip
        begun = found.claims
        if not hmac.compare_digest(query.get("state", "").encode(), begun["state"].encode()):
            raise SignInError(
                "This answer belongs to another sign-in.", next_step=_AGAIN, status=400
            )
        self._use(begun["state"], begun["until"])
        if error := query.get("error", ""):
            why = error if _ERROR.fullmatch(error) else "an error"
            raise SignInError(f"The provider did not sign you in: {why}.", next_step=_AGAIN)
        async with self._running_one():
            metadata = await self._provider.metadata()
            named = query.get("iss", "" if metadata.names_itself else self._settings.issuer)
            if named != self._settings.issuer or not query.get("code"):
                raise SignInError(
                    "This answer is not the provider's.", next_step=_AGAIN, status=400
                )
            token = await self._provider.redeem(query["code"], begun["verifier"])
            key = await self._provider.key_for(token)
        claims = verified(token, key, self._settings, begun["nonce"])
        return person_of(claims, self._settings), begun["next"]

    def cookie_ended(self) -> tuple[bytes, bytes]:
        """The header that ends a sign-in."""
        return self._cookie.end(secure=self.is_secure)

    def _use(self, state: str, until: float) -> None:
        """Let a sign-in end once: the provider has to refuse its code too, whatever process asks.

        Raises:
            SignInError: it ended before.
        """
        now = time.time()
        if state in self._used:
            raise SignInError("This sign-in was used already.", next_step=_AGAIN, status=400)
        # The oldest come first.
        while self._used and (
            len(self._used) >= _MOST_USED or next(iter(self._used.values())) < now
        ):
            del self._used[next(iter(self._used))]
        self._used[state] = until

    @asynccontextmanager
    async def _running_one(self) -> AsyncIterator[None]:
        """Holds one of the places of those who wait for the provider.

        Raises:
            SignInError: there is none.
        """
        if self._running >= _MOST_AT_ONCE:
            raise SignInError("Too many sign in just now.", next_step=_AGAIN, status=503)
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1


__all__ = ["SignIn"]
