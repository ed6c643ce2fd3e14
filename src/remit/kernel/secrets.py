"""Keys, tokens and passwords, found in text by their shape and redacted."""

from __future__ import annotations

import re

_REDACTED = "[secret]"
# Each alternative starts with something fixed and holds no nested repetition: time is linear.
_SECRETS = re.compile(
    r"(?P<scheme>\b(?:bearer|basic)\s+)[^\s\"',;]+"
    r"|(?P<header>\bx-api-key['\"]?\s*[:=]\s*['\"]?)[^\s\"',;]+"
    r"|(?<![a-z0-9])sk-[a-z0-9_-]{4,}"
    r"|\brat1\.[a-z0-9_.=-]+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?"
    r"|(?P<url>\b[a-z][a-z0-9+]*://[^\s/:@]{0,256}:)[^\s/@]+(?=@)",
    re.IGNORECASE,
)


def redact_secrets(text: str) -> str:
    """``text`` with ``[secret]`` for whatever looks like a key, a token or a password.

    Found are ``sk-…``, ``rat1.…``, what follows ``Bearer``, ``Basic`` or ``x-api-key:``, PEM
    private keys, and passwords in URLs.
    """
    return _SECRETS.sub(_redacted, text)


def _redacted(found: re.Match[str]) -> str:
    kept = found["scheme"] or found["header"] or found["url"] or ""
    return kept + _REDACTED
