"""An OpenID Connect provider over HTTP: its documents, and ID tokens for codes."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlsplit

import aiohttp
import jwt
import orjson

from remit.kernel.settings import OidcSettings
from remit.server.console.oidc.errors import SignInError, failing, rejected
from remit.server.console.oidc.tokens import key_for, keys_of

_MAX_BYTES = 256 * 1024
_MAX_AGE_S = 3600.0
_PAUSE_S = 2.0  # A provider that failed is not asked again before.
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_WAYS = ("client_secret_basic", "client_secret_post")


class Published(NamedTuple):
    """The provider's discovery document and keys.

    Attributes:
        way: how the token endpoint takes the client's secret.
        names_itself: True if the provider names itself in the answer that the browser brings.
        keys: keys that sign ID tokens.
    """

    authorization_endpoint: str
    token_endpoint: str
    way: str
    names_itself: bool
    keys: list[jwt.PyJWK]


class Provider:
    """A client of an OpenID Connect provider; concurrent requests share one fetch of its documents.

    Args:
        settings: ``[server.oidc]``.
        redirect_uri: address that the provider sends browsers back to.
    """

    def __init__(self, settings: OidcSettings, redirect_uri: str) -> None:
        self._settings = settings
        self._redirect_uri = redirect_uri
        self._lock = asyncio.Lock()
        self._published: Published | None = None
        self._expires_at = 0.0
        self._failure: SignInError | None = None
        self._retry_at = 0.0

    async def published(self, *, outdated: Published | None = None) -> Published:
        """Return the provider's documents, at most an hour old.

        Args:
            outdated: documents that must be fetched again.

        Raises:
            SignInError: a document cannot be had or used, or is another issuer's.
        """
        async with self._lock:
            now, held = time.monotonic(), self._published
            if held is not None and now < self._expires_at and held is not outdated:
                return held
            if self._failure is not None and now < self._retry_at:
                raise self._failure.again()
            try:
                self._published = await self._fetch()
            except SignInError as error:
                self._failure = error.again()
                self._retry_at = time.monotonic() + _PAUSE_S
                raise
            self._failure, self._expires_at = None, time.monotonic() + _MAX_AGE_S
            return self._published

    async def key_for(self, token: str) -> jwt.PyJWK:
        """Return the key that signed an ID token; fetch the keys again if the key is unknown.

        Raises:
            SignInError: no published key signed the token, or the token cannot be read.
        """
        known = await self.published()
        key = key_for(token, known.keys)
        if key is None:
            key = key_for(token, (await self.published(outdated=known)).keys)
        if key is None:
            raise failing("signed an ID token with a key that it does not publish")
        return key

    async def redeem(self, code: str, verifier: str) -> str:
        """Return the ID token for a code.

        Args:
            code: the code that the browser brought.
            verifier: the verifier of PKCE.

        Raises:
            SignInError: the provider gives no ID token.
        """
        published = await self.published()
        form = {"grant_type": "authorization_code", "code": code, "code_verifier": verifier,
                "redirect_uri": self._redirect_uri}  # fmt: skip
        client_id = self._settings.client_id
        secret = self._settings.client_secret.get_secret_value()
        headers = {}
        if secret and published.way == "client_secret_basic":  # RFC 6749, 2.3.1
            pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": client_id, **({"client_secret": secret} if secret else {})}
        status, found = await self._ask("POST", published.token_endpoint, headers, form)
        error = found.get("error")
        if status == 200 and isinstance(token := found.get("id_token"), str):
            return token
        if status == 400 and error == "invalid_grant":
            raise rejected(
                "The provider does not take this sign-in any more: it is used or too old."
            )
        if status == 401 or error in ("invalid_client", "unauthorized_client"):
            raise failing(
                "refuses this server", "Who operates it checks client_id and client_secret."
            )
        raise failing(f"gives no ID token (status {status})")

    async def _fetch(self) -> Published:
        issuer = self._settings.issuer
        url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        status, found = await self._ask("GET", url)
        if status != 200:
            raise failing(f"has no discovery document (status {status})", "Check issuer.")
        if found.get("issuer") != issuer:
            raise failing("calls itself by another issuer", "Check issuer, to the last slash.")
        places = [found.get(name) for name in _ENDPOINTS]
        for place in places:
            if not _is_endpoint(place, issuer):
                raise failing("names an endpoint that is not https")
        ways = found.get("token_endpoint_auth_methods_supported", _WAYS[:1])
        way = next((one for one in _WAYS if isinstance(ways, list | tuple) and one in ways), "")
        if not way and self._settings.client_secret.get_secret_value():
            raise failing("takes a client's secret in none of the ways known here")
        names_itself = found.get("authorization_response_iss_parameter_supported") is True
        authorization, token, jwks_uri = map(str, places)
        status, document = await self._ask("GET", jwks_uri)
        if status != 200:
            raise failing(f"does not publish its keys (status {status})")
        return Published(authorization, token, way, names_itself, keys_of(document))

    async def _ask(
        self, method: str, url: str, headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, Any]]:  # fmt: skip
        """Return the status and the JSON object of an answer; an error may have an empty object."""
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
    """Return True if a URL uses TLS, or is the issuer's own address on this machine."""
    if not isinstance(place, str) or not (place.isascii() and place.isprintable()):
        return False
    own = f"http://{urlsplit(issuer).netloc}/"
    return place.startswith("https://") or (issuer.startswith("http:") and place.startswith(own))


async def _body(response: aiohttp.ClientResponse) -> bytes:
    data = b""
    async for part in response.content.iter_any():
        data += part
        if len(data) > _MAX_BYTES:
            raise failing(f"answers with more than {_MAX_BYTES:,} bytes")
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


__all__ = ["Provider", "Published"]
