"""Signed tokens by which an agent calls in its own name, for a time (``auth_token``).

The secret that signs them is a file of the root, never in the database.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter

from remit.gateway.auth.errors import AuthenticationError
from remit.gateway.auth.identity import AuthProvider, Identity
from remit.gateway.auth.keys import KeyStore
from remit.gateway.auth.virtual_key import check_text, items_of, time_text
from remit.kernel.canonical import canonical_json
from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.files import write_new
from remit.kernel.root import Root

MAX_TOKEN_CHARS = 512
"""No token that Remit makes is longer; what is longer is ignored."""

_KIND = "rat1."
_SECRET_BYTES = 32
_HEX = re.compile(r"[0-9a-f]{64}\n?", re.ASCII)
_END_MS = 253_402_300_800_000  # the year 10000: no calendar goes further

_Moment = Annotated[int, Field(ge=0, lt=_END_MS)]


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

    # With long names in the token there would be less room for models.
    agent_id: Annotated[str, Field(alias="sub", min_length=1)]
    work_order_id: Annotated[str, Field(alias="wo")] = ""
    session_id: Annotated[str, Field(alias="ses")] = ""
    tier: str = ""
    models: tuple[str, ...] = ()
    key_id: Annotated[str, Field(alias="key")] = ""
    issued_ms: Annotated[_Moment, Field(alias="iat")] = 0
    expires_ms: Annotated[_Moment, Field(alias="exp")] = 0

    __pydantic_config__ = ConfigDict(strict=True)


_claims = TypeAdapter(AgentClaims)


class AgentTokens:
    """Makes tokens and checks them; nothing is stored.

    A token is ``rat1.`` + base64url(RFC 8785 JSON of the claims) + ``.`` + base64url(HMAC-SHA256
    over all before that dot), without padding, at most 512
    characters long.

    Args:
        secret: at least 32 random bytes, see :func:`remit.gateway.auth.agent_secret`.

    Raises:
        InvalidInputError: the secret is too short.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) < _SECRET_BYTES:
            raise InvalidInputError(f"A token secret needs at least {_SECRET_BYTES} bytes.")
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
            raise InvalidInputError("The lifetime of a token must be a number of seconds above 0.")
        allowed = items_of("models", models)
        check_text("agent_id", agent_id)
        for text in (work_order_id, session_id, tier, key_id, *allowed):
            if text != "" or text in allowed:
                check_text("token's claim", text)
        claims = AgentClaims(
            agent_id, work_order_id, session_id, tier, allowed, key_id, int(now * 1000),
            int((now + ttl_s) * 1000),
        )  # fmt: skip
        shown = _claims.dump_python(claims, by_alias=True, exclude_defaults=True)
        signed = _KIND + _encode(canonical_json(shown))
        token = f"{signed}.{self._signature(signed)}"
        if len(token) > MAX_TOKEN_CHARS:
            raise InvalidInputError(
                f"The token would be longer than {MAX_TOKEN_CHARS} characters.",
                next_step="List fewer models, or use patterns such as gpt-4o*.",
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
        encoded = signed[len(_KIND) :]
        try:  # another shape means that the secret signed something else
            data = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
            claims = _claims.validate_json(data)
        except ValueError as error:
            raise _refused() from error
        if time.time() * 1000 >= claims.expires_ms:
            raise _refused()
        return claims

    def _signature(self, signed: str) -> str:
        return _encode(hmac.digest(self._secret, signed.encode("ascii"), hashlib.sha256))


class AgentTokenProvider:
    """Authenticates agents by their tokens.

    Args:
        tokens: checks them.
        keys: finds virtual keys. With it a token made on behalf of a key ends when that key does
            or is rotated, and allows no more than the key does; without it such tokens are refused.
    """

    def __init__(self, tokens: AgentTokens, keys: KeyStore | None = None) -> None:
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
            key = self._keys.identity_of(claims.key_id, since_ms=claims.issued_ms)
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


def agent_secret(root: Root) -> bytes:
    """The 32 secret bytes of a root's ``HOT/keys/agent.key``; made when there are none.

    The file holds them in hex, mode 0600. Of several processes that make it at the same time one
    wins, and all get the same secret. Deleting it ends every agent token.

    Raises:
        RemitError: the file is readable by others, damaged, or cannot be read or made.
    """
    path = root.keys / "agent.key"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(FileExistsError):
                write_new(path, f"{secrets.token_hex(_SECRET_BYTES)}\n".encode(), 0o600)
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise RemitError(
                    f"Other users can read the agent key {path}.", next_step=f"chmod 600 {path}"
                )
            text = file.read().decode("ascii", "replace")
    except OSError as error:
        raise RemitError(
            f"The agent key {path} cannot be read or created: {error.strerror or error}.",
            next_step="Check the permissions of that directory.",
        ) from error
    if not _HEX.fullmatch(text):
        raise RemitError(
            f"The agent key {path} is damaged: it is not 64 hex digits.",
            next_step="Keep a copy of the file, and restore it from a backup. Without a backup, "
            "move the file out of the root: Remit then creates a new key, and all "
            "agent tokens become invalid.",
        )
    return bytes.fromhex(text.strip())


def token_from_headers(authorization: str | None, x_api_key: str | None) -> str | None:
    """The token as it was issued, or ``None`` without a usable one.

    ``Authorization: Bearer TOKEN`` (RFC 6750; the scheme in any case) counts before
    ``x-api-key: TOKEN``. A header that holds no usable token (another scheme, nothing behind it,
    space within, a character that is not printable ASCII, more than :data:`MAX_TOKEN_CHARS`) is
    passed over, and the other one is looked at.
    """
    if authorization is not None:
        scheme, _, rest = authorization.strip(" \t").partition(" ")
        if scheme.lower() == "bearer" and (token := _clean(rest)):
            return token
    return _clean(x_api_key) if x_api_key is not None else None


def _clean(text: str) -> str | None:
    token = text.strip(" \t")
    if not 0 < len(token) <= MAX_TOKEN_CHARS:
        return None
    return token if token.isascii() and token.isprintable() and " " not in token else None


def _refused() -> AuthenticationError:
    return AuthenticationError(
        "The agent token is unknown, expired or malformed.", next_step="Issue a new token."
    )
