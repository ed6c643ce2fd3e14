"""Signed cookies with an expiry, without any state in the server."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping
from typing import Any

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
