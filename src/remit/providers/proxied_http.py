"""HTTP to providers through a proxy, by aiohttp; each request has its own connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import TYPE_CHECKING
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.http import HttpProcessingError
from yarl import URL

from remit.kernel.errors import ConfigError
from remit.providers.http_connection import BrokenError
from remit.providers.protocol import UNREACHABLE, ProviderError, Upload
from remit.providers.upstream_errors import hide, own_cause

if TYPE_CHECKING:
    from remit.providers.upstream_http import Timeouts

_WIRE_ERRORS = (aiohttp.ClientError, HttpProcessingError, OSError, ValueError)


def proxy_for(url: URL) -> URL | None:
    """Return the environment's proxy for a URL, with credentials; ``None`` if none is set.

    ``HTTP_PROXY`` or ``HTTPS_PROXY`` names the proxy, by the scheme of the URL; ``http://`` may be
    left out. ``NO_PROXY`` excepts hosts.

    Args:
        url: URL of a provider.

    Raises:
        ConfigError: the variable is not the URL of an HTTP proxy, such as one of SOCKS or TLS.
    """
    stated = getproxies().get(url.scheme, "").strip()
    if not stated or proxy_bypass(url.host or ""):
        return None
    try:
        proxy = URL(stated if "://" in stated else f"http://{stated}")
    except ValueError:
        proxy = URL()
    if proxy.scheme != "http" or not proxy.host:
        raise ConfigError(
            f"The environment variable {url.scheme}_proxy does not name an HTTP proxy.",
            next_step=f"Set it to http://HOST:PORT, or add {url.host} to no_proxy.",
        )
    return proxy


async def proxied(
    method: str,
    url: str,
    body: bytes | Upload,
    headers: Mapping[str, str],
    timeouts: Timeouts,
    proxy: URL,
    secrets: Collection[str],
) -> ProxiedAnswer:
    """Send a request through a proxy and return the answer as soon as its headers have come.

    The answer may have any status; redirects are not followed. The caller closes the answer.
    ``connect_s`` limits the wait for the proxy, and ``connect_s`` and ``first_byte_s`` together
    limit the wait for the answer. No limit runs while an upload's next bytes are awaited.

    Args:
        method: HTTP method.
        url: the whole URL.
        body: the body as sent; empty for none.
        headers: all headers, including credentials.
        timeouts: limits of the waits.
        proxy: URL of the proxy, with credentials.
        secrets: texts that errors must not show.

    Raises:
        ProviderError: there is no answer: ``TIMEOUT``; ``LOCAL_ERROR`` if this machine is the
            cause; else ``SERVER_ERROR``, also if the proxy refuses.
    """
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None, connect=timeouts.connect_s),
    )
    response, failure = None, None
    try:
        async with asyncio.timeout(timeouts.connect_s + timeouts.first_byte_s) as limit:
            data: bytes | AsyncIterator[bytes] | None = None
            if isinstance(body, Upload):
                data = _paced(body, limit, timeouts.first_byte_s)
                if body.length is not None:
                    headers = {**headers, "content-length": str(body.length)}
            elif body:
                data = body
            response = await session.request(
                method,
                url,
                data=data,
                headers=headers,
                allow_redirects=False,
                skip_auto_headers=("content-type",),
                proxy=proxy,
            )
    except aiohttp.ConnectionTimeoutError:
        said = f"no connection to the proxy within {timeouts.connect_s:g} s"
        failure = ProviderError("TIMEOUT", said, True)
    except TimeoutError:
        said = f"no answer within {timeouts.first_byte_s:g} s"
        failure = ProviderError("TIMEOUT", said, True, maybe_billed=True)
    except aiohttp.ClientHttpProxyError as error:
        said = f"the proxy refused the connection (HTTP {error.status})"
        failure = ProviderError("SERVER_ERROR", said, True)
    except aiohttp.ClientConnectorError as error:
        own = own_cause(error.os_error, None)
        why = own or getattr(error, "strerror", None) or type(error).__name__
        said = hide(f"the proxy {UNREACHABLE}: {why}", secrets)
        failure = ProviderError("LOCAL_ERROR" if own else "SERVER_ERROR", said, True)
        failure.cause = UNREACHABLE
    except _WIRE_ERRORS as error:
        said = f"the connection broke before an answer came ({type(error).__name__})"
        failure = ProviderError("SERVER_ERROR", said, True, maybe_billed=True)
    finally:
        if response is None:
            await session.close()
    # Raised out here: the client's own errors hold the request's headers.
    if response is None:
        raise failure or ProviderError("SERVER_ERROR", "the response is empty", True)
    return ProxiedAnswer(session, response)


async def _paced(upload: Upload, limit: asyncio.Timeout, within_s: float) -> AsyncIterator[bytes]:
    """Yield the bytes of an upload; while the client's next bytes are awaited, no limit runs."""
    limit.reschedule(None)
    async for piece in upload.pieces:
        limit.reschedule(asyncio.get_running_loop().time() + within_s)
        yield piece
        limit.reschedule(None)
    limit.reschedule(asyncio.get_running_loop().time() + within_s)


class ProxiedAnswer:
    """An answer that is arriving through a proxy, on a connection for this request alone.

    It has the members of :class:`~remit.providers.http_connection.HttpConnection` for reading.
    """

    def __init__(self, session: aiohttp.ClientSession, response: aiohttp.ClientResponse) -> None:
        self._session = session
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    @property
    def at_end(self) -> bool:
        """True if the whole body has been taken."""
        return self._response.content.at_eof()

    def whole_body(self) -> None:
        """Return None: the body is read piece by piece."""

    async def piece(
        self, timeout_s: float, pass_on: Callable[[bytes], bool] | None = None
    ) -> bytes:
        """Return the next bytes of the body; empty at its end. ``pass_on`` is ignored.

        Raises:
            TimeoutError: nothing came for ``timeout_s`` seconds.
            BrokenError: the connection broke.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._response.content.readany()
        except TimeoutError:
            raise
        except _WIRE_ERRORS as error:
            raise BrokenError(type(error).__name__, heard=True) from error

    async def release(self) -> None:
        """Close the connection, because a proxied one serves one request."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection."""
        self._response.close()
        await self._session.close()
