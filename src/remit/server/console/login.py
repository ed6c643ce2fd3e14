"""Who is signed in: a signed cookie that names a virtual key, and never holds it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import time
from typing import NamedTuple

from remit.gateway.auth import AuthenticationError, Identity, KeyStore
from remit.server.replies import Headers

LASTS_S = 8 * 3600
"""For how long a login holds; revoking its key ends it at once."""

_VALUE = re.compile(rb"[\w-]{1,400}\.[\w-]{43}")
_PURPOSE = b"remit console login v1"


class Login(NamedTuple):
    """A valid login.

    Attributes:
        identity: the key's owner, with the rights that the key has now.
        token: for forms: a page of another site does not know it.
    """

    identity: Identity
    token: str


class Logins:
    """Makes and checks the cookies of logins; nothing is stored.

    A cookie is base64url(JSON ``{"key", "until", "nonce"}``) + ``.`` + base64url(HMAC-SHA256).

    Args:
        secret: of the root, random.
        keys: says what a key may do now, and whether it was revoked.
    """

    def __init__(self, secret: bytes, keys: KeyStore) -> None:
        self._secret = hmac.digest(secret, _PURPOSE, hashlib.sha256)
        self._keys = keys
        # Servers on one host share its cookies, whatever their ports: each root has its own name.
        self._name = f"remit_console_{self._signature('name of the cookie')[:8]}"

    def begin(self, identity: Identity) -> str:
        """The value of a new cookie for the owner of a key."""
        until = min(int(time.time()) + LASTS_S, 2**53)
        claims = {"key": identity.key_id, "until": until, "nonce": secrets.token_hex(8)}
        signed = _text(json.dumps(claims).encode())
        return f"{signed}.{self._signature(signed)}"

    def of(self, headers: Headers) -> Login | None:
        """The login that a request shows; ``None`` where there is none, or none any more.

        Raises:
            AuthUnavailableError: keys cannot be checked just now.
        """
        value = self._cookie(headers)
        signed, _, signature = value.rpartition(".")
        if not signed or not hmac.compare_digest(self._signature(signed), signature):
            return None
        claims = json.loads(base64.urlsafe_b64decode(signed + "=" * (-len(signed) % 4)))
        if time.time() >= claims["until"]:
            return None
        try:
            identity = self._keys.identity_of(claims["key"])
        except AuthenticationError:
            return None
        return Login(identity, self.form_token(value))

    def form_token(self, cookie: str) -> str:
        """What a form of this login has to send with it."""
        return self._signature(f"form {cookie}")

    def _signature(self, signed: str) -> str:
        return _text(hmac.digest(self._secret, signed.encode(), hashlib.sha256))

    def set_cookie(self, value: str, *, secure: bool) -> tuple[bytes, bytes]:
        """The header that begins a login, or with an empty value ends it."""
        lasts = LASTS_S if value else 0
        parts = [f"{self._name}={value}", "Path=/", f"Max-Age={lasts}", "HttpOnly", "SameSite=Lax"]
        if secure:
            parts.append("Secure")
        return b"set-cookie", "; ".join(parts).encode()

    def _cookie(self, headers: Headers) -> str:
        """The value of our cookie, whatever others of this host look like."""
        for header, given in headers:
            if header == b"cookie":
                for one in given.split(b";"):
                    name, _, value = one.strip().partition(b"=")
                    if name == self._name.encode() and _VALUE.fullmatch(value):
                        return value.decode("ascii")
        return ""


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


__all__ = ["LASTS_S", "Login", "Logins"]
