"""Signed cookies with an expiry, without state in the server, and the console's logins."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Mapping
from typing import Any

from remit.gateway.auth import AuthenticationError, Identity, KeyStore
from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.settings import OidcSettings
from remit.server.asgi import Headers

_VALUE = re.compile(rb"[\w-]{1,4000}\.[\w-]{43}")


class SignedCookie:
    """A kind of signed cookie; the value is base64url(JSON), a dot and base64url(HMAC-SHA256).

    Args:
        name: beginning of the cookie's name; a suffix of the root follows.
        secret: the root's random secret.
        purpose: separates kinds of cookies: a cookie of another purpose does not verify.
    """

    def __init__(self, name: str, secret: bytes, purpose: bytes) -> None:
        self._secret = hmac.digest(secret, purpose, hashlib.sha256)
        # Servers on one host share its cookies, whatever their ports: each root has its own name.
        self._name = f"{name}_{self.signature('name of the cookie')[:8]}"

    def begin(
        self, claims: Mapping[str, Any], lasts_s: int, *, secure: bool
    ) -> tuple[bytes, bytes]:
        """Return the header that sets the cookie, as name and value.

        The cookie is signed but not encrypted, and scripts cannot read it (``HttpOnly``). The claim
        ``until``, the Unix time of the expiry, is added.

        Args:
            claims: JSON data to store in the cookie.
            lasts_s: lifetime, in seconds.
            secure: True to send the cookie only over HTTPS.
        """
        until = min(int(time.time()) + lasts_s, 2**53)
        signed = _text(json.dumps({**claims, "until": until}).encode())
        return self._header(f"{signed}.{self.signature(signed)}", lasts_s, secure)

    def end(self, *, secure: bool) -> tuple[bytes, bytes]:
        """Return the header that deletes the cookie in the browser, as name and value.

        Args:
            secure: True if the browser uses HTTPS.
        """
        return self._header("", 0, secure)

    def read(self, headers: Headers) -> tuple[str, Mapping[str, Any]] | None:
        """Return the cookie's value and claims; ``None`` if missing, forged or expired.

        The claims are those of :meth:`begin`, with ``until``.

        Args:
            headers: headers of the request.
        """
        value = self._value(headers)
        signed, _, signature = value.rpartition(".")
        if not signed or not hmac.compare_digest(self.signature(signed), signature):
            return None
        claims = json.loads(base64.urlsafe_b64decode(signed + "=" * (-len(signed) % 4)))
        return (value, claims) if time.time() < claims["until"] else None

    def signature(self, text: str) -> str:
        """Return the signature of a text, base64url, with the secret of this kind of cookie.

        Args:
            text: the signed part of the cookie's value.
        """
        return _text(hmac.digest(self._secret, text.encode(), hashlib.sha256))

    def _value(self, headers: Headers) -> str:
        """Return the value of this cookie; empty if missing or malformed."""
        wanted = self._name.encode()
        for header, given in headers:
            if header == b"cookie":
                for one in given.split(b";"):
                    name, _, value = one.strip().partition(b"=")
                    if name == wanted and _VALUE.fullmatch(value):
                        return value.decode("ascii")
        return ""

    def _header(self, value: str, lasts_s: int, secure: bool) -> tuple[bytes, bytes]:
        parts = [f"{self._name}={value}", "Path=/", f"Max-Age={lasts_s}", "HttpOnly",
                 "SameSite=Lax"]  # fmt: skip
        if secure:
            parts.append("Secure")
        return b"set-cookie", "; ".join(parts).encode()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


COOKIE = "remit_console"
LASTS_S = 8 * 3600
"""The lifetime of a login by key; revoking or rotating the key ends the login at once."""

_PURPOSE = b"remit console login v1"


Login = tuple[Identity, str]
"""A valid login: its owner, and the token of its forms, which no page of another site knows.

The owner of a key has the key's present rights. A person has those that the provider gave them at
sign-in.
"""


class Logins:
    """Signed cookies of console logins.

    A key's cookie is valid for eight hours, and only while the key has the same secret. A person's
    cookie is valid for ``lasts_s`` of ``[server.oidc]``, and only while the settings of the
    provider stay unchanged. The cookie holds the person's name, role and team of the sign-in: a
    role that the provider withdraws later remains until then. Nothing is stored: :meth:`end` does
    not revoke a copied cookie.

    Args:
        secret: the root's random secret.
        keys: the virtual keys; a login by key has the current rights of the key.
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
