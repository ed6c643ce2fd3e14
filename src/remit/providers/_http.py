"""One HTTP client for all providers: errors in Remit's words, keys never in them."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import orjson
from yarl import URL

from remit.providers.protocol import ProviderError

__all__ = ["JsonHttpClient"]

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
        self._headers = dict(headers)
        self._sessions: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, aiohttp.ClientSession
        ] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"JsonHttpClient({self._shown_url!r})"

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    async def post(
        self, path: str, body: Mapping[str, Any], timeout_s: float
    ) -> tuple[dict[str, Any], bytes]:
        """The JSON object a server answers with, read and as it came.

        Raises:
            ProviderError: whatever went wrong, with code and retryability.
        """
        async with self._request(path, body, timeout_s) as response:
            data = await _read(response)
            return self._object(data, response), data

    async def stream(
        self, path: str, body: Mapping[str, Any], timeout_s: float
    ) -> AsyncIterator[tuple[dict[str, Any], bytes]]:
        """The JSON objects of a server-sent event stream as they come, read and raw.

        Raises:
            ProviderError: as :meth:`post`, also in the middle of the stream.
        """
        async with self._request(path, body, timeout_s) as response:
            if "event-stream" not in response.headers.get("content-type", ""):
                data = await _read(response)
                yield self._object(data, response), data
                return
            async for data in _events(response):
                if data == b"[DONE]":
                    return
                yield self._object(data, response), data

    @contextlib.asynccontextmanager
    async def _request(
        self, path: str, body: Mapping[str, Any], timeout_s: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        sent = False
        try:
            async with self._session().post(
                f"{self._base_url}{path}",
                data=orjson.dumps(body),
                headers={"content-type": "application/json", **self._headers},
                timeout=aiohttp.ClientTimeout(total=timeout_s),
                allow_redirects=False,
            ) as response:
                sent = True
                if response.status != 200:
                    raise self._refusal(response, await _read(response))
                yield response
        except TimeoutError as error:
            raise ProviderError(
                "TIMEOUT", f"no answer within {timeout_s:g} s", True, maybe_billed=True
            ) from error
        except aiohttp.ClientConnectorError as error:
            raise ProviderError(
                "SERVER_ERROR", f"{self._shown_url} cannot be reached: {error.strerror}", True
            ) from error
        except (aiohttp.ClientError, ConnectionError, ValueError) as error:
            what = "the connection broke while answering" if sent else "the connection broke"
            raise ProviderError(
                "SERVER_ERROR", f"{what} ({type(error).__name__})", True, maybe_billed=True
            ) from error

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None or session.closed:
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=True,
            )  # fmt: skip
            self._sessions[loop] = session
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
        return max(0.0, float(response.headers["retry-after"]))
    except (KeyError, ValueError):
        return None
