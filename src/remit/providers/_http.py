"""One HTTP client for all providers: errors in Remit's words, keys never in them."""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import orjson
from aiohttp.helpers import get_env_proxy_for_url
from multidict import CIMultiDict
from yarl import URL

from remit.providers.protocol import ProviderError

__all__ = ["JsonHttpClient"]

_WIRE_ERRORS = (TimeoutError, aiohttp.ClientError, ConnectionError, ValueError)
_MAX_BODY_BYTES = 64 * 1024 * 1024
_ERROR_CHARS = 500
_CONTEXT_WORDS = ("context length", "context_length", "prompt is too long", "context size")
_FILTER_WORDS = ("content_filter", "content management policy")


class JsonHttpClient:
    """Posts JSON to one base URL.

    Args:
        base_url: with scheme, without a trailing slash.
        headers: sent with each request; their values never appear in an error.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str]) -> None:
        self._base_url = base_url.rstrip("/")
        shown = URL(self._base_url)
        self._shown_url = str(shown.with_user(None) if shown.user or shown.password else shown)
        self._headers = CIMultiDict({"content-type": "application/json", **headers})
        self._secrets = [value.rpartition(" ")[2] for name, value in headers.items()
                         if name.lower() in ("authorization", "x-api-key") and value]  # fmt: skip
        # The environment's proxy is looked up once: the client would do it for each call.
        self._proxy, self._proxy_auth = _proxy_for(shown)
        self._urls: dict[str, URL] = {}
        self._timeouts: dict[float, aiohttp.ClientTimeout] = {}
        self._last: tuple[asyncio.AbstractEventLoop, aiohttp.ClientSession] | None = None
        self._sessions: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, aiohttp.ClientSession
        ] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"JsonHttpClient({self._shown_url!r})"

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        self._last = None
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[dict[str, Any], bytes]:
        """The JSON object a server answers with, read and as it came.

        Raises:
            ProviderError: whatever went wrong, with code and retryability.
        """
        response = None
        try:
            response = await self._send(path, body, timeout_s, headers)
            data = await _read(response)
            if response.status != 200:
                raise self._refusal(response, data)
            return self._object(data, response), data
        except _WIRE_ERRORS as error:
            raise self._broken(error, timeout_s, answering=response is not None) from error
        finally:
            if response is not None:
                response.release()

    async def stream(
        self,
        path: str,
        body: Mapping[str, Any],
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[tuple[dict[str, Any], bytes]]:
        """The JSON objects of a server-sent event stream as they come, read and raw.

        Raises:
            ProviderError: as :meth:`post`, also in the middle of the stream.
        """
        response = None
        ended = False
        try:
            response = await self._send(path, body, timeout_s, headers)
            if response.status != 200:
                raise self._refusal(response, await _read(response))
            if "event-stream" not in response.headers.get("content-type", ""):
                data = await _read(response)
                yield self._object(data, response), data
                return
            async for data in _events(response):
                if data == b"[DONE]":
                    ended = True
                    return
                yield self._object(data, response), data
            ended = True
        except _WIRE_ERRORS as error:
            raise self._broken(error, timeout_s, answering=response is not None) from error
        finally:
            if response is not None:
                # The rest of an abandoned stream is not waited for.
                (response.release if ended else response.close)()

    async def _send(
        self,
        path: str,
        body: Mapping[str, Any],
        timeout_s: float,
        more: Mapping[str, str] | None,
    ) -> aiohttp.ClientResponse:
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = URL(f"{self._base_url}{path}")
        timeout = self._timeouts.get(timeout_s)
        if timeout is None:
            timeout = self._timeouts[timeout_s] = aiohttp.ClientTimeout(total=timeout_s)
        return await self._session().post(
            url,
            data=orjson.dumps(body),
            headers={**self._headers, **more} if more else self._headers,
            timeout=timeout,
            allow_redirects=False,
            proxy=self._proxy,
            proxy_auth=self._proxy_auth,
        )

    def _broken(self, error: BaseException, timeout_s: float, *, answering: bool) -> ProviderError:
        if isinstance(error, TimeoutError):
            return ProviderError(
                "TIMEOUT", f"no answer within {timeout_s:g} s", True, maybe_billed=True
            )
        if isinstance(error, aiohttp.ClientConnectorError):
            return ProviderError(
                "SERVER_ERROR", f"{self._shown_url} cannot be reached: {error.strerror}", True
            )
        if type(error) is ValueError and not answering:  # a header that HTTP cannot carry
            return ProviderError("INVALID_REQUEST", "the request cannot be put into HTTP")
        what = "the connection broke while answering" if answering else "the connection broke"
        return ProviderError(
            "SERVER_ERROR", f"{what} ({type(error).__name__})", True, maybe_billed=True
        )

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        known = self._last
        if known is not None and known[0] is loop and not known[1].closed:
            return known[1]
        session = self._sessions.get(loop)
        if session is None or session.closed:
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar(),
            )  # fmt: skip
            self._sessions[loop] = session
        self._last = (loop, session)
        return session

    def _object(self, data: bytes, response: aiohttp.ClientResponse) -> dict[str, Any]:
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            value = None
        if not isinstance(value, dict):
            kind = response.headers.get("content-type", "no content type")
            raise ProviderError(
                "SERVER_ERROR",
                f"the answer is not a JSON object ({kind}, {len(data)} bytes); "
                "is the base URL right?",
                True,
                maybe_billed=True,
            )
        return value

    def _refusal(self, response: aiohttp.ClientResponse, data: bytes) -> ProviderError:
        try:
            body = orjson.loads(data)
            detail = body.get("error", body) if isinstance(body, dict) else body
            text = str(detail.get("message", detail)) if isinstance(detail, dict) else str(detail)
        except orjson.JSONDecodeError:
            text = f"{response.headers.get('content-type', 'unknown')} body, {len(data)} bytes"
        for secret in self._secrets:  # before the text is cut, or a part of one would stay
            text = text.replace(secret, "[key]")
        text = f"HTTP {response.status}: {text[:_ERROR_CHARS]}"
        low, status = text.lower(), response.status
        if any(word in low for word in _CONTEXT_WORDS):
            return ProviderError("CONTEXT_LENGTH", text)
        if any(word in low for word in _FILTER_WORDS):
            return ProviderError("CONTENT_FILTERED", text)
        if status in (401, 403):
            return ProviderError("AUTH_ERROR", text)
        if status == 408:
            return ProviderError("TIMEOUT", text, True)
        if status == 429:
            return ProviderError("RATE_LIMITED", text, True, retry_after_s=_retry_after(response))
        if status >= 500:
            return ProviderError("SERVER_ERROR", text, True, retry_after_s=_retry_after(response))
        return ProviderError("INVALID_REQUEST", text)


def _proxy_for(url: URL) -> tuple[URL | None, aiohttp.BasicAuth | None]:
    """The proxy that the environment names for ``url``, as aiohttp's ``trust_env`` finds it."""
    try:
        return get_env_proxy_for_url(url)
    except LookupError:
        return None, None


async def _read(response: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > _MAX_BODY_BYTES:
            raise ProviderError(
                "SERVER_ERROR", "the answer is longer than 64 MiB", maybe_billed=True
            )
        parts.append(part)
    return b"".join(parts)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The data of each server-sent event (WHATWG HTML, "event stream interpretation")."""
    data: list[bytes] = []
    buffer = b""
    async for part in response.content.iter_any():
        buffer += part
        if len(buffer) > _MAX_BODY_BYTES:
            raise ProviderError("SERVER_ERROR", "an event is longer than 64 MiB", maybe_billed=True)
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            line = line.rstrip(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data = []


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    try:
        seconds = float(response.headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
