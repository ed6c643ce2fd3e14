"""An answer of a provider as it comes: whole, as a stream of events, or in pieces."""

from __future__ import annotations

import asyncio
import io
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from multidict import CIMultiDict

from remit.kernel.errors import let_go
from remit.providers.http_connection import BrokenError
from remit.providers.inflate import Inflate
from remit.providers.protocol import ProviderError
from remit.providers.sse import SseEvent, SseParser
from remit.providers.upstream_errors import hide

__all__ = ["MAX_BODY_BYTES", "Answer", "UpstreamReply"]

MAX_BODY_BYTES = 64 * 1024 * 1024
_LONG_EVENT = 64 * 1024
_LARGE_EVENT = 1024 * 1024  # others need not wait until it is taken apart
_BROKEN = (TimeoutError, BrokenError, ValueError, EOFError, zlib.error)


class Answer(Protocol):
    """An answer as its connection gives it."""

    @property
    def status(self) -> int:
        """Of HTTP."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in any case."""
        ...

    @property
    def at_end(self) -> bool:
        """Whether all of it has been taken."""
        ...

    async def piece(
        self, timeout_s: float, pass_on: Callable[[bytes], bool] | None = None
    ) -> bytes:
        """What has come; empty at the end.

        Args:
            timeout_s: the longest wait for more.
            pass_on: may be given what comes meanwhile; what it refuses comes back from here.
        """
        ...

    async def release(self) -> None:
        """Let the connection be used again, where it can be."""
        ...

    async def aclose(self) -> None:
        """Close it."""
        ...


def _without_secrets(headers: Mapping[str, str], hidden: Sequence[bytes]) -> Mapping[str, str]:
    """Return headers with each secret that a server sent back masked in the values."""
    said = "\n".join(headers.values())
    secrets = []
    for secret in hidden:
        text = secret.decode("utf-8", "surrogatepass")
        if text in said:
            secrets.append(text)
    if not secrets:
        return headers
    return CIMultiDict((name, hide(value, secrets)) for name, value in headers.items())


