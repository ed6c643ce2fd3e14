"""HTTP to providers, byte for byte: requests go out and answers come back as they are.

Nothing is followed, rewritten or read ahead; what goes wrong is a :class:`ProviderError` that holds
no credential, also where the server echoes one.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import ssl
import weakref
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from multidict import CIMultiDict
from yarl import URL

from remit.providers.http_connection import BrokenError, HttpConnection
from remit.providers.inflate import Inflate
from remit.providers.protocol import ProviderError
from remit.providers.proxied_http import proxied, proxy_for
from remit.providers.sse import SseEvent, SseParser
from remit.providers.upstream_errors import hide

__all__ = ["HttpUpstream", "Timeouts", "UpstreamReply"]

MAX_BODY_BYTES = 64 * 1024 * 1024
_AT_ONCE_S = 0.25
_END_S = 0.01
_MOST_HEADS = 256
_KEPT_S = 15.0  # servers close what waits longer
_SECRET_CHARS = 8  # shorter ones are words that servers without keys are given, such as "ollama"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(r"/[!-~]*")
_BROKEN = (TimeoutError, BrokenError, ValueError, EOFError, zlib.error)


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
        self._headers = {name.lower(): value for name, value in every.items()}
        self._base_url = str(url)
        self.secrets = _secrets(every)
        self._hidden = tuple(secret.encode("utf-8", "surrogatepass") for secret in self.secrets)
        self._url = url
        # The environment's proxy is looked up once.
        self._proxy = proxy_for(url)
        self._heads: dict[tuple[str, str], bytes] = {}
        self._tls = ssl.create_default_context() if url.scheme == "https" else None
        self._kept: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, list[HttpConnection]] = (
            weakref.WeakKeyDictionary()
        )

    def __repr__(self) -> str:
        return f"HttpUpstream({self._base_url!r})"

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        for connection in self._kept.pop(asyncio.get_running_loop(), ()):
            connection.close()
        await asyncio.sleep(0)

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
        every = {name.lower(): value for name, value in headers.items()} | self._headers
        if self._proxy is not None:
            url = f"{self._base_url}{path}"
            answer: Answer = await proxied(
                method, url, body, every, timeouts, self._proxy, self.secrets
            )
            return await self._reply(answer, timeouts)
        head = self._head(method, path, len(body), every)
        loop = asyncio.get_running_loop()
        kept = self._kept.get(loop)
        if kept is None:
            kept = self._kept[loop] = []
        connection = None if anew else _waiting(kept, loop.time())
        if connection is None:
            connection = await self._connect(timeouts.connect_s)
        started = loop.time()
        failure = None
        try:
            await connection.request(head, body, timeouts.first_byte_s)
        except TimeoutError:
            said = f"no answer within {timeouts.first_byte_s:g} s"
            failure = ProviderError("TIMEOUT", said, True, maybe_billed=True)
        except BrokenError as error:
            at_once = loop.time() - started < _AT_ONCE_S
            failure = _broken_off(error, connection, at_once=at_once)
        except BaseException:
            connection.close()
            raise
        if failure is not None:
            connection.close()
            raise failure
        return await self._reply(_Own(connection, kept), timeouts)

    async def _reply(self, answer: Answer, timeouts: Timeouts) -> UpstreamReply:
        if 300 <= answer.status < 400 or answer.status == 101:
            await answer.close()
            raise self._not_followed(answer)
        return UpstreamReply(answer, timeouts.idle_s, self._hidden)

    def _head(self, method: str, path: str, size: int, headers: Mapping[str, str]) -> bytes:
        """Request line and headers.

        Raises:
            ProviderError: HTTP cannot carry them.
        """
        start = self._heads.get((method, path))
        if start is None:
            target = f"{self._url.raw_path.rstrip('/')}{path}"
            if _TARGET.fullmatch(target) is None or not method.isalpha():
                raise _unsendable()
            host = self._url.host_port_subcomponent or ""
            start = f"{method} {target} HTTP/1.1\r\nhost: {host}\r\naccept: */*\r\n".encode()
            if len(self._heads) < _MOST_HEADS:
                self._heads[(method, path)] = start
        lines = [start]
        for name, value in headers.items():
            if _NAME.fullmatch(name) is None or any(char in value for char in "\r\n\x00"):
                raise _unsendable()
            lines.append(f"{name}: {value}\r\n".encode("utf-8", "surrogateescape"))
        if size or method in ("POST", "PUT"):
            lines.append(b"content-length: %d\r\n" % size)
        lines.append(b"\r\n")
        return b"".join(lines)

    async def _connect(self, timeout_s: float) -> HttpConnection:
        url = self._url
        if url.scheme not in ("http", "https") or not url.host or not url.port:
            raise ProviderError("INVALID_REQUEST", f"{self._base_url} is not an HTTP address")
        failure = None
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    HttpConnection,
                    url.host,
                    url.port,
                    ssl=self._tls,
                    server_hostname=url.host if self._tls else None,
                )
        except TimeoutError:
            said = f"no connection to {self._base_url} within {timeout_s:g} s"
            failure = ProviderError("TIMEOUT", said, True)
        except UnicodeError:
            failure = _unsendable()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            said = hide(f"{self._base_url} cannot be reached: {why}", self.secrets)
            failure = ProviderError("SERVER_ERROR", said, True)
        if failure is not None:
            raise failure
        return connection

    def _not_followed(self, response: Answer) -> ProviderError:
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
        said = hide(said, self.secrets)
        return ProviderError("SERVER_ERROR", said, status=response.status, healthy=True)


class Answer(Protocol):
    """An answer as its connection gives it."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def at_end(self) -> bool:
        """Whether all of it has been taken."""
        ...

    async def piece(self, timeout_s: float) -> bytes:
        """What has come; empty at the end."""
        ...

    async def release(self) -> None:
        """Let the connection be used again."""
        ...

    async def close(self) -> None:
        """Close it."""
        ...


