"""Getting one answer out of a provider: held to its times, whatever the provider does."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import re
import time
from typing import Any, TypeGuard

from remit.gateway.validation import MAX_ID_CHARS
from remit.kernel.canonical import MAX_SAFE_INTEGER
from remit.kernel.errors import RemitError
from remit.kernel.exchange import (
    Reply,
    TextDelta,
    TextSink,
    ThinkingDelta,
    ToolInputDelta,
    ToolUseStart,
)
from remit.kernel.json_text import JsonTextError, dump, load
from remit.kernel.loops import call_in_thread
from remit.providers import (
    AsyncProvider,
    Dispatched,
    EventSink,
    Outgoing,
    Provider,
    ProviderError,
    ProviderReply,
    ProviderRequest,
    ProviderResponse,
    StreamingProvider,
    Timeouts,
    WireChunk,
    WireProvider,
)
from remit.providers.dialects import StreamReader, read_answer
from remit.providers.upstream import passed_on
from remit.providers.upstream_errors import error_of_event
from remit.providers.upstream_http import MAX_BODY_BYTES, UpstreamReply
from remit.providers.wire.answer import StreamSum
from remit.providers.wire.answers import error_in, facts, stream_sum

__all__ = ["ProtocolBrokenError", "StreamTap", "finite", "read_result", "send", "send_body"]

_log = logging.getLogger("remit.gateway")
_NO_USAGE = re.compile(rb',\s*"usage":\s*null')

AnyProvider = Provider | AsyncProvider | StreamingProvider | WireProvider


def has_dialect(provider: AnyProvider) -> TypeGuard[WireProvider]:
    """Whether a provider is sent bodies; ``isinstance`` of a protocol is slow."""
    return hasattr(provider, "outgoing")


class ProtocolBrokenError(ProviderError):
    """The provider object gave back something that is no answer."""


class StreamTap:
    """Listens to one attempt's stream: notes what it brings, and passes it on.

    A listener that raises is not called again; it changes nothing of the record.

    Args:
        on_text: wants the answer's text.
        sink: wants everything.
    """

    def __init__(self, on_text: TextSink | None, sink: EventSink | None) -> None:
        self._on_text = self.on_text = on_text
        self._sink = self.sink = sink
        self._parts: list[str] = []
        self._pieces = self._size = 0
        self._started = 0.0
        self._reader: StreamReader | None = None
        self.wanted = on_text is not None or sink is not None
        self.sum: StreamSum | None = None
        self.first_after_ms: float | None = None

    def start(self) -> None:
        """Begin an attempt: nothing of an earlier one is kept."""
        self._started = time.perf_counter()
        self._parts.clear()
        self._pieces = self._size = 0
        self.sum = self._reader = None

    @property
    def pieces(self) -> int:
        """How many pieces of content came."""
        return self._pieces if self.sum is None else self.sum.pieces

    @property
    def size(self) -> int:
        """Their bytes in UTF-8."""
        return self._size if self.sum is None else self.sum.size

    @property
    def text(self) -> str:
        """The answer's text as far as it came."""
        return "".join(self._parts) if self.sum is None else self.sum.text

    @property
    def input_tokens(self) -> int | None:
        """Those that were reported before the end."""
        usage = None if self.sum is None else self.sum.usage
        return None if usage is None else usage.input_tokens

    @property
    def began(self) -> bool:
        """Whether anything of the answer came: from then on no other model may answer."""
        return self.first_after_ms is not None

    async def dispatched(self, entry_id: str) -> None:
        """An attempt is about to be sent."""
        await self._pass(Dispatched(entry_id))

    async def chunk(self, chunk: WireChunk, *, begins: bool) -> None:
        """One event of a stream as it came; an error does not begin an answer."""
        if self._on_text is not None:
            try:
                if self._reader is None:
                    self._reader = StreamReader(chunk.endpoint)
                for event in self._reader.feed(chunk.value):
                    if type(event) is TextDelta:
                        self._tell_text(event.text)
            except RemitError as error:
                self._fell_silent(error)
        passed = await self._pass(chunk)
        # What the listener holds back binds nobody: another model may answer yet.
        if begins and not self.began and passed is not False:
            self._mark()

    async def event(self, event: Any) -> None:
        """One event of a stream in neutral form."""
        kind = type(event)
        text = ""
        if kind is TextDelta:
            text = event.text
            if not text:
                return
            self._parts.append(text)
        elif kind is ToolInputDelta:
            text = event.partial_json
        elif kind is ThinkingDelta:
            text = event.text
        elif kind is ToolUseStart:
            text = event.name
        self._pieces += 1
        self._size += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        if not self.began:
            self._mark()
        if kind is TextDelta and self._on_text is not None:
            self._tell_text(text)
        await self._pass(event)

    def _mark(self) -> None:
        self.first_after_ms = round((time.perf_counter() - self._started) * 1000, 3)

    def _tell_text(self, text: str) -> None:
        try:
            if self._on_text is not None:
                self._on_text(text)
        except Exception as error:  # noqa: BLE001 - a listener must not change the record
            self._fell_silent(error)

    async def _pass(self, event: Any) -> bool | None:
        if self._sink is None:
            return None
        try:
            return await self._sink(event)
        except Exception as error:  # noqa: BLE001 - a listener must not change the record
            self._fell_silent(error)
            return None

    def _fell_silent(self, error: Exception) -> None:
        self._on_text = self._sink = None
        _log.warning(
            "the listener of a stream raised %s; it is not called again", type(error).__name__
        )


