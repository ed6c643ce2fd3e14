"""Sign-in to the console with an account at an OpenID Connect provider (extra ``oidc``).

A sign-in is the Authorization Code Flow with PKCE:

1. :meth:`SignIn.begin` sends the browser to the provider. A signed cookie holds the state, so that
   no other browser can finish the sign-in.
2. The provider sends the browser back with a code.
3. :meth:`SignIn.finish` checks the state, redeems the code for an ID token, and verifies the
   token's signature and claims (PyJWT).
4. :func:`person_of` maps the claims to a person and a role.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import aiohttp
import jwt
import orjson

from remit.gateway.auth import Identity
from remit.kernel.errors import RemitError
from remit.kernel.settings import OidcSettings
from remit.server.asgi import Headers
from remit.server.console.cookies import SignedCookie

ALGORITHMS = ("RS256", "ES256", "EdDSA")

_SIGN_IN_AGAIN = "Sign in again."
_LATER = "Try again later, or ask the operator of this server."
_MAX_SIGN_IN_S = 600  # Longest time from the link to the callback.
_MAX_WAITING = 50
_MAX_STATES = 10_000
_MAX_BYTES = 256 * 1024
_CACHE_S, _RETRY_S = 3600.0, 2.0  # Lifetime of the provider's documents, and of a failure.
_LEEWAY_S = 60  # Largest difference of clocks.
_CLOCKS = f"The clocks may differ by at most {_LEEWAY_S} s; correct them. {_SIGN_IN_AGAIN}"
_COOKIE, _PURPOSE = "remit_console_oidc", b"remit console oidc v1"
_ERROR_CODE = re.compile(r"[a-z_]{1,64}")
_AUTH_METHODS = ("client_secret_basic", "client_secret_post")
_INVALID_TOKEN = jwt.PyJWTError, TypeError, ValueError, OverflowError, RecursionError
_TOKEN_PROBLEMS: dict[type[BaseException], tuple[str, str]] = {
    jwt.ExpiredSignatureError: ("sent an expired ID token", _CLOCKS),
    jwt.ImmatureSignatureError: ("sent an ID token that is not valid yet", _CLOCKS),
    jwt.InvalidAudienceError: ("sent an ID token for another client", _LATER),
    jwt.InvalidIssuerError: ("sent an ID token from another issuer", _LATER),
}


class SignInError(RemitError):
    """A refused sign-in; the message names no person and contains no secret.

    Args:
        message: the refusal, for the person.
        next_step: advice; empty for none.

    Attributes:
        status: HTTP status of the page that shows the error.
        is_known: True if the same failure of the provider was raised before.
    """

    def __init__(
        self, message: str, *, next_step: str = "", status: int = 403, is_known: bool = False
    ) -> None:
        super().__init__(message, next_step=next_step)
        self.status = status
        self.is_known = is_known


class SignIn:
    """Sign-ins with an OpenID Connect provider.

    The provider's discovery document and keys are cached for an hour, a failure to read them for
    two seconds. A token with an unknown key makes both be read again. At most 50 browsers wait for
    the provider at a time. All methods run in one event loop.

    Args:
        settings: ``[server.oidc]``.
        secret: the root's random secret, which signs the cookie.
        callback: path to which the provider sends browsers back.

    Attributes:
        is_secure: True if browsers use HTTPS.
        label: the provider's name on the login page.
    """

    def __init__(self, settings: OidcSettings, secret: bytes, *, callback: str) -> None:
        self._settings = settings
        self._redirect_uri = f"{settings.public_url.rstrip('/')}{callback}"
        self.is_secure = settings.public_url.startswith("https://")
        self.label = settings.label or urlsplit(settings.issuer).netloc
        # No other host of the domain can set a cookie with this prefix.
        name = f"__Host-{_COOKIE}" if self.is_secure else _COOKIE
        self._cookie = SignedCookie(name, secret, _PURPOSE)
        self._lock = asyncio.Lock()
        self._document: dict[str, Any] | None = None
        self._expires_at = self._retry_at = 0.0
        self._failure: SignInError | None = None
        self._redeemed: dict[str, float] = {}
        self._waiting = 0

    async def begin(self, following: str) -> tuple[str, tuple[bytes, bytes]]:
        """Return the URL at the provider, and the cookie header of a new sign-in.

        The provider's discovery document is read if it is not cached. Nothing is recorded: state
        and verifier are in the signed cookie.

        Args:
            following: page of the console to show afterwards.

        Raises:
            SignInError: 502, the provider does not answer or cannot be used; 503, too many browsers
                are signing in.
        """
        async with self._place():
            document = await self._discover()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._redirect_uri,
            "scope": " ".join(self._settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge.rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        claims = {"state": state, "nonce": nonce, "verifier": verifier, "next": following}
        url = document["authorization_endpoint"]
        return (
            f"{url}{'&' if '?' in url else '?'}{urlencode(query)}",
            self._cookie.begin(claims, _MAX_SIGN_IN_S, secure=self.is_secure),
        )

    async def finish(self, query: Mapping[str, str], headers: Headers) -> tuple[Identity, str]:
        """Redeem the provider's code, and return the person who signed in and the page to show.

        A second attempt in this process is refused, after a failure too; in other processes the
        provider refuses it.

        Args:
            query: query of the callback.
            headers: headers of the request, with the cookie.

        Returns:
            The identity with name, role, team and user id, and the page that :meth:`begin` was
            given.

        Raises:
            SignInError: 400, the browser did not begin this sign-in, has finished it, or took more
                than ten minutes, or the answer is not the provider's; 403, the provider or the
                settings refuse the person; 502 and 503 as :meth:`begin`; 502 also for an ID token
                that is missing or not valid.
        """
        found = self._cookie.read(headers)
        if found is None:
            raise _rejected("No sign-in was started in this browser, or it has expired.")
        _, begun = found
        if not hmac.compare_digest(query.get("state", "").encode(), begun["state"].encode()):
            raise _rejected("This answer belongs to another sign-in.")
        self._redeem_state(begun["state"], begun["until"])
        if error := query.get("error", ""):
            why = error if _ERROR_CODE.fullmatch(error) else "an error"
            message = f"The provider did not sign you in: {why}."
            raise SignInError(message, next_step=_SIGN_IN_AGAIN)
        async with self._place():
            document = await self._discover()
            sends_issuer = document.get("authorization_response_iss_parameter_supported") is True
            issuer = query.get("iss", "" if sends_issuer else self._settings.issuer)
            if issuer != self._settings.issuer or not query.get("code"):
                raise _rejected("This answer did not come from the provider.")
            token = await self._redeem_code(document, query["code"], begun["verifier"])
            key = _key_of(token, document["keys"])
            if key is None:  # The provider may have new keys.
                document = await self._discover(outdated=document)
                key = _key_of(token, document["keys"])
        if key is None:
            raise _failing("signed an ID token with a key that it does not publish")
        claims = _verified(token, key, self._settings)
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), begun["nonce"].encode()):
            raise _rejected("The provider's answer belongs to another sign-in.")
        return person_of(claims, self._settings), begun["next"]

    def cookie_ended(self) -> tuple[bytes, bytes]:
        """Return the header that deletes the cookie of a sign-in, as name and value."""
        return self._cookie.end(secure=self.is_secure)

    def _redeem_state(self, state: str, until: float) -> None:
        """Mark a sign-in as finished; the provider refuses its code in other processes.

        Raises:
            SignInError: 400, the sign-in was finished before.
        """
        redeemed = self._redeemed
        if state in redeemed:
            raise _rejected("This sign-in was already used.")
        # The oldest sign-ins, which expire first, come first.
        while redeemed and (
            len(redeemed) >= _MAX_STATES or next(iter(redeemed.values())) < time.time()
        ):
            del redeemed[next(iter(redeemed))]
        redeemed[state] = until

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """Limit the browsers that wait for the provider; raise SignInError 503 above the limit."""
        if self._waiting >= _MAX_WAITING:
            message = "Too many people are signing in at once."
            raise SignInError(message, next_step=_SIGN_IN_AGAIN, status=503)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def _discover(self, *, outdated: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the discovery document, with ``keys`` and ``auth_method`` added.

        Args:
            outdated: the document that must be read again.

        Raises:
            SignInError: 502, a document cannot be read or used, or names another issuer.
        """
        async with self._lock:
            now, document = time.monotonic(), self._document
            if document is not None and now < self._expires_at and document is not outdated:
                return document
            if (error := self._failure) is not None and now < self._retry_at:
                raise SignInError(
                    error.message, next_step=error.next_step, status=error.status, is_known=True
                )
            try:
                self._document = await self._fetch()
            except SignInError as error:
                self._failure = error.with_traceback(None)
                self._retry_at = time.monotonic() + _RETRY_S
                raise
            self._failure, self._expires_at = None, time.monotonic() + _CACHE_S
            return self._document

    async def _fetch(self) -> dict[str, Any]:
        issuer = self._settings.issuer
        url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        status, document = await self._request("GET", url)
        if status != 200:
            raise _failing(f"has no discovery document (status {status})", "Check issuer.")
        if document.get("issuer") != issuer:
            raise _failing(
                "names itself as another issuer",
                "Check the setting issuer, including its last slash.",
            )
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not _is_endpoint(document.get(name), issuer):
                raise _failing("names an endpoint that is not https")
        offered = document.get("token_endpoint_auth_methods_supported", _AUTH_METHODS[:1])
        offered = offered if isinstance(offered, list | tuple) else ()
        document["auth_method"] = next((one for one in _AUTH_METHODS if one in offered), "")
        if not document["auth_method"] and self._settings.client_secret.get_secret_value():
            raise _failing(f"accepts a client secret neither by {' nor by '.join(_AUTH_METHODS)}")
        status, published = await self._request("GET", document["jwks_uri"])
        if status != 200:
            raise _failing(f"does not publish its keys (status {status})")
        try:
            keys = jwt.PyJWKSet.from_dict(published).keys
        except (jwt.PyJWTError, AttributeError, TypeError, ValueError) as error:
            raise _failing("has no keys that can be read") from error
        document["keys"] = [
            key
            for key in keys
            if key.algorithm_name in ALGORITHMS and key.public_key_use in (None, "sig")
        ]
        return document

    async def _redeem_code(self, document: Mapping[str, Any], code: str, verifier: str) -> str:
        """Return the ID token for a code; raise SignInError if the provider gives none."""
        form = {"grant_type": "authorization_code", "code": code, "code_verifier": verifier,
                "redirect_uri": self._redirect_uri}  # fmt: skip
        client_id = self._settings.client_id
        secret = self._settings.client_secret.get_secret_value()
        headers = {}
        if secret and document["auth_method"] == "client_secret_basic":  # RFC 6749, 2.3.1
            pair = f"{quote_plus(client_id)}:{quote_plus(secret)}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        else:
            form |= {"client_id": client_id, **({"client_secret": secret} if secret else {})}
        status, found = await self._request("POST", document["token_endpoint"], headers, form)
        error = found.get("error")
        if status == 200 and isinstance(token := found.get("id_token"), str):
            return token
        if status == 400 and error == "invalid_grant":
            raise _rejected("The provider refuses this sign-in: it was used before or has expired.")
        if status == 401 or error in ("invalid_client", "unauthorized_client"):
            raise _failing(
                "refuses this server", "The operator should check client_id and client_secret."
            )
        raise _failing(f"returned no ID token (status {status})")

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, Any]]:  # fmt: skip
        """Return the status and the JSON object of an answer; redirects are not followed.

        The object of an error may be empty.

        Raises:
            SignInError: 502, there is no answer in time, or it is too long or not an object.
        """
        sent = {"Accept": "application/json", "Accept-Encoding": "identity", **(headers or {})}
        data = b""
        try:
            async with (
                aiohttp.ClientSession(
                    cookie_jar=aiohttp.DummyCookieJar(), trust_env=True, auto_decompress=False
                ) as session,
                session.request(
                    method, url, data=form, headers=sent, allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=self._settings.timeout_s),
                ) as response,
            ):  # fmt: skip
                async for chunk in response.content.iter_any():
                    data += chunk
                    if len(data) > _MAX_BYTES:
                        raise _failing(f"answers with more than {_MAX_BYTES:,} bytes")
        except TimeoutError as error:
            raise _failing("does not answer in time") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _failing("cannot be reached") from error
        try:
            found = orjson.loads(data)
        except ValueError:
            found = None
        if not isinstance(found, dict) and response.status == 200:
            raise _failing("did not answer with a JSON object")
        return response.status, found if isinstance(found, dict) else {}