class _Own:
    """The answer on a connection of ours."""

    __slots__ = ("_connection", "_kept", "headers", "piece", "status")

    def __init__(self, connection: HttpConnection, kept: list[HttpConnection]) -> None:
        self._connection = connection
        self._kept = kept
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers
        self.piece = connection.piece

    @property
    def at_end(self) -> bool:
        return self._connection.at_end

    async def close(self) -> None:
        self._connection.close()

    async def release(self) -> None:
        connection = self._connection
        if connection.can_be_kept:
            connection.idle_since = asyncio.get_running_loop().time()
            self._kept.append(connection)
        else:
            connection.close()


def _waiting(kept: list[HttpConnection], now: float) -> HttpConnection | None:
    """The connection that waited least, where one can be used."""
    while kept:
        connection = kept.pop()
        if connection.is_open and now - connection.idle_since < _KEPT_S:
            return connection
        connection.close()
    return None


def _broken_off(error: BrokenError, connection: HttpConnection, *, at_once: bool) -> ProviderError:
    """Why there is no answer at all."""
    # A connection that had waited may be closed just as it is written to. Where no byte came back
    # and it failed at once, the server has not read the request.
    if connection.requests > 1 and not error.heard and at_once:
        said = "the connection had been closed while it waited"
        return ProviderError("SERVER_ERROR", said, True, stale=True, healthy=True)
    said = f"the connection broke before an answer came ({error})"
    if not error.is_http:
        said = "what came back is not HTTP; is the base URL right?"
    return ProviderError("SERVER_ERROR", said, True, maybe_billed=True)


def _unsendable() -> ProviderError:
    # A header, a path or a host that HTTP cannot carry.
    return ProviderError("INVALID_REQUEST", "the request cannot be put into HTTP")


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

    def __init__(self, response: Answer, idle_s: float, hidden: Sequence[bytes] = ()) -> None:
        self._response = response
        self._hidden = hidden
        self._idle_s = idle_s
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers
        kind = self.headers.get("content-type", "")
        self.content_type: str = kind.partition(";")[0].strip().lower()
        self._inflate = Inflate() if "content-encoding" in self.headers else None
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
                await self._response.close()
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
                left = len(events := parser.feed(part))
                for event in events:
                    left -= 1
                    event.more = left > 0
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
        answer = self._response
        if self._failure is None and not answer.at_end:
            # Behind a stream's last event its end is on the way: with it the connection can be
            # kept.
            with contextlib.suppress(*_BROKEN):
                await answer.piece(_END_S)
        await (answer.release() if answer.at_end else answer.close())

    async def _piece(self) -> bytes:
        """What has come; empty at the end, where the connection is given back."""
        piece = await self._next()
        if not piece and not self._closing:
            self._closing = True
            await self._response.release()
        return piece

    async def _next(self) -> bytes:
        """What has come; empty at the end. Closes the connection where it cannot go on."""
        answer, inflate = self._response, self._inflate
        try:
            if inflate is None:
                return await answer.piece(self._idle_s)
            encoding = self.headers.get("content-encoding", "").strip().lower()
            if encoding in ("", "identity"):
                self._inflate = None
                return await answer.piece(self._idle_s)
            if encoding not in ("gzip", "x-gzip", "deflate"):
                said = f"the answer is compressed in an unasked way ({encoding[:40]})"
                raise ProviderError("SERVER_ERROR", said, maybe_billed=True, status=self.status)
            while not (piece := inflate.take()):
                part = await answer.piece(self._idle_s)
                if not part:
                    inflate.end()
                    return b""
                inflate.give(part)
            return piece
        except _BROKEN as error:
            self._failure = self._broken(error)
        except BaseException:
            await answer.close()
            raise
        await answer.close()
        raise self._failure

    def _broken(self, error: BaseException) -> ProviderError:
        if isinstance(error, TimeoutError):
            code, said = "TIMEOUT", f"the answer stopped for {self._idle_s:g} s"
        else:
            code = "SERVER_ERROR"
            said = f"the connection broke while answering ({str(error) or type(error).__name__})"
        return ProviderError(code, said, True, maybe_billed=True, status=self.status)


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
