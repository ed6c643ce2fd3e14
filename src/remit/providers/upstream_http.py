"""HTTP to providers, byte for byte: requests go out and answers come back as they are.

Nothing is followed, rewritten or read ahead; what goes wrong is a :class:`ProviderError` that holds
no credential, also where the server echoes one.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import io
import weakref
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.helpers import get_env_proxy_for_url
from aiohttp.http import HttpProcessingError
from multidict import CIMultiDict, CIMultiDictProxy
from typing_extensions import override
from yarl import URL

from remit.providers.protocol import ProviderError
from remit.providers.sse import SseEvent, SseParser
from remit.providers.upstream_errors import hide

__all__ = ["HttpUpstream", "Timeouts", "UpstreamReply"]

MAX_BODY_BYTES = 64 * 1024 * 1024
_PIECE_BYTES = 256 * 1024  # of a body that is decompressed, at a time
_MEMBERS = 100  # of one gzip body
_LARGE_BYTES = 64 * 1024  # a body above it may block while it is sent
_AT_ONCE_S = 0.25
_END_S = 0.01
_SECRET_CHARS = 8  # shorter ones are words that servers without keys are given, such as "ollama"
_WIRE_ERRORS = (
    TimeoutError,
    aiohttp.ClientError,
    HttpProcessingError,
    OSError,
    ValueError,
    EOFError,
    zlib.error,
)
_CLOSED = (errno.ECONNRESET, errno.EPIPE)

_in_use: ContextVar[_Protocol | None] = ContextVar("_in_use")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait, in seconds. Nothing ends an answer that goes on.

    Attributes:
        connect_s: until the connection stands, with DNS and TLS.
        first_byte_s: from the request being sent to the answer's headers.
        idle_s: between two pieces of the answer.
    """

    connect_s: float
    first_byte_s: float
    idle_s: float