class UpstreamReply:
    """An answer whose headers are there. Its body is read once, by one of the three ways.

    Attributes:
        headers: case-insensitive, a name may be there more than once; of the body as the server
            sent it, so ``content-encoding`` and ``content-length`` are the wire's. Secrets of the
            request are masked in the values.
        waiting: bytes of an event that is not complete.
        content_type: without parameters, in lower case; empty where there is none.
    """

    __slots__ = (
        "_answer", "_hidden", "_idle_s", "_inflate", "_is_over", "content_type", "headers",
        "status", "waiting",
    )  # fmt: skip

    def __init__(self, answer: Answer, idle_s: float, hidden: Sequence[bytes] = ()) -> None:
        self._answer = answer
        self._hidden = hidden
        self._idle_s = idle_s
        self._is_over = False  # the connection is given back, or closed
        self.status: int = answer.status
        self.waiting = 0
        self.headers = _without_secrets(answer.headers, hidden)
        kind = self.headers.get("content-type", "")
        self.content_type: str = kind.partition(";")[0].strip().lower()
        encoding = self.headers.get("content-encoding", "").strip().lower()
        self._inflate = None if encoding in ("", "identity") else Inflate()

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

    async def read(
        self,
        most: int = MAX_BODY_BYTES,
        on_growth: Callable[[int], Awaitable[None]] | None = None,
    ) -> bytes:
        """Return the whole body.

        Args:
            most: bytes it may have.
            on_growth: is given the bytes that came so far after each piece but the first.

        Raises:
            ProviderError: it is longer, or breaks off.
        """
        data = await self._piece()
        if not self._is_over:
            whole = io.BytesIO()  # which gives its bytes away without another copy of them
            whole.write(data)
            while not self._is_over and whole.tell() <= most:
                whole.write(await self._piece())
                if on_growth is not None:
                    await on_growth(whole.tell())
            data = whole.getvalue()
        if len(data) > most:
            await self._give_up()
            said = f"the answer is longer than {most} bytes"
            raise ProviderError(
                "SERVER_ERROR", said, maybe_billed=True, status=self.status, healthy=True
            )
        for secret in self._hidden:  # should the server send it back
            if secret in data:
                data = data.replace(secret, b"[key]")
        return data

    async def events(
        self, pass_on: Callable[[bytes], bool] | None = None
    ) -> AsyncIterator[list[SseEvent]]:
        """Yield the events of an event stream, those together that came at once.

        A piece that leaves a long event incomplete yields no events, so that its reader sees how
        much is :attr:`waiting`.

        What a stream leaves unfinished at its end, or where it breaks off, is an event that is
        not ``complete``.

        Args:
            pass_on: is given whole events as they came, and takes them or refuses; those that it
                took are not given here. It does not raise.

        Raises:
            ProviderError: the body is no event stream, holds an event that is too long, or breaks
                off.
        """
        parser = SseParser()
        failure = None
        hidden = self._hidden

        def take(piece: bytes) -> bool:
            assert pass_on is not None
            if parser.waiting or piece[-2:] != b"\n\n" or b"\r" in piece:
                return False
            for secret in hidden:
                if secret in piece:
                    return False
            return pass_on(piece)

        direct = None if pass_on is None else take
        try:
            if self.content_type != "text/event-stream":
                kind = self.content_type[:100] or "no content type"
                said = f"the answer is not an event stream ({kind}); check the base URL"
                raise ProviderError("SERVER_ERROR", said, maybe_billed=True, status=self.status)
            while not self._is_over:
                try:
                    part = await self._piece(direct)
                except ProviderError as error:
                    failure = error
                    break
                if direct is not None and part and direct(part):
                    continue
                if not part:
                    continue
                if parser.waiting > _LARGE_EVENT and (b"\n\n" in part or b"\r" in part):
                    events = await asyncio.to_thread(parser.feed, part)
                else:
                    events = parser.feed(part)
                self.waiting = parser.waiting
                if events or self.waiting > _LONG_EVENT:
                    yield self._without_secrets(events)
            if (rest := parser.end()) is not None:
                yield self._without_secrets([rest])
            if failure is not None:
                raise failure
        finally:
            await self.aclose()

    def _without_secrets(self, events: list[SseEvent]) -> list[SseEvent]:
        for secret in self._hidden:
            for event in events:
                if secret in event.raw:
                    event.raw = event.raw.replace(secret, b"[key]")
                    event.data = event.data.replace(secret, b"[key]")
        return events

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in pieces as they come, without a bound on the whole.

        Raises:
            ProviderError: it breaks off, or is compressed in a way that was not asked for.
        """
        try:
            while not self._is_over:
                if part := await self._piece():
                    yield part
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Give the connection back where the body ends here, close it otherwise."""
        if not self._is_over:
            self._is_over = True
            await self._answer.release()

    async def _give_up(self) -> None:
        self._is_over = True
        await self._answer.aclose()

    async def _piece(self, pass_on: Callable[[bytes], bool] | None = None) -> bytes:
        """What has come; empty at the end. Behind its last piece it ``_is_over``."""
        if self._is_over:  # the connection may be another's by now
            return b""
        answer = self._answer
        try:
            if self._inflate is None:
                piece = await answer.piece(self._idle_s, pass_on)
                ends = answer.at_end
            else:
                piece = await self._inflated(self._inflate)
                ends = not piece
        except _BROKEN as error:
            failure = self._broken(error)
            let_go(error)  # its connection keeps it
        except BaseException:
            await self._give_up()
            raise
        else:
            if ends:
                self._is_over = True
                await answer.release()
            return piece
        await self._give_up()
        raise failure

    async def _inflated(self, inflate: Inflate) -> bytes:
        encoding = self.headers.get("content-encoding", "").strip().lower()
        if encoding not in ("gzip", "x-gzip", "deflate"):
            said = f"the answer uses an unrequested compression ({encoding[:40]})"
            raise ProviderError("SERVER_ERROR", said, maybe_billed=True, status=self.status)
        while not (piece := inflate.take()):
            part = await self._answer.piece(self._idle_s)
            if not part:
                inflate.end()
                return b""
            inflate.give(part)
        return piece

    def _broken(self, error: BaseException) -> ProviderError:
        if isinstance(error, TimeoutError):
            code, said = "TIMEOUT", f"the stream sent no data for {self._idle_s:g} s"
        else:
            code = "SERVER_ERROR"
            said = f"the connection broke while answering ({str(error) or type(error).__name__})"
        return ProviderError(code, said, True, maybe_billed=True, status=self.status)