def finite(seconds: Any) -> float | None:
    """A time that a provider object names, where it is one."""
    if isinstance(seconds, (int, float)) and math.isfinite(seconds):
        return max(0.0, float(seconds))
    return None


# -- on the wire ---------------------------------------------------------------------------


async def send_body(
    provider: WireProvider,
    outgoing: Outgoing,
    tap: StreamTap,
    timeouts: Timeouts,
    *,
    neutral: bool,
) -> ProviderResponse:
    """Send a body and read the answer along as it passes.

    Args:
        provider: who is asked.
        outgoing: what.
        tap: listens to the stream.
        timeouts: for each stage; a stream that goes on is not cut.
        neutral: whether the answer is wanted in neutral form, blocks and all.

    Raises:
        TimeoutError: nothing came in time.
        ProviderError: the provider said so, or broke its protocol.
    """
    tap.start()
    reply: ProviderReply = await provider.send(outgoing, timeouts)
    try:
        if outgoing.stream and "event-stream" in reply.content_type:
            return await _streamed(outgoing, reply, tap, neutral)
        if tap.sink is not None and isinstance(reply, UpstreamReply) and _is_data(reply):
            return await _data(outgoing, reply, tap)
        raw = await reply.read()
    finally:
        await reply.aclose()
    return _whole(outgoing, reply, raw, neutral)


async def _streamed(
    outgoing: Outgoing, reply: ProviderReply, tap: StreamTap, neutral: bool
) -> ProviderResponse:
    endpoint = outgoing.body.endpoint.name
    headers = passed_on(reply.headers)
    tap.sum = total = stream_sum(endpoint)
    unread: list[bytes] | None = []  # what came, as long as nothing of it can be read
    size = 0
    async for event in reply.events():
        value = total.add(event.name, event.data)
        error = error_of_event(value) if value is not None else None
        if error is None and event.name == "error":  # whatever its data is: so clients have it
            error = error_of_event({"type": "error", "error": value})
        last = error is not None or total.is_last()
        raw = event.raw
        if not event.complete:
            if not last:
                continue  # cut within an event: nobody can read it
            raw += b"\n\n"
        if unread is not None:
            if value is None and not last:
                unread.append(raw)
                size += len(raw)
            else:
                unread = None
        asked = (
            outgoing.asks_usage
            and type(value) is dict
            and value.get("choices") == []
            and value.get("usage") is not None
        )
        if outgoing.asks_usage and type(value) is dict and value.get("usage", 0) is None:
            raw = _without_usage(raw)
        await tap.chunk(
            WireChunk(
                endpoint, raw, event.name, value, last, asked, more=event.more, headers=headers
            ),
            begins=bool(event.data) and error is None,
        )
        if error is not None:
            raise error
        if last:
            break
        if size + total.size > MAX_BODY_BYTES:
            said = f"the answer is longer than {MAX_BODY_BYTES} bytes"
            raise ProviderError("SERVER_ERROR", said, maybe_billed=True)
    if unread and any(not raw.startswith(b":") for raw in unread):
        # Whole, and none of this API: it is the client's to judge.
        tap.sum = None
        return _answer(outgoing, reply, None, b"".join(unread), neutral)
    if not total.ended:
        raise ProviderError(
            "SERVER_ERROR", "the stream ended before the answer did", True, maybe_billed=True
        )
    value = total.answer()
    raw = dump(value)
    return _answer(outgoing, reply, value, raw, neutral)


