"""An OpenID Connect provider over HTTP: its metadata, its keys, and ID tokens for codes."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote_plus, urlsplit

import aiohttp
import jwt
import orjson

from remit.kernel.settings import OidcSettings
from remit.server.console.oidc.errors import SignInError, failing
from remit.server.console.oidc.tokens import key_for, keys_of

_MOST_BYTES = 256 * 1024
_KEPT_S = 3600.0
_PAUSE_S = 2.0  # after a failure, before it is asked again
_WAYS = ("client_secret_basic", "client_secret_post")
_T = TypeVar("_T")


class Metadata(NamedTuple):
    """What the discovery document says."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    way: str
    names_itself: bool


class Provider:
    """One provider. What it publishes is fetched when it is needed, and kept for an hour.

    Args:
        settings: ``[server.oidc]``.
        redirect_uri: where it sends browsers back to.
    """

    def __init__(self, settings: OidcSettings, redirect_uri: str) -> None:
        self._settings = settings
        self._redirect_uri = redirect_uri
        self._metadata = _Kept(self._discover)
        self._keys = _Kept(self._fetch_keys)

    async def metadata(self) -> Metadata:
        """Its metadata.

        Raises:
            SignInError: they cannot be had, or are another issuer's.
        """
        return await self._metadata.get()

    async def key_for(self, token: str) -> jwt.PyJWK:
        """The key that an ID token was signed with; keys are fetched again for one that is new.

        Raises:
            SignInError: there is none, or the token cannot be read.
        """
        known = await self._keys.get()
        key = key_for(token, known) or key_for(token, await self._keys.get(but=known))
        if key is None:
            raise failing("signed an ID token with a key that it does not publish")
        return key

    async def redeem(self, code: str, verifier: str) -> str:
        """The ID token for a code.

        Args:
            code: as the browser brought it.
            verifier: of PKCE.

        Raises:
            SignInError: the provider does not give one.
        """
        metadata = await self.metadata()
        form = {"grant_type": "authorization_code", "code": code, "code_verifier": verifier,
                "redirect_uri": self._redirect_uri}  # fmt: skip
        client_id = self._settings.client_id
        secret = self._settings.client_secret.get_secret_value()
        headers = {}
        if secret and metadata.way == "client_secret_basic":  # RFC 6749, 2.3.1
            pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": client_id, **({"client_secret": secret} if secret else {})}
        status, found = await self._ask("POST", metadata.token_endpoint, headers, form)
        error = found.get("error")
        if status == 200 and isinstance(token := found.get("id_token"), str):
            return token
        if status == 400 and error == "invalid_grant":
            raise SignInError(
                "The provider does not take this sign-in any more: it is used or too old.",
                next_step="Sign in again.", status=400,
            )  # fmt: skip
        if status == 401 or error in ("invalid_client", "unauthorized_client"):
            raise failing(
                "refuses this server", "Who operates it checks client_id and client_secret."
            )
        raise failing(f"gives no ID token (status {status})")

    async def _discover(self) -> Metadata:
        issuer = self._settings.issuer
        url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        status, found = await self._ask("GET", url)
        if status != 200:
            raise failing(f"has no discovery document (status {status})", "Check issuer.")
        if found.get("issuer") != issuer:
            raise failing("calls itself by another issuer", "Check issuer, to the last slash.")
        places = [found.get(name) for name in Metadata._fields[:3]]
        for place in places:
            if not _is_endpoint(place, issuer):
                raise failing("names an endpoint that is not https")
        ways = found.get("token_endpoint_auth_methods_supported", _WAYS[:1])
        way = next((one for one in _WAYS if isinstance(ways, list | tuple) and one in ways), "")
        if not way and self._settings.client_secret.get_secret_value():
            raise failing("takes a client's secret in none of the ways known here")
        names_itself = found.get("authorization_response_iss_parameter_supported") is True
        authorization, token, keys = map(str, places)
        return Metadata(authorization, token, keys, way, names_itself)

    async def _fetch_keys(self) -> list[jwt.PyJWK]:
        status, found = await self._ask("GET", (await self.metadata()).jwks_uri)
        if status != 200:
            raise failing(f"does not publish its keys (status {status})")
        return keys_of(found)

    async def _ask(
        self, method: str, url: str, headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, Any]]:  # fmt: skip
        """Status and JSON object of an answer; an object without members where it is none."""
        sent = {"Accept": "application/json", "Accept-Encoding": "identity", **(headers or {})}
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
                return response.status, _object(response.status, await _body(response))
        except TimeoutError as error:
            raise failing("does not answer in time") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise failing("cannot be reached") from error


def _is_endpoint(place: object, issuer: str) -> bool:
    """Whether a URL may be used: over TLS, or where the issuer itself is, on this machine."""
    if not isinstance(place, str) or not (place.isascii() and place.isprintable()):
        return False
    own = f"http://{urlsplit(issuer).netloc}/"
    return place.startswith("https://") or (issuer.startswith("http:") and place.startswith(own))


class _Kept(Generic[_T]):
    """What is fetched once for all who ask at the time, and kept."""

    def __init__(self, fetch: Callable[[], Awaitable[_T]]) -> None:
        self._fetch = fetch
        self._lock = asyncio.Lock()
        self._value: _T | None = None
        self._until = 0.0
        self._failed: SignInError | None = None
        self._paused_until = 0.0

    async def get(self, *, but: _T | None = None) -> _T:
        """The value; not ``but``, which was found to be too old."""
        async with self._lock:
            now = time.monotonic()
            if self._value is not None and now < self._until and self._value is not but:
                return self._value
            if self._failed is not None and now < self._paused_until:
                raise self._failed.again()
            try:
                self._value = await self._fetch()
            except SignInError as error:
                self._failed = error.again()
                self._paused_until = time.monotonic() + _PAUSE_S
                raise
            self._failed, self._until = None, time.monotonic() + _KEPT_S
            return self._value


async def _body(response: aiohttp.ClientResponse) -> bytes:
    data = b""
    async for part in response.content.iter_any():
        data += part
        if len(data) > _MOST_BYTES:
            raise failing(f"answers with more than {_MOST_BYTES:,} bytes")
    return data


def _object(status: int, data: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(data)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    if status == 200:
        raise failing("answers with what is no JSON object")
    return {}


__all__ = ["Metadata", "Provider"]
