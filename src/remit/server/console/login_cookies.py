"""Console logins: signed cookies that name a virtual key or a person, without a secret."""

from __future__ import annotations

import secrets

from remit.gateway.auth import AuthenticationError, Identity, KeyStore
from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.settings import OidcSettings
from remit.server.asgi import Headers
from remit.server.console.cookies import SignedCookie

COOKIE = "remit_console"
LASTS_S = 8 * 3600
"""The lifetime of a login by key; revoking or rotating the key ends the login at once."""

_PURPOSE = b"remit console login v1"


Login = tuple[Identity, str]
"""A valid login: its owner, and the token of its forms, which no page of another site knows.

The owner of a key has the key's present rights; a person has those that the provider gave them.
"""


class Logins:
    """Signed cookies of console logins.

    A key's cookie is valid for eight hours, and only while the key has the same secret. A person's
    cookie is valid for ``lasts_s`` of ``[server.oidc]``, and only while the settings of the
    provider stay unchanged.

    Args:
        secret: the root's random secret.
        keys: the virtual keys; a login has the current rights of its key.
        oidc: ``[server.oidc]``.
    """

    def __init__(self, secret: bytes, keys: KeyStore, oidc: OidcSettings) -> None:
        self._cookie = login_cookie(secret)
        self._keys = keys
        self._oidc = oidc
        self._settings = _digest(oidc)

    def begin(self, identity: Identity, *, secure: bool, key: str = "") -> tuple[bytes, bytes]:
        """Return the header (name, value) that sets a login cookie for a key, else for a person.

        A login by key lasts eight hours, a person's as ``[server.oidc]`` says.

        Args:
            identity: the caller; one with a key id logs in by that key.
            secure: True to send the cookie only over HTTPS.
            key: the secret of the key, of which the cookie holds a mark.
        """
        claims = {"key": identity.key_id, "mark": KeyStore.mark_of(key)}
        lasts_s = LASTS_S
        if not identity.key_id:
            claims = {"issuer": self._oidc.issuer, "subject": identity.user_id,
                      "name": identity.name, "role": identity.role, "team": identity.team_id,
                      "settings": self._settings}  # fmt: skip
            lasts_s = self._oidc.lasts_s
        return self._cookie.begin({**claims, "nonce": secrets.token_hex(8)}, lasts_s, secure=secure)

    def end(self, *, secure: bool) -> tuple[bytes, bytes]:
        """Return the header that deletes the login cookie, as name and value.

        Args:
            secure: True if the browser uses HTTPS.
        """
        return self._cookie.end(secure=secure)

    def of(self, headers: Headers) -> Login | None:
        """Return the login of a request: its owner, and the token that the forms must contain.

        Args:
            headers: headers of the request, names in lower case.

        Returns:
            ``None`` if the cookie is missing, expired or invalid, its key ended, or the settings of
            the provider changed.

        Raises:
            AuthUnavailableError: keys cannot be checked now.
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
            identity = Identity(
                claims["name"], claims["role"], user_id=claims["subject"], team_id=claims["team"]
            )
        else:
            return None
        return identity, self._cookie.signature(f"form {value}")


def login_cookie(secret: bytes) -> SignedCookie:
    """Return the login cookie of the root with this secret.

    Args:
        secret: secret of the root, from which the cookie's key is derived.
    """
    return SignedCookie(COOKIE, secret, _PURPOSE)


def _digest(oidc: OidcSettings) -> str:
    """Return a digest of the settings that a person's login depends on."""
    named = {"issuer", "client_id", "public_url", "scopes", "name_claim", "role_claim", "lasts_s"}
    fields = oidc.model_dump(include=named)
    ordered = {name: [*getattr(oidc, name).items()] for name in ("roles", "teams")}
    return sha256_hex(canonical_json({**fields, **ordered}))