def _without_usage(raw: bytes) -> bytes:
    """A chunk less the ``"usage": null`` that it has only because Remit asked for the usage."""
    return _NO_USAGE.sub(b"", raw) if raw.count(b'"usage"') == 1 else raw


def _is_data(reply: UpstreamReply) -> bool:
    kind = reply.content_type
    return bool(kind) and "json" not in kind and not kind.startswith("text/")


async def _data(outgoing: Outgoing, reply: UpstreamReply, tap: StreamTap) -> ProviderResponse:
    """Sound and the like, passed on as it comes; its hash stands for it on record."""
    endpoint, kind = outgoing.body.endpoint.name, reply.content_type
    headers = passed_on(reply.headers)
    digest, size, held = hashlib.sha256(), 0, b""
    async for piece in reply.chunks():
        if held:
            chunk = WireChunk(endpoint, held, "", None, content_type=kind, headers=headers)
            await tap.chunk(chunk, begins=True)
        digest.update(piece)
        size += len(piece)
        held = piece
    last = WireChunk(endpoint, held, "", None, is_last=True, content_type=kind, headers=headers)
    await tap.chunk(last, begins=True)
    told = {"content_type": kind, "bytes": size, "sha256": digest.hexdigest()}
    return _answer(outgoing, reply, None, dump(told), neutral=False)


def _whole(outgoing: Outgoing, reply: ProviderReply, raw: bytes, neutral: bool) -> ProviderResponse:
    endpoint = outgoing.body.endpoint.name
    try:
        value = load(raw)
    except JsonTextError:
        value = None
        if outgoing.body.endpoint.form and reply.content_type.startswith("text/"):
            value = raw.decode("utf-8", "replace")  # a transcript
    if value is not None and (error := error_of_event(value)) is not None:
        error.reply = Reply(endpoint, reply.status, passed_on(reply.headers), raw)
        raise error
    # A client gets what came, also what Remit cannot read: then nothing is known of its usage.
    return _answer(outgoing, reply, value, raw, neutral)


def _answer(
    outgoing: Outgoing, reply: ProviderReply, value: Any, raw: bytes, neutral: bool
) -> ProviderResponse:
    endpoint = outgoing.body.endpoint.name
    came = Reply(endpoint, reply.status, passed_on(reply.headers), raw)
    blocks: tuple[dict[str, Any], ...] = ()
    if neutral:
        if value is None or error_in(endpoint, value):
            raise _not_this_api(reply, raw)
        try:
            blocks = read_answer(endpoint, value).content_blocks
        except RemitError as error:
            raise _not_this_api(reply, raw) from error
    return _response(came, value, blocks)


def read_result(endpoint: str, status: int, raw: bytes) -> ProviderResponse:
    """An answer that did not come over a connection of its own: a line of a batch's results."""
    try:
        value = load(raw)
    except JsonTextError:
        value = None
    return _response(Reply(endpoint, status, (), raw), value)


def _response(came: Reply, value: Any, blocks: tuple[dict[str, Any], ...] = ()) -> ProviderResponse:
    found = facts(came.endpoint, value)
    usage = found.usage
    return ProviderResponse(
        content=found.text,
        model=found.model[:MAX_ID_CHARS],
        input_tokens=usage.input_tokens if usage else 0,
        output_tokens=usage.output_tokens if usage else 0,
        finish_reason=found.finish_reason,
        request_id=found.request_id,
        content_blocks=blocks,
        cached_input_tokens=(usage.cached_input_tokens or None) if usage else None,
        reasoning_tokens=(usage.reasoning_tokens or None) if usage else None,
        usage_reported=usage is not None,
        cache_write_tokens=(usage.cache_write_tokens or None) if usage else None,
        cache_write_short_tokens=(usage.cache_write_short_tokens or None) if usage else None,
        audio_input_tokens=(usage.audio_input_tokens or None) if usage else None,
        audio_output_tokens=(usage.audio_output_tokens or None) if usage else None,
        audio_seconds=found.units.get("seconds"),
        server_tool_uses=usage.server_tool_uses if usage else {},
        reply=came,
        more_than_text=found.more_than_text,
    )


