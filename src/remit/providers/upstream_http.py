"""HTTP to providers: requests are sent and answers are returned byte for byte.

No redirect is followed, and no body is rewritten or read in advance. Each failure is a
:class:`ProviderError` without credentials, even if the server echoes one.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import os
import re
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote
from urllib.request import getproxies

from aiohappyeyeballs import start_connection
from multidict import CIMultiDict
from yarl import URL

from remit.providers.http_connection import HttpConnection, HttpPool
from remit.providers.protocol import UNREACHABLE, UNSENT, ProviderError, Upload
from remit.providers.upstream_errors import hide, own_cause
from remit.providers.upstream_reply import UpstreamReply

if TYPE_CHECKING:
    from remit.providers.proxied_http import ProxiedAnswer

_STALE_S = 0.25
_RETRY_AFTER_S = 1.0
_NEXT_ADDRESS_S = 0.25
_MAX_HEADS = 256
_SECRET_CHARS = 8  # Shorter keys are placeholders for servers without keys, such as "ollama".
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\r\n\x00]*")
_TARGET = re.compile(r"/[!-~]*")
_OF_THE_BODY = frozenset(("host", "content-length", "transfer-encoding"))
"""Headers that follow from the URL and the body, so that no caller sets them."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits of the waits in seconds. An answer that keeps arriving is not limited.

    Attributes:
        connect_s: until the connection to one address is open, with TLS; also for the DNS query.
        first_byte_s: from the end of the request to the headers of the answer.
        idle_s: between two pieces of the answer.
    """

    connect_s: float
    first_byte_s: float
    idle_s: float


class HttpUpstream:
    """A client for one base URL, with a pool of connections for each event loop.

    Args:
        base_url: the URL with its scheme. A user and password in it are sent as Basic credentials,
            unless ``headers`` has an ``authorization``. The environment's proxy for the URL
            applies.
        headers: credentials, sent with each request. Their values appear in no error and no
            ``repr``.

    Attributes:
        secrets: texts that must not be shown, for
            :func:`~remit.providers.upstream_errors.error_of`.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str]) -> None:
        url = URL(base_url.rstrip("/"))
        every = CIMultiDict(headers)
        if url.user or url.password:
            if "authorization" not in every:
                every["authorization"] = _basic(url)
            url = url.with_user(None)
        # Without compression the recorded bytes are those that the provider writes.
        every["accept-encoding"] = "identity"
        self._headers = {"accept": "*/*", **{name.lower(): each for name, each in every.items()}}
        self._base_url = str(url)
        self.secrets = _secrets(every)
        self._hidden = _encoded(self.secrets)
        self._url = url
        # Each look-up of the environment's proxy reads its variables.
        self._proxy = _proxy_for(url)
        self._head = functools.lru_cache(_MAX_HEADS)(
            functools.partial(_head_of, url, self._headers)
        )
        self._tls = ssl.create_default_context() if url.scheme == "https" else None
        self._pools: dict[asyncio.AbstractEventLoop, HttpPool] = {}

    def __repr__(self) -> str:
        return f"HttpUpstream({self._base_url!r})"

    async def aclose(self) -> None:
        """Close the connections of the running loop that await no answer; the others finish."""
        if (pool := self._pools.pop(asyncio.get_running_loop(), None)) is not None:
            pool.close()
            await asyncio.sleep(0)
            if pool.with_loop is not None and not pool.open:
                await pool.with_loop.aclose()

    async def _with_loop(
        self, loop: asyncio.AbstractEventLoop, pool: HttpPool
    ) -> AsyncGenerator[None, None]:
        """Close all connections when the loop is about to be closed.

        ``asyncio.run`` gives no other notice than to end the loop's asynchronous generators.
        """
        try:
            yield
        finally:
            if self._pools.get(loop) is pool:
                del self._pools[loop]
            if pool.open:
                pool.abort()
                await asyncio.sleep(0)

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | Upload,
        headers: Mapping[str, str],
        timeouts: Timeouts,
        *,
        reconnect: bool = False,
        whole: bool = False,
        signed: tuple[Mapping[str, str], str] | None = None,
    ) -> UpstreamReply:
        """Send a request once; return the reply when its headers have come.

        Through a proxy each request has a new connection, and ``whole`` has no effect.

        Args:
            method: HTTP method.
            path: path after the base URL, with its query.
            body: the body, sent as it is. An upload is sent on a new connection, while it arrives.
            headers: further headers; they do not replace credentials.
            timeouts: limits of the waits.
            reconnect: True to use a new connection instead of a pooled one.
            whole: True to wait for the whole body too, unless it is longer than 256 KiB.
            signed: headers with credentials of this request alone, and the secret in them.

        Returns:
            The reply, whose body is unread. Its status may be 400 or above.

        Raises:
            ProviderError: there is no answer (``TIMEOUT``, ``LOCAL_ERROR`` if this machine is the
                cause, else ``SERVER_ERROR``), a redirect or a switch of protocols, or HTTP cannot
                express the request (``INVALID_REQUEST``). ``stale`` is set if a pooled connection
                had been closed by the server.
            Exception: the error that the pieces of an upload raised.
        """
        came: HttpConnection | ProxiedAnswer
        own, fields = self._headers, tuple(headers.items())
        if signed is not None:
            credentials, secret = signed
            own = {**own, **{name.lower(): value for name, value in credentials.items()}}
            if secret and secret not in self.secrets:
                self.secrets = _secrets({**self._headers, "authorization": secret})
                self._hidden = _encoded(self.secrets)
        if self._proxy is not None:
            from remit.providers.proxied_http import proxied

            url, every = self.url(path), _all(own, fields)
            came = await proxied(method, url, body, every, timeouts, self._proxy, self.secrets)
        else:
            size = body.length if isinstance(body, Upload) else len(body)
            if signed is None:
                head = self._head(method, path, fields)
            else:  # Such credentials are of one request, and are not kept.
                head = _head_of(self._url, own, method, path, fields)
            if size is None:
                head += b"transfer-encoding: chunked\r\n\r\n"
            elif size or method in ("POST", "PUT"):
                head += b"content-length: %d\r\n\r\n" % size
            else:
                head += b"\r\n"
            loop = asyncio.get_running_loop()
            pool = self._pools.get(loop)
            if pool is None:
                pool = self._pools[loop] = HttpPool()
                pool.with_loop = self._with_loop(loop, pool)
                await anext(pool.with_loop)
            connection = None if reconnect or isinstance(body, Upload) else pool.take()
            if connection is None:
                connection = await self._connect(pool, timeouts.connect_s)
            try:
                if isinstance(body, Upload):
                    await connection.upload(head, _framed(body), timeouts.first_byte_s)
                else:
                    whole_s = timeouts.idle_s if whole else None
                    await connection.request(head, body, timeouts.first_byte_s, whole_s)
            except BaseException:
                connection.close()
                raise
            if not connection.begun:
                connection.close()
                raise _unanswered(connection, timeouts.first_byte_s)
            came = connection
        if 300 <= came.status < 400 or came.status == 101:
            await came.aclose()
            raise self._not_followed(came)
        return UpstreamReply(came, timeouts.idle_s, self._hidden)

    def url(self, path: str) -> str:
        """Return the URL of a path after the base URL."""
        return f"{self._base_url}{path}"

    async def _connect(self, pool: HttpPool, timeout_s: float) -> HttpConnection:
        url = self._url
        if url.scheme not in ("http", "https") or not url.host or not url.port:
            raise ProviderError("INVALID_REQUEST", f"{self._base_url} is not an HTTP address")
        failure = None
        try:
            return await self._opened(pool, url.host, url.port, timeout_s)
        except asyncio.CancelledError as error:
            error.add_note(UNSENT)
            raise
        except TimeoutError:
            said = f"no connection to {self._base_url} within {timeout_s:g} s"
            failure = ProviderError("TIMEOUT", said, True)
        except UnicodeError:
            failure = _unsendable()
        except (OSError, ValueError, RuntimeError) as error:  # uvloop raises the last one.
            own = own_cause(error, self._tls)
            why = own or getattr(error, "strerror", None) or type(error).__name__
            if isinstance(error, ConnectionError) and error.errno:
                why = os.strerror(error.errno)
            said = hide(f"{self._base_url} {UNREACHABLE}: {why}", self.secrets)
            failure = ProviderError("LOCAL_ERROR" if own else "SERVER_ERROR", said, True)
            failure.retry_after_s = _RETRY_AFTER_S if own else None
            failure.cause = UNREACHABLE
        raise failure

    async def _opened(
        self, pool: HttpPool, host: str, port: int, timeout_s: float
    ) -> HttpConnection:
        """Return a connection to the first address that answers, TLS included.

        Each address has the whole time.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s):
            left = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        while True:
            opened = None
            try:
                async with asyncio.timeout(timeout_s):
                    opened = await start_connection(left, happy_eyeballs_delay=_NEXT_ADDRESS_S)
                    peer = opened.getpeername()[:2]
                    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    _, connection = await loop.create_connection(
                        lambda: HttpConnection(pool),
                        sock=opened,
                        ssl=self._tls,
                        server_hostname=host if self._tls else None,
                    )
                    return connection
            except BaseException as error:
                if opened is None:
                    raise
                opened.close()
                left = [address for address in left if address[4][:2] != peer]
                if not left or not isinstance(error, TimeoutError):
                    raise

    def _not_followed(self, response: HttpConnection | ProxiedAnswer) -> ProviderError:
        if response.status == 101:
            said = "HTTP 101: the server switched to another protocol without a request"
        else:
            try:
                host = URL(response.headers.get("location", "")).host or "the same host"
            except ValueError:
                host = "an invalid address"
            said = (
                f"HTTP {response.status}: a redirect to {host[:100]}, which is not followed; "
                "give the base URL that it leads to"
            )
        said = hide(said, self.secrets)
        return ProviderError("SERVER_ERROR", said, status=response.status, healthy=True)


def _all(own: Mapping[str, str], fields: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers of a request; ``fields`` replaces none of the client's own."""
    every = dict(own)
    for name, value in fields:
        if (low := name.lower()) not in every and low not in _OF_THE_BODY:
            every[low] = value
    return every


