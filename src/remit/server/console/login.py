"""Who is signed in: a signed cookie that names a virtual key or a person, and holds no secret."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from remit.gateway.auth import AuthenticationError, Identity, KeyStore
from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.settings import OidcSettings
from remit.server.console.cookies import SignedCookie
from remit.server.replies import Headers

COOKIE = "remit_console"
LASTS_S = 8 * 3600
"""For how long a login by a key holds; revoking or rotating the key ends it at once."""

_PURPOSE = b"remit console login v1"


class Login(NamedTuple):
    """A valid login.

    Attributes:
        identity: the key's owner, with the rights that the key has now; or the person, with those
            that the provider gave them.
        token: for forms: a page of another site does not know it.
    """

    identity: Identity
    token: str


class Logins:
    """Makes and checks the cookies of logins.

    That of a key says ``{"key", "mark"}``, and counts while the secret does that was shown; that
    of a person says ``{"issuer", "subject", "name", "role", "settings"}``, and counts while the
    settings of the provider are what they were.

    Args:
        secret: of the root, random.
        keys: says what a key may do now, and whether it was revoked.
        oidc: ``[server.oidc]``.
    """

    def __init__(self, secret: bytes, keys: KeyStore, oidc: OidcSettings) -> None:
        self._cookie = login_cookie(secret)
        self._keys = keys
        self._oidc = oidc
        self._settings = _digest(oidc)

    def begin(self, identity: Identity, *, secure: bool, key: str = "") -> tuple[bytes, bytes]:
        """The header that begins a login of a key's owner, or of a person without a key."""
        claims = {"key": identity.key_id, "mark": KeyStore.mark_of(key)}
        lasts_s = LASTS_S
        if not identity.key_id:
            claims = {"issuer": self._oidc.issuer, "subject": identity.user_id,
                      "name": identity.name, "role": identity.role,
                      "settings": self._settings}  # fmt: skip
            lasts_s = self._oidc.lasts_s
        return self._cookie.begin({**claims, "nonce": secrets.token_hex(8)}, lasts_s, secure=secure)

    def end(self, *, secure: bool) -> tuple[bytes, bytes]:
        """The header that ends a login."""
        return self._cookie.end(secure=secure)

    def of(self, headers: Headers) -> Login | None:
        """The login that a request shows; ``None`` where there is none, or none any more.

        Raises:
            AuthUnavailableError: keys cannot be checked just now.
        """
        if (found := self._cookie.read(headers)) is None:
            return None
        value, claims = found
        if "key" in claims:
            try:
                identity = self._keys.identity_of(claims["key"], claims.get("mark", ""))
            except AuthenticationError:
                return None
        elif self._oidc.issuer and claims["settings"] == self._settings:
            identity = Identity(claims["name"], claims["role"], user_id=claims["subject"])
        else:
            return None
        return Login(identity, self._cookie.signature(f"form {value}"))


def login_cookie(secret: bytes) -> SignedCookie:
    """The cookie of logins to the console of the root that has this secret."""
    return SignedCookie(COOKIE, secret, _PURPOSE)


def _digest(oidc: OidcSettings) -> str:
    """Of what a login rests on: who vouches for people, and what they may do."""
    fields = oidc.model_dump(exclude={"client_secret", "label", "timeout_s", "roles"})
    return sha256_hex(
        canonical_json({**fields, "roles": [list(one) for one in oidc.roles.items()]})
    )


__all__ = ["COOKIE", "LASTS_S", "Login", "Logins", "login_cookie"]