def _not_this_api(reply: ProviderReply, raw: bytes) -> ProviderError:
    kind = reply.content_type or "no content type"
    return ProviderError(
        "SERVER_ERROR",
        f"the answer is none of this API ({kind}, {len(raw)} bytes); is the base URL right?",
        maybe_billed=True,
        healthy=True,
    )


# -- in neutral form -----------------------------------------------------------------------


async def send(
    provider: AnyProvider, request: ProviderRequest, tap: StreamTap, first_s: float | None = None
) -> ProviderResponse:
    """The answer of a provider in neutral form within ``request.timeout_s``.

    A provider that only blocks gets a thread. One that does not answer in time is cancelled
    and not waited for.

    Args:
        provider: who is asked.
        request: what.
        tap: listens to the stream.
        first_s: the longest until the first piece of the stream, where that is less.

    Raises:
        TimeoutError: the time ran out.
        ProviderError: the provider said so, or broke its protocol.
    """
    tap.start()
    # By their methods: looking a protocol up by isinstance costs more than the call itself.
    stream = getattr(provider, "astream", None)
    streams_text = hasattr(provider, "asend")
    pieces = _Pieces()
    if stream is not None:
        listener: Any = pieces.put if tap.wanted else None
        task = asyncio.ensure_future(_guarded(stream(request, listener)))
    elif streams_text:
        listener = pieces.put_text if tap.wanted else None
        task = asyncio.ensure_future(_guarded(provider.asend(request, on_text=listener)))  # type: ignore[union-attr]
    else:
        task = asyncio.ensure_future(_in_thread(provider, request))
    task.add_done_callback(pieces.end)
    try:
        async with asyncio.timeout(request.timeout_s if first_s is None else first_s) as limit:
            async for piece in pieces:
                if first_s is not None:
                    limit.reschedule(asyncio.get_running_loop().time() + request.timeout_s)
                    first_s = None
                await tap.event(piece)
            await asyncio.wait({task})
    except BaseException:
        _abandon(task)
        raise
    if task.cancelled():
        raise ProtocolBrokenError("SERVER_ERROR", "the provider cancelled itself", True)
    response = _checked(task.result())
    if tap.wanted and stream is None and not streams_text:
        await tap.event(TextDelta(response.content))
    return response


class _Pieces:
    """What a provider's callback brings, on its way to the tap."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    def put(self, event: Any) -> None:
        self._queue.put_nowait(event)

    def put_text(self, text: str) -> None:
        self._queue.put_nowait(TextDelta(text))

    def end(self, _: object) -> None:
        self._queue.put_nowait(self)

    def __aiter__(self) -> _Pieces:
        return self

    async def __anext__(self) -> Any:
        event = await self._queue.get()
        if event is self:
            raise StopAsyncIteration
        return event


def _checked(answer: Any) -> ProviderResponse:
    if not _is_answer(answer):
        raise ProtocolBrokenError(
            "SERVER_ERROR",
            f"the provider gave back a {type(answer).__name__} that is no ProviderResponse",
            maybe_billed=True,
        )
    response: ProviderResponse = answer
    return response


def _is_answer(answer: Any) -> bool:
    return (
        isinstance(answer, ProviderResponse)
        and isinstance(answer.content, str)
        and isinstance(answer.model, str)
        and len(answer.model) <= MAX_ID_CHARS
        and isinstance(answer.finish_reason, str)
        and len(answer.finish_reason) <= MAX_ID_CHARS
        and isinstance(answer.content_blocks, tuple)
        and all(isinstance(block, dict) for block in answer.content_blocks)
        and all(
            type(tokens) is int and 0 <= tokens <= MAX_SAFE_INTEGER
            for tokens in (answer.input_tokens, answer.output_tokens)
        )
    )


async def _guarded(answer: Any) -> Any:
    try:
        return await answer
    except (KeyboardInterrupt, SystemExit) as error:  # raised in a task, it would end the loop
        raise RuntimeError(type(error).__name__) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ProtocolBrokenError(
            "SERVER_ERROR", "the provider cancelled itself", True, maybe_billed=True
        ) from error


async def _in_thread(provider: Any, request: ProviderRequest) -> Any:
    value: Any = await call_in_thread("remit-provider", lambda: provider.send(request))
    return await value if asyncio.iscoroutine(value) else value


def _abandon(task: asyncio.Future[Any]) -> None:
    task.cancel()
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