def person_of(claims: Mapping[str, Any], settings: OidcSettings) -> Identity:
    """Return the identity of a person: name, role, team, and the provider's subject as user id.

    The subject stays the same if the name changes. The first entry of ``[server.oidc.roles]`` that
    is among the person's values of ``role_claim`` gives the role, and the first such entry of
    ``[server.oidc.teams]`` the team.

    Args:
        claims: claims of a verified ID token.
        settings: ``[server.oidc]``.

    Raises:
        SignInError: 403, the person has no name, no subject or no role; or ``name_claim`` is
            ``email``, and the provider says that the address is not verified.
    """
    name, subject = (_text(claims.get(one)) for one in (settings.name_claim, "sub"))
    if not name or not subject:
        raise SignInError(
            f"The provider does not say who you are: the claim {settings.name_claim} is missing or "
            "is not a name.",
            next_step="The operator of this server can request more scopes, or use another claim.",
        )
    # Some providers send the flag as text.
    is_unverified = claims.get("email_verified", True) in (False, "false")
    if settings.name_claim == "email" and is_unverified:
        raise SignInError(
            "The provider has not verified your email address.", next_step="Verify it there."
        )
    found: Any = claims
    claim = settings.role_claim
    for part in [claim] if claim in claims else claim.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    values = found if isinstance(found, list) else [found]
    team = next((team for value, team in settings.teams.items() if value in values), "")
    for value, role in settings.roles.items():
        if value in values:
            return Identity(name, role, user_id=subject, team_id=team)
    raise SignInError(
        "Your account has no role here.",
        next_step=f"The operator of this server assigns roles by the claim {claim}.",
    )


