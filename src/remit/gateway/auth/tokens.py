"""Signed tokens by which an agent calls in its own name, for a time (SPEC 4.1, ``auth_token``)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import orjson

from remit.gateway.auth.errors import AuthenticationError
from remit.gateway.auth.headers import MAX_TOKEN_CHARS
from remit.gateway.auth.identity import AuthProvider, Identity
from remit.gateway.auth.virtual_key import check_text, items_of, time_text
from remit.kernel.canonical import canonical_json
from remit.kernel.errors import InvalidInputError

__all__ = ["AgentClaims", "AgentTokenProvider", "AgentTokens", "ByTokenKind", "KeyIdentities"]

_KIND = "rat1."
_LEAST_SECRET = 32
_END_MS = 253_402_300_800_000  # the year 10000: no calendar goes further
# Claims by their short names in the token: with long ones there would be less room for models.
_TEXTS = {"sub": "agent_id", "wo": "work_order_id", "ses": "session_id",
          "tier": "tier", "key": "key_id"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AgentClaims:
    """The claims of a token.

    Attributes:
        agent_id: in whose name its bearer calls.
        work_order_id: the order it was made for; empty for none, as below.
        session_id: the session it was made for.
        tier: the tier it was made for.
        models: as in :class:`~remit.gateway.auth.Identity`.
        key_id: the virtual key on whose behalf it was made.
        issued_ms: when, in milliseconds since 1970.
        expires_ms: from when on it is refused.
    """

    agent_id: str
    work_order_id: str = ""
    session_id: str = ""
    tier: str = ""
    models: tuple[str, ...] = ()
    key_id: str = ""
    issued_ms: int = 0
    expires_ms: int = 0


class AgentTokens:
    """Makes tokens and checks them; nothing is stored.

    A token is ``rat1.`` + base64url(RFC 8785 JSON of the claims) + ``.`` + base64url(HMAC-SHA256
    over all before that dot), without padding, at most
    :data:`~remit.gateway.auth.headers.MAX_TOKEN_CHARS` long.

    Args:
        secret: at least 32 random bytes, see :func:`remit.gateway.auth.agent_secret`.

    Raises:
        InvalidInputError: the secret is too short.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) < _LEAST_SECRET:
            raise InvalidInputError(f"A token secret needs at least {_LEAST_SECRET} bytes.")
        self._secret = secret

    def issue(
        self,
        agent_id: str,
        *,
        work_order_id: str = "",
        session_id: str = "",
        tier: str = "",
        models: Sequence[str] = (),
        key_id: str = "",
        ttl_s: float,
    ) -> str:
        """A token for ``agent_id``; the other values as in :class:`AgentClaims`.

        Args:
            ttl_s: seconds for which it is valid, above 0.

        Raises:
            InvalidInputError: a value cannot be used, or the token would be too long.
        """
        now = time.time()
        if not ttl_s > 0 or not (now + ttl_s) * 1000 < _END_MS:
            raise InvalidInputError("A token's time to live is not a number of seconds above 0.")
        given = {"sub": agent_id, "wo": work_order_id, "ses": session_id,
                 "tier": tier, "key": key_id}  # fmt: skip
        claims: dict[str, Any] = {name: value for name, value in given.items() if value != ""}
        if allowed := items_of("models", models):
            claims["models"] = [*allowed]
        check_text("agent_id", agent_id)
        for text in (*claims.values(), *allowed):
            if not isinstance(text, list):
                check_text("token's claim", text)
        claims |= {"iat": int(now * 1000), "exp": int((now + ttl_s) * 1000)}
        signed = _KIND + _encode(canonical_json(claims))
        token = f"{signed}.{self._signature(signed)}"
        if len(token) > MAX_TOKEN_CHARS:
            raise InvalidInputError(
                f"The token would be longer than {MAX_TOKEN_CHARS} characters.",
                next_step="Name fewer models, or use patterns such as gpt-4o*.",
            )
        return token

    def verify(self, token: str | None) -> AgentClaims:
        """The claims of a token that this secret signed and that has not expired.

        Raises:
            AuthenticationError: malformed, signed by another, or expired; which is not said.
        """
        if (
            not isinstance(token, str)
            or len(token) > MAX_TOKEN_CHARS
            or not token.isascii()
            or not token.startswith(_KIND)
        ):
            raise _refused()
        signed, _, signature = token.rpartition(".")
        # As text: several base64 texts decode to the same bytes, and only one was issued.
        if not hmac.compare_digest(self._signature(signed), signature):
            raise _refused()
        claims = _claims(signed[len(_KIND) :])
        if time.time() * 1000 >= claims.expires_ms:
            raise _refused()
        return claims

    def _signature(self, signed: str) -> str:
        return _encode(hmac.digest(self._secret, signed.encode("ascii"), hashlib.sha256))


