"""The token in a request's headers."""

from __future__ import annotations

__all__ = ["MAX_TOKEN_CHARS", "token_from_headers"]

MAX_TOKEN_CHARS = 512
"""No token that Remit makes is longer; what is longer is ignored."""

_SCHEME = "bearer"


def token_from_headers(authorization: str | None, x_api_key: str | None) -> str | None:
    """The token as it was issued, or ``None`` without a usable one.

    ``Authorization: Bearer TOKEN`` (RFC 6750; the scheme in any case) counts before
    ``x-api-key: TOKEN``. A header that holds no usable token (another scheme, nothing behind it,
    space within, a character that is not printable ASCII, more than :data:`MAX_TOKEN_CHARS`) is
    passed over, and the other one is looked at.
    """
    if authorization is not None:
        scheme, _, rest = authorization.strip(" \t").partition(" ")
        if scheme.lower() == _SCHEME and (token := _clean(rest)):
            return token
    return _clean(x_api_key) if x_api_key is not None else None


def _clean(text: str) -> str | None:
    token = text.strip(" \t")
    if not 0 < len(token) <= MAX_TOKEN_CHARS:
        return None
    return token if token.isascii() and token.isprintable() and " " not in token else None