class HttpUpstream:
    """Sends requests to one base URL, over a pool of connections per event loop.

    Args:
        base_url: with scheme, without a trailing slash.
        headers: credentials, sent with each request; their values appear in no error and no
            ``repr``.

    Attributes:
        secrets: what must not be shown, for :func:`~remit.providers.upstream_errors.error_of`.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str]) -> None:
        url = URL(base_url.rstrip("/"))
        every = CIMultiDict(headers)
        if url.user or url.password:
            if "authorization" not in every:
                every["authorization"] = _basic(url)
            url = url.with_user(None)
        # Not compressed: what the provider writes is what is passed on and recorded.
        every["accept-encoding"] = "identity"
        self._headers = every
        self._base_url = str(url)
        self.secrets = _secrets(every)
        self._hidden = tuple(secret.encode("utf-8", "surrogatepass") for secret in self.secrets)
        # The environment's proxy is looked up once: the client would do it for each call.
        self._proxy = _proxy_for(url)
        self._url = lru_cache(128)(lambda path: URL(f"{self._base_url}{path}"))
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = (
            weakref.WeakKeyDictionary()
        )

    def __repr__(self) -> str:
        return f"HttpUpstream({self._base_url!r})"

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.aclose()

    async def send(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        timeouts: Timeouts,
        *,
        anew: bool = False,
    ) -> UpstreamReply:
        """Send a request, once; the reply comes with its headers, its body is still to be read.

        Args:
            path: behind the base URL, with its query.
            body: sent as it is.
            headers: further ones; they do not replace credentials.
            anew: over a new connection, not one that was kept.

        Raises:
            ProviderError: there is no answer, or a redirect; ``stale`` where a connection that was
                kept has been closed meanwhile. A status of 400 and above is a reply.
        """
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = _Pool()
        every = CIMultiDict(headers)
        every.update(self._headers)
        request = _Request(method, path, body, every, timeouts)
        started = loop.time()
        _in_use.set(None)
        response = None
        try:
            response = await self._request(pool.session(keep=not anew), request)
        except _WIRE_ERRORS as error:
            # A connection that had waited in the pool may be closed just as it is written to.
            # Where no byte came back and it failed at once, the server has not read the request.
            used = _in_use.get()
            stale = (
                used is not None
                and used.requests > 1
                and not used.heard
                and loop.time() - started < _AT_ONCE_S
                and (
                    isinstance(error, aiohttp.ServerDisconnectedError)
                    or getattr(error, "errno", None) in _CLOSED
                )
            )
            if stale:
                said = "the connection had been closed while it waited"
                failure = ProviderError("SERVER_ERROR", said, True, stale=True, healthy=True)
            else:
                failure = self._failure(error, timeouts)
        _in_use.set(None)
        # Raised out here: the client's own errors hold the request's headers.
        if response is None:
            raise failure
        if 300 <= response.status < 400 or response.status == 101:
            response.close()
            raise self._not_followed(response)
        connection = response.connection
        if connection is not None and (protocol := connection.protocol) is not None:
            protocol.read_timeout = timeouts.idle_s
            if not protocol._reading_paused:  # else it is us who are slow
                protocol.start_timeout()
        return UpstreamReply(response, timeouts.idle_s, self._hidden)

    async def _request(
        self, session: aiohttp.ClientSession, request: _Request
    ) -> aiohttp.ClientResponse:
        timeouts = request.timeouts
        data: bytes | io.BytesIO | None = request.body
        if len(request.body) > _LARGE_BYTES:
            data = io.BytesIO(request.body)  # written in pieces
        elif not request.body and request.method not in ("POST", "PUT"):
            data = None
        sent = session.request(
            request.method,
            self._url(request.path),
            data=data,
            headers=request.headers,
            timeout=_client_timeout(timeouts),
            allow_redirects=False,
            skip_auto_headers=("content-type",),
            proxy=self._proxy,
        )
        if len(request.body) <= _LARGE_BYTES:
            return await sent
        async with asyncio.timeout(timeouts.connect_s + timeouts.first_byte_s):
            return await sent

    def _failure(self, error: BaseException, timeouts: Timeouts) -> ProviderError:
        """The error of a request that got no answer."""
        where = self._base_url
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            said = f"no connection to {where} within {timeouts.connect_s:g} s"
            return ProviderError("TIMEOUT", said, True)
        if isinstance(error, TimeoutError):
            said = f"no answer within {timeouts.first_byte_s:g} s"
            return ProviderError("TIMEOUT", said, True, maybe_billed=True)
        if isinstance(
            error, aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError
        ):
            why = getattr(error, "strerror", None) or type(error).__name__
            said = hide(f"{where} cannot be reached: {why}", self.secrets)
            return ProviderError("SERVER_ERROR", said, True)
        if isinstance(error, aiohttp.ClientHttpProxyError):
            said = f"the proxy does not let us through to {where} (HTTP {error.status})"
            return ProviderError("SERVER_ERROR", said, True)
        if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
            return ProviderError("INVALID_REQUEST", f"{where} is not an HTTP address")
        if isinstance(error, aiohttp.ClientResponseError | HttpProcessingError):
            said = "what came back is not HTTP; is the base URL right?"
            return ProviderError("SERVER_ERROR", said, True, maybe_billed=True)
        # A header or a host that HTTP cannot carry.
        if type(error) is ValueError or isinstance(error, UnicodeError):
            return ProviderError("INVALID_REQUEST", "the request cannot be put into HTTP")
        said = f"the connection broke before an answer came ({type(error).__name__})"
        return ProviderError("SERVER_ERROR", said, True, maybe_billed=True)

    def _not_followed(self, response: aiohttp.ClientResponse) -> ProviderError:
        if response.status == 101:
            said = "HTTP 101: another protocol, which was not asked for"
        else:
            try:
                host = URL(response.headers.get("location", "")).host or "the same host"
            except ValueError:
                host = "an address that is none"
            said = (
                f"HTTP {response.status}: a redirect to {host[:100]}, which is not followed; "
                "give the base URL that it leads to"
            )
        return ProviderError("INVALID_REQUEST", hide(said, self.secrets), status=response.status)


class UpstreamReply:
    """An answer whose headers are there. Its body is read once, by one of the three ways.

    Attributes:
        headers: case-insensitive, a name may be there more than once; of the body as the server
            sent it, so ``content-encoding`` and ``content-length`` are the wire's.
        content_type: without parameters, in lower case; empty where there is none.
    """

    __slots__ = (
        "_closing",
        "_failure",
        "_hidden",
        "_idle_s",
        "_inflate",
        "_response",
        "content_type",
        "headers",
        "status",
    )

    def __init__(
        self, response: aiohttp.ClientResponse, idle_s: float, hidden: Sequence[bytes] = ()
    ) -> None:
        self._response = response
        self._hidden = hidden
        self._idle_s = idle_s
        self.status: int = response.status
        self.headers: CIMultiDictProxy[str] = response.headers
        kind = self.headers.get("content-type", "")
        self.content_type: str = kind.partition(";")[0].strip().lower()
        self._inflate = _Inflate() if "content-encoding" in self.headers else None
        self._failure: ProviderError | None = None
        self._closing = False

    def __repr__(self) -> str:
        return f"UpstreamReply({self.status}, {self.content_type!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def read(self, most: int = MAX_BODY_BYTES) -> bytes:
        """The whole body.

        Args:
            most: bytes it may have.

        Raises:
            ProviderError: it is longer, or breaks off.
        """
        parts: list[bytes] = []
        size = 0
        while part := await self._piece():
            size += len(part)
            if size > most:
                self._response.close()
                said = f"the answer is longer than {most} bytes"
                raise ProviderError(
                    "SERVER_ERROR", said, maybe_billed=True, status=self.status, healthy=True
                )
            parts.append(part)
        return self._without_secrets(parts[0] if len(parts) == 1 else b"".join(parts))

    def _without_secrets(self, data: bytes) -> bytes:
        """``data`` without the credentials, should the server send them back."""
        for secret in self._hidden:
            if secret in data:
                data = data.replace(secret, b"[key]")
        return data

    def _shown(self, event: SseEvent) -> SseEvent:
        for secret in self._hidden:
            if secret in event.raw:
                event.raw = self._without_secrets(event.raw)
                event.data = self._without_secrets(event.data)
        return event

    async def events(self) -> AsyncIterator[SseEvent]:
        """The events of an event stream as they come.

        What a stream leaves unfinished at its end, or where it breaks off, is an event that is
        not ``complete``.

        Raises:
            ProviderError: the body is no event stream, holds an event that is too long, or breaks
                off.
        """
        parser = SseParser()
        failure = None
        try:
            if self.content_type != "text/event-stream":
                kind = self.content_type[:100] or "no content type"
                said = f"the answer is not an event stream ({kind}); is the base URL right?"
                raise ProviderError("SERVER_ERROR", said, maybe_billed=True, status=self.status)
            while True:
                try:
                    part = await self._piece()
                except ProviderError as error:
                    failure = error
                    break
                if not part:
                    break
                for event in parser.feed(part):
                    yield self._shown(event)
            if (rest := parser.end()) is not None:
                yield self._shown(rest)
            if failure is not None:
                raise failure
        finally:
            await self.aclose()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in pieces as they come, without a bound on the whole.

        Raises:
            ProviderError: it breaks off, or is compressed in a way that was not asked for.
        """
        try:
            while part := await self._piece():
                yield part
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Give the connection back where the body was read to its end, close it otherwise."""
        if self._closing:
            return
        self._closing = True
        content = self._response.content
        try:
            if self._response.connection is not None and not content.at_eof():
                # Behind a stream's last event its end is on the way: with it the connection
                # can be kept.
                async with asyncio.timeout(_END_S):
                    await content.readany()
        except _WIRE_ERRORS:
            pass
        finally:
            if content.at_eof():
                self._response.release()
            else:
                self._response.close()

    async def _piece(self) -> bytes:
        """What has come; empty at the end. Closes the connection where it cannot go on."""
        content = self._response.content
        inflate = self._inflate
        failure = self._failure
        if failure is None:
            try:
                if inflate is None:
                    return await content.readany()
                encoding = self.headers.get("content-encoding", "").strip().lower()
                if encoding in ("", "identity"):
                    self._inflate = None
                    return await content.readany()
                if encoding not in ("gzip", "x-gzip", "deflate"):
                    said = f"the answer is compressed in an unasked way ({encoding[:40]})"
                    raise ProviderError("SERVER_ERROR", said, maybe_billed=True, status=self.status)
                while not (piece := inflate.take()):
                    part = await content.readany()
                    if not part:
                        inflate.end()
                        return b""
                    inflate.give(part)
                return piece
            except _WIRE_ERRORS as error:
                failure = self._broken(error)
                # What came before it broke is still to be given.
                left = content._read_nowait(-1) if inflate is None else b""
            except BaseException:
                self._response.close()
                raise
            self._response.close()
            if left:
                self._failure = failure
                return left
        raise failure

    def _broken(self, error: BaseException) -> ProviderError:
        if isinstance(error, TimeoutError):
            code, said = "TIMEOUT", f"the answer stopped for {self._idle_s:g} s"
        else:
            code = "SERVER_ERROR"
            said = f"the connection broke while answering ({type(error).__name__})"
        return ProviderError(code, said, True, maybe_billed=True, status=self.status)


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    body: bytes
    headers: CIMultiDict[str]
    timeouts: Timeouts


class _Protocol(ResponseHandler):
    """One connection, and what came of its last request."""

    requests = 0
    heard = False

    @override
    def data_received(self, data: bytes) -> None:
        self.heard = True
        super().data_received(data)


class _Connector(aiohttp.TCPConnector):
    """Notes which connection the running call got."""

    def __init__(self, *, keep: bool) -> None:
        super().__init__(limit=0, force_close=not keep)
        self._factory = partial(  # type: ignore[assignment]  # of a subclass
            _Protocol, loop=asyncio.get_running_loop()
        )

    @override
    async def connect(self, *args: Any, **options: Any) -> Connection:
        connection = await super().connect(*args, **options)
        protocol = connection.protocol
        if isinstance(protocol, _Protocol):
            protocol.requests += 1
            protocol.heard = False
            _in_use.set(protocol)
        return connection


class _Pool:
    """The connections of one event loop."""

    def __init__(self) -> None:
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    def session(self, *, keep: bool) -> aiohttp.ClientSession:
        """Uses connections that wait, or a new one for each request."""
        session = self._sessions.get(keep)
        if session is None or session.closed:
            session = self._sessions[keep] = aiohttp.ClientSession(
                connector=_Connector(keep=keep),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return session

    async def aclose(self) -> None:
        for session in self._sessions.values():
            await session.close()


class _Inflate:
    """Decompresses gzip and deflate in pieces of bounded size, so that a bomb takes no memory."""

    def __init__(self) -> None:
        self._window = 0  # zlib's name for the format; 0: nothing has come
        self._stream: Any = None
        self._data = b""
        self._full = False
        self._members = 1

    def give(self, data: bytes) -> None:
        """Take a piece of the body; all of the one before must have been taken."""
        if not self._window:
            plain = data[0] & 0x0F == zlib.DEFLATED or data[:1] == b"\x1f"
            self._window = zlib.MAX_WBITS | 32 if plain else -zlib.MAX_WBITS
            self._stream = zlib.decompressobj(self._window)
        self._data = data

    def take(self) -> bytes:
        """The next decompressed piece; empty where more has to come."""
        while self._data or self._full:
            if self._stream.eof:  # gzip may hold several members
                self._members += 1
                if self._members > _MEMBERS:
                    raise zlib.error
                self._stream = zlib.decompressobj(self._window)
            piece: bytes = self._stream.decompress(self._data, _PIECE_BYTES)
            self._data = self._stream.unconsumed_tail or self._stream.unused_data
            # zlib may hold more than it was let to give, with nothing left to feed it.
            self._full = len(piece) == _PIECE_BYTES and not self._stream.eof
            if piece:
                return piece
        return b""

    def end(self) -> None:
        """Raises :class:`EOFError` where the compressed data is cut."""
        if self._stream is not None and not self._stream.eof:
            raise EOFError


def _basic(url: URL) -> str:
    pair = f"{url.user or ''}:{url.password or ''}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _secrets(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The values of headers, of ``Bearer`` and ``Basic`` what stands behind."""
    found: set[str] = set()
    for name, value in headers.items():
        if name.lower() == "accept-encoding":
            continue
        scheme, _, key = value.rpartition(" ")
        found.add(key if scheme.lower() in ("bearer", "basic") else value)
        if scheme.lower() == "basic":
            with contextlib.suppress(ValueError):
                found.add(base64.b64decode(key).decode().partition(":")[2])
    return tuple(sorted(text for text in found if len(text) >= _SECRET_CHARS))


def _proxy_for(url: URL) -> URL | None:
    """The proxy that the environment names for ``url``, as aiohttp's ``trust_env`` finds it."""
    try:
        proxy, credentials = get_env_proxy_for_url(url)
    except LookupError:
        return None
    if credentials is not None:
        proxy = proxy.with_user(credentials.login).with_password(credentials.password)
    return proxy


@lru_cache(64)
def _client_timeout(timeouts: Timeouts) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(
        total=None, connect=timeouts.connect_s, sock_read=timeouts.first_byte_s
    )