def _head_of(
    url: URL, own: Mapping[str, str], method: str, path: str, fields: tuple[tuple[str, str], ...]
) -> bytes:
    """Return request line and headers, without the length of the body.

    Args:
        url: the base URL.
        own: headers of the client, by names in lower case.
        method: the HTTP method.
        path: the path after the base URL.
        fields: further headers of the request.

    Raises:
        ProviderError: HTTP cannot express them.
    """
    target = f"{url.raw_path.rstrip('/')}{path}"
    if _TARGET.fullmatch(target) is None or not method.isalpha():
        raise _unsendable()
    lines = [f"{method} {target} HTTP/1.1\r\nhost: {url.host_port_subcomponent or ''}\r\n"]
    for name, value in _all(own, fields).items():
        if _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            raise _unsendable()
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode("utf-8", "surrogateescape")


async def _framed(upload: Upload) -> AsyncIterator[bytes]:
    """Yield the bytes of an upload as HTTP sends them."""
    async for piece in upload.pieces:
        if piece:
            is_whole = upload.length is not None
            yield piece if is_whole else b"%x\r\n%b\r\n" % (len(piece), piece)
    if upload.length is None:
        yield b"0\r\n\r\n"


def _unanswered(connection: HttpConnection, within_s: float) -> ProviderError:
    """Return the error of a request without any answer."""
    failure = connection.failure
    if isinstance(failure, TimeoutError):
        said = f"no answer within {within_s:g} s"
        return ProviderError("TIMEOUT", said, True, maybe_billed=True)
    assert failure is not None
    # The server may close an idle connection just as the request is written. If it failed within
    # this time and no byte came back, the server has not read the request.
    now = asyncio.get_running_loop().time()
    is_early = now - (connection.deadline - within_s) < _STALE_S
    if connection.requests > 1 and not failure.heard and is_early:
        said = "the idle connection was closed"
        return ProviderError("SERVER_ERROR", said, True, stale=True, healthy=True)
    said = f"the connection broke before an answer came ({failure})"
    if not failure.is_http:
        said = "the response is not HTTP; check the base URL"
    return ProviderError("SERVER_ERROR", said, True, maybe_billed=True)


