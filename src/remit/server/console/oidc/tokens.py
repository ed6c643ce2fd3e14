"""ID tokens: their keys, signatures and claims."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Any

import jwt

from remit.kernel.settings import OidcSettings
from remit.server.console.oidc.errors import AGAIN, failing, rejected

ALGORITHMS = ("RS256", "ES256", "EdDSA")

_LEEWAY_S = 60  # The largest difference of clocks.
_REQUIRED = ["iss", "sub", "aud", "exp", "iat"]
_CLOCKS = f"The clocks may differ by more than {_LEEWAY_S} s: keep both right. {AGAIN}"


def keys_of(document: Any) -> list[jwt.PyJWK]:
    """Return the keys of a JWK Set that may sign ID tokens.

    Raises:
        SignInError: the set cannot be read.
    """
    try:
        found = jwt.PyJWKSet.from_dict(document).keys
    except (jwt.PyJWTError, AttributeError, TypeError, ValueError) as error:
        raise failing("has no keys that can be read") from error
    return [
        key
        for key in found
        if key.algorithm_name in ALGORITHMS and key.public_key_use in (None, "sig")
    ]


def key_for(token: str, keys: Sequence[jwt.PyJWK]) -> jwt.PyJWK | None:
    """Return the key that a token names; ``None`` if ``keys`` lack it.

    Raises:
        SignInError: the token cannot be read, or its algorithm is not allowed.
    """
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise failing("sent an ID token that cannot be read") from error
    if header.get("alg") not in ALGORITHMS:
        raise failing(
            "signs ID tokens by an algorithm that does not count here",
            f"Have it sign with one of {', '.join(ALGORITHMS)}.",
        )
    usable = [key for key in keys if key.algorithm_name == header["alg"]]
    if "kid" not in header:
        return usable[0] if len(usable) == 1 else None
    return next((key for key in usable if key.key_id == header["kid"]), None)


def verified(token: str, key: jwt.PyJWK, settings: OidcSettings, nonce: str) -> dict[str, Any]:
    """Return the claims of a token after all checks.

    Raises:
        SignInError: the token is not the provider's, is for another client or sign-in, or is not
            valid now.
    """
    try:
        claims: dict[str, Any] = jwt.decode(
            token, key, list(ALGORITHMS), audience=settings.client_id, issuer=settings.issuer,
            leeway=_LEEWAY_S, options={"require": _REQUIRED, "enforce_minimum_key_length": True},
        )  # fmt: skip
    except jwt.ExpiredSignatureError as error:
        raise failing("sent an ID token that had ended already", _CLOCKS) from error
    except jwt.ImmatureSignatureError as error:
        raise failing("sent an ID token of the future", _CLOCKS) from error
    except jwt.InvalidAudienceError as error:
        raise failing("sent an ID token for another client") from error
    except jwt.InvalidIssuerError as error:
        raise failing("sent an ID token of another issuer") from error
    except (jwt.PyJWTError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise failing("sent an ID token that does not hold") from error
    several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    if claims.get("azp", None if several else settings.client_id) != settings.client_id:
        raise failing("sent an ID token for another client")
    if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise rejected("The provider's answer belongs to another sign-in.")
    return claims


__all__ = ["ALGORITHMS", "key_for", "keys_of", "verified"]