def _key_of(token: str, keys: list[jwt.PyJWK]) -> jwt.PyJWK | None:
    """Return the key that a token names; ``None`` if ``keys`` lack it.

    Raises:
        SignInError: 502, the token cannot be read, or its algorithm is not accepted.
    """
    try:
        header = jwt.get_unverified_header(token)
    except _INVALID_TOKEN as error:
        raise _failing("sent an ID token that cannot be read") from error
    if header.get("alg") not in ALGORITHMS:
        step = f"Have it sign with one of {', '.join(ALGORITHMS)}."
        raise _failing("signs ID tokens with an algorithm that is not accepted", step)
    usable = [key for key in keys if key.algorithm_name == header["alg"]]
    if "kid" not in header:
        return usable[0] if len(usable) == 1 else None
    return next((key for key in usable if key.key_id == header["kid"]), None)


def _verified(token: str, key: jwt.PyJWK, settings: OidcSettings) -> dict[str, Any]:
    """Return the claims of a token, except that the caller checks the nonce.

    Raises:
        SignInError: 502, the signature is wrong, or the token is for another client or time.
    """
    try:
        claims: dict[str, Any] = jwt.decode(
            token, key, list(ALGORITHMS), audience=settings.client_id, issuer=settings.issuer,
            leeway=_LEEWAY_S, options={"require": ["iss", "sub", "aud", "exp", "iat"],
                                       "enforce_minimum_key_length": True},
        )  # fmt: skip
    except _INVALID_TOKEN as error:
        problem = _TOKEN_PROBLEMS.get(type(error), ("sent an ID token that is not valid", _LATER))
        raise _failing(*problem) from error
    several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    if claims.get("azp", None if several else settings.client_id) != settings.client_id:
        raise _failing("sent an ID token for another client")
    return claims


def _is_endpoint(url: object, issuer: str) -> bool:
    """Return True if a URL uses TLS, or is the issuer's own address on this machine."""
    if not isinstance(url, str) or not (url.isascii() and url.isprintable()):
        return False
    own = f"http://{urlsplit(issuer).netloc}/"
    return url.startswith("https://") or (issuer.startswith("http:") and url.startswith(own))


def _text(value: Any) -> str:
    """Return a name that the record can hold; empty if the value is not one."""
    is_name = isinstance(value, str) and len(value) <= 200 and value.isprintable()
    return value.strip() if is_name else ""


def _failing(problem: str, next_step: str = _LATER) -> SignInError:
    return SignInError(f"The sign-in provider {problem}.", next_step=next_step, status=502)


def _rejected(message: str) -> SignInError:
    return SignInError(message, next_step=_SIGN_IN_AGAIN, status=400)