def _unsendable() -> ProviderError:
    return ProviderError("INVALID_REQUEST", "the request cannot be sent over HTTP")


def _proxy_for(url: URL) -> URL | None:
    """Return the environment's proxy; aiohttp, which is slow to load, is loaded only then."""
    if not getproxies():
        return None
    from remit.providers.proxied_http import proxy_for

    return proxy_for(url)


def _basic(url: URL) -> str:
    pair = f"{url.user or ''}:{url.password or ''}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _encoded(secrets: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(secret.encode("utf-8", "surrogatepass") for secret in secrets)


def _secrets(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the credentials in headers, as they are, URL-encoded and in base64, longest first."""
    found: set[str] = set()
    for name, value in headers.items():
        if name.lower() == "accept-encoding":
            continue
        scheme, _, key = value.rpartition(" ")
        found.add(key if scheme.lower() in ("bearer", "basic") else value)
        if scheme.lower() == "basic":
            with contextlib.suppress(ValueError):
                found.add(base64.b64decode(key).decode().partition(":")[2])
    plain = {text for text in found if len(text) >= _SECRET_CHARS}
    encoded = {base64.b64encode(text.encode("utf-8", "surrogatepass")) for text in plain}
    forms = plain | {quote(text, safe="", errors="replace") for text in plain}
    forms |= {text.decode().rstrip("=") for text in encoded}
    return tuple(sorted(forms, key=lambda text: (-len(text), text)))