class KeyIdentities(Protocol):
    """Finds virtual keys by their id: :class:`~remit.gateway.auth.KeyStore`."""

    def identity_of(self, key_id: str) -> Identity:
        """The owner of a valid key, else :class:`AuthenticationError`."""
        ...


class AgentTokenProvider:
    """Authenticates agents by their tokens.

    Args:
        tokens: checks them.
        keys: finds virtual keys. With it a token made on behalf of a key ends with that
            key, and allows no more than the key does; without it such tokens are refused.
    """

    def __init__(self, tokens: AgentTokens, keys: KeyIdentities | None = None) -> None:
        self._tokens = tokens
        self._keys = keys

    def authenticate(self, token: str | None) -> Identity:
        """The agent that the token names.

        Raises:
            AuthenticationError: the token, or the key behind it, is not valid.
            AuthUnavailableError: the key cannot be checked.
        """
        claims = self._tokens.verify(token)
        key: Identity | None = None
        if claims.key_id:
            if self._keys is None:
                raise _refused()
            key = self._keys.identity_of(claims.key_id)
        return Identity(
            name=claims.agent_id,
            role="agent",
            key_id=claims.key_id,
            user_id=key.user_id if key else "",
            team_id=key.team_id if key else "",
            organisation_id=key.organisation_id if key else "",
            models=claims.models,
            agents=(claims.agent_id,),
            tiers=(claims.tier,) if claims.tier else (),
            expires_at=time_text(datetime.fromtimestamp(claims.expires_ms / 1000, UTC)),
            session_id=claims.session_id,
            work_order_id=claims.work_order_id,
            within=key,
        )


class ByTokenKind:
    """Sends agent tokens (``rat1.…``) to one provider and everything else to another.

    Args:
        agents: checks agent tokens.
        keys: checks virtual keys, and calls without a token.
    """

    def __init__(self, agents: AuthProvider, keys: AuthProvider) -> None:
        self._agents = agents
        self._keys = keys

    def authenticate(self, token: str | None) -> Identity:
        """The identity behind ``token``; raises what the provider raises."""
        if isinstance(token, str) and token.startswith(_KIND):
            return self._agents.authenticate(token)
        return self._keys.authenticate(token)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _claims(encoded: str) -> AgentClaims:
    """Claims that were signed; another shape means that the secret signed something else."""
    try:
        read = orjson.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
        texts = {field: read.get(name, "") for name, field in _TEXTS.items()}
        models = read.get("models", [])
        times = read["iat"], read["exp"]
    except (binascii.Error, ValueError, AttributeError, KeyError) as error:
        raise _refused() from error
    if (
        type(models) is not list
        or not all(type(text) is str for text in (*texts.values(), *models))
        or not all(type(moment) is int and 0 <= moment < _END_MS for moment in times)
        or not texts["agent_id"]
    ):
        raise _refused()
    return AgentClaims(**texts, models=tuple(models), issued_ms=times[0], expires_ms=times[1])


def _refused() -> AuthenticationError:
    return AuthenticationError(
        "The agent token is unknown, expired or garbled.", next_step="Issue another."
    )
