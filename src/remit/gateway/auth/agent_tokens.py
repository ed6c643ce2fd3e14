"""Signed tokens with which an agent calls in its own name for a limited time (``auth_token``).

The signing secret is a file of the root and never in the database.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter

from remit.gateway.auth.identity import AuthenticationError, AuthProvider, Identity
from remit.gateway.auth.key_store import KeyStore
from remit.gateway.auth.virtual_key import check_text, items_of, time_text
from remit.kernel.canonical import canonical_json
from remit.kernel.durable_files import write_new
from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.root import Root

CREDENTIAL_HEADERS = (b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key")
"""Request headers that can hold a token, in the order of :func:`token_from_headers`."""

_OWN_PREFIXES = ("sk-remit-", "rat1.")
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

    Immutable. Absent texts are empty.

    Attributes:
        agent_id: the agent in whose name the bearer calls.
        work_order_id: the only work order that the token is valid for; empty for any.
        session_id: the only session that the token is valid for; empty for any.
        tier: the only tier that the token is valid for; empty for any.
        models: as in :class:`~remit.gateway.auth.Identity`.
        key_id: the virtual key for which the agent acts; empty without one.
        issued_ms: time of issue, in milliseconds since 1970.
        expires_ms: the token is refused from this time on, in milliseconds since 1970.
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
    """Issues and checks tokens; nothing is stored.

    A token is ``rat1.`` + base64url(RFC 8785 JSON of the claims) + ``.`` + base64url(HMAC-SHA256
    over everything before that dot), without padding and at most 512 characters long. Everybody
    with the secret can issue tokens.

    Args:
        secret: at least 32 random bytes, see :func:`remit.gateway.auth.agent_secret`.
        now_s: returns the time in seconds since 1970. Several machines need one clock:
            :attr:`KeyStore.now_s`.

    Raises:
        InvalidInputError: the secret is too short.
    """

    def __init__(self, secret: bytes, now_s: Callable[[], float] = time.time) -> None:
        if len(secret) < _SECRET_BYTES:
            raise InvalidInputError(f"A token secret must have at least {_SECRET_BYTES} bytes.")
        self._secret = secret
        self._now_s = now_s

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
        """Return a token for ``agent_id``; the other claims are as in :class:`AgentClaims`.

        Nothing is stored, so a token cannot be revoked by itself.

        Args:
            agent_id: the agent that will call.
            work_order_id: the only work order; empty for any.
            session_id: the only session; empty for any.
            tier: the only tier; empty for any.
            models: the allowed models or patterns; empty for all.
            key_id: the virtual key for which the agent acts; empty without one. The key is not
                checked.
            ttl_s: seconds for which the token is valid, above 0.

        Raises:
            InvalidInputError: a value cannot be used, or the token would exceed 512 characters.
        """
        now = self._now_s()
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
        """Return the claims of a valid token.

        The key that it names is not checked.

        Args:
            token: the token; None if the request has none.

        Raises:
            AuthenticationError: the token is missing, malformed, signed with another secret, or
                expired. The message does not say which.
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
        try:  # An authentic payload of another shape was signed for another purpose.
            data = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
            claims = _claims.validate_json(data)
        except ValueError as error:
            raise _refused() from error
        if self._now_s() * 1000 >= claims.expires_ms:
            raise _refused()
        return claims

    def _signature(self, signed: str) -> str:
        return _encode(hmac.digest(self._secret, signed.encode("ascii"), hashlib.sha256))


class AgentTokenProvider:
    """Authenticates agents by their tokens.

    :meth:`authenticate` returns the identity of a token's agent. The object stores nothing and can
    be used from several threads.

    Args:
        tokens: checks the tokens.
        keys: finds virtual keys. A token issued for a key ends when the key is revoked, expires or
            is rotated, and allows no more than the key. Without ``keys`` such tokens are refused.
        others: authenticates all tokens that are not agent tokens (``rat1.…``); None to refuse
            them.
    """

    def __init__(
        self,
        tokens: AgentTokens,
        keys: KeyStore | None = None,
        others: AuthProvider | None = None,
    ) -> None:
        self._tokens = tokens
        self._keys = keys
        self._others = others

    def authenticate(self, token: str | None) -> Identity:
        """Return the identity of the agent that the token names, or the owner of another token.

        An agent's identity has the role ``agent``, is limited to the token's agent, session, order,
        tier and models, and acts within its key. Reads only memory.

        Args:
            token: the token; None if the request has none.

        Raises:
            AuthenticationError: the token, or the key behind it, is not valid.
            AuthUnavailableError: the key cannot be checked.
        """
        if self._others is not None and not (isinstance(token, str) and token.startswith(_KIND)):
            return self._others.authenticate(token)
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
            pass_through=key.pass_through if key else (),
            pass_through_unpriced=key.pass_through_unpriced if key else (),
            expires_at=time_text(datetime.fromtimestamp(claims.expires_ms / 1000, UTC)),
            session_id=claims.session_id,
            work_order_id=claims.work_order_id,
            within=key,
        )


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def agent_secret(root: Root) -> bytes:
    """Return the 32 secret bytes in a root's ``HOT/keys/agent.key``; create the file if it is
    missing.

    The file contains the bytes in hex, with mode 0600. If several processes create it at the same
    time, all get the same secret. Deleting the file ends every agent token.

    Args:
        root: the root.

    Raises:
        RemitError: the file is readable by others, damaged, or cannot be read or created.
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


def token_from_headers(authorization: str | None, *api_keys: str | None) -> str | None:
    """Return the token that a request shows; None without a usable one.

    A token of Remit counts before any other, because clients send a placeholder in one header and
    the key in another. Otherwise the first usable one counts. A value is not usable if it has
    another scheme than ``Bearer`` (RFC 6750, in any case), a space, a character that is not
    printable ASCII, or more than :data:`MAX_TOKEN_CHARS` characters.

    Args:
        authorization: the header ``authorization``; None without it.
        api_keys: the other headers of :data:`CREDENTIAL_HEADERS`, in order.
    """
    scheme, _, rest = (authorization or "").strip(" \t").partition(" ")
    shown = [rest if scheme.lower() == "bearer" else "", *(each or "" for each in api_keys)]
    tokens = [token for text in shown if (token := _clean(text))]
    own = [token for token in tokens if token.startswith(_OWN_PREFIXES)]
    return next(iter([*own, *tokens]), None)


def _clean(text: str) -> str | None:
    token = text.strip(" \t")
    if not 0 < len(token) <= MAX_TOKEN_CHARS:
        return None
    return token if token.isascii() and token.isprintable() and " " not in token else None


def _refused() -> AuthenticationError:
    return AuthenticationError(
        "The agent token is unknown, expired or malformed.", next_step="Issue a new token."
    )
