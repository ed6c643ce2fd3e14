"""ID tokens: who signed one, for whom it is, and when."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Any

import jwt

from remit.kernel.settings import OidcSettings
from remit.server.console.oidc.errors import SignInError, failing

ALGORITHMS = ("RS256", "ES256", "EdDSA")

_LEEWAY_S = 60  # that clocks may differ by
_REQUIRED = ["iss", "sub", "aud", "exp", "iat"]
_AGAIN = "Sign in again."
_CLOCKS = f"The clocks may differ by more than {_LEEWAY_S} s: keep both right. {_AGAIN}"


def keys_of(document: Any) -> list[jwt.PyJWK]:
    """The keys of a JWK Set that ID tokens may be signed with.

    Raises:
        SignInError: it has none.
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
    """The key that a token says it was signed with; ``None`` where it is not among them.

    Raises:
        SignInError: the token cannot be read, or is signed by an algorithm that does not count.
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
    """The claims of a token that is the provider's, for this server and this sign-in, and in time.

    Raises:
        SignInError: it is not.
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
        raise SignInError(
            "The provider's answer belongs to another sign-in.", next_step=_AGAIN, status=400
        )
    return claims


__all__ = ["ALGORITHMS", "key_for", "keys_of", "verified"]
