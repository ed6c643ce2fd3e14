"""Getting one answer out of a provider: held to a time, whatever the provider does."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import dataclass
from typing import Any

from remit.gateway.validation import MAX_ID_CHARS
from remit.kernel.canonical import MAX_SAFE_INTEGER
from remit.kernel.exchange import TextDelta, TextSink, ThinkingDelta, ToolInputDelta, ToolUseStart
from remit.kernel.loops import call_in_thread
from remit.providers import (
    AsyncProvider,
    EventSink,
    Provider,
    ProviderError,
    ProviderRequest,
    ProviderResponse,
    StreamingProvider,
    UsageReported,
    WireChunk,
)

__all__ = ["Dispatched", "ProtocolBrokenError", "StreamTap", "finite", "send"]

_log = logging.getLogger("remit.gateway")


class ProtocolBrokenError(ProviderError):
    """The provider object gave back something that is no answer."""


@dataclass(frozen=True, slots=True)
class Dispatched:
    """An event for listeners of the stream: the intent of an attempt is durable."""

    dispatch_entry_id: str


class StreamTap:
    """Listens to one attempt's stream: notes what it brings, and passes it on.

    A listener that raises is not called again; it changes nothing of the record.

    Args:
        on_text: wants the answer's text.
        on_event: wants everything.
        dialect: that the caller speaks: pieces of another's wire are not passed on to it.
    """

    def __init__(
        self, on_text: TextSink | None, on_event: EventSink | None, dialect: str | None = None
    ) -> None:
        self._on_text = self.on_text = on_text
        self._on_event = self.on_event = on_event
        self._dialect = dialect
        self._parts: list[str] = []
        self._started = 0.0
        self.wanted = on_text is not None or on_event is not None
        self.pieces = 0
        self.size = 0
        self.usage: UsageReported | None = None
        self.first_after_ms: float | None = None

    def start(self) -> None:
        """Begin an attempt: nothing of an earlier one is kept."""
        self._started = time.perf_counter()
        self._parts.clear()
        self.pieces = self.size = 0
        self.usage = None

    def dispatched(self, entry_id: str) -> None:
        """An attempt is about to be sent."""
        if self._on_event is not None:
            self._tell(self._on_event, Dispatched(entry_id))

    @property
    def text(self) -> str:
        """The answer's text as far as it came."""
        return "".join(self._parts)

    @property
    def began(self) -> bool:
        """Whether anything of the answer came: from then on no other model may answer."""
        return self.first_after_ms is not None

    def take_text(self, text: str) -> None:
        """A piece from a provider that streams text alone."""
        if text:
            self.take(TextDelta(text))

    def take(self, event: Any) -> None:
        """One event of the stream."""
        kind = type(event)
        if kind is TextDelta:
            self._parts.append(event.text)
            self._arrived(event.text)
            if self._on_text is not None:
                self._tell(self._on_text, event.text)
        elif kind is ToolInputDelta:
            self._arrived(event.partial_json)
        elif kind is ThinkingDelta:
            self._arrived(event.text)
        elif kind is ToolUseStart:
            self._arrived(event.name)
        elif kind is UsageReported:
            self.usage = event
            return
        elif (
            kind is WireChunk
            and self._on_event is not None
            and not self.began
            and event.dialect == (self._dialect or event.dialect)
        ):
            self._mark()  # the listener passes it on: the client has seen this answer begin
        if self._on_event is not None:
            self._tell(self._on_event, event)

    def _arrived(self, text: str) -> None:
        self.pieces += 1
        self.size += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        if self.first_after_ms is None:
            self._mark()

    def _mark(self) -> None:
        self.first_after_ms = round((time.perf_counter() - self._started) * 1000, 3)

    def _tell(self, listener: Any, what: Any) -> None:
        try:
            listener(what)
        except Exception as error:  # noqa: BLE001 - a listener must not change the record
            self._on_text = self._on_event = None
            _log.warning(
                "the listener of a stream raised %s; it is not called again", type(error).__name__
            )


def finite(seconds: Any) -> float | None:
    """A time that a provider object names, where it is one."""
    if isinstance(seconds, (int, float)) and math.isfinite(seconds):
        return max(0.0, float(seconds))
    return None


async def send(
    provider: Provider | AsyncProvider | StreamingProvider,
    request: ProviderRequest,
    tap: StreamTap,
    first_s: float | None = None,
) -> ProviderResponse:
    """The provider's answer within ``request.timeout_s``.

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
    if stream is not None:
        task = asyncio.ensure_future(_whole_stream(stream, request, tap))
    elif streams_text:
        task = asyncio.ensure_future(_guarded(provider, request, tap))
    else:
        task = asyncio.ensure_future(_in_thread(provider, request))
    try:
        done, left_s = set[Any](), request.timeout_s
        if first_s is not None:
            done, _ = await asyncio.wait({task}, timeout=first_s)
            left_s = max(0.0, left_s - first_s) if tap.pieces else 0.0
        if not done and left_s:
            done, _ = await asyncio.wait({task}, timeout=left_s)
    except asyncio.CancelledError:
        _abandon(task)
        raise
    if not done:
        _abandon(task)
        raise TimeoutError
    if task.cancelled():
        raise ProtocolBrokenError("SERVER_ERROR", "the provider cancelled itself", True)
    response = _checked(task.result())
    if tap.wanted and stream is None and not streams_text:
        tap.take_text(response.content)
    return response


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


async def _whole_stream(stream: Any, request: ProviderRequest, tap: StreamTap) -> Any:
    try:
        return await stream(request, tap.take if tap.wanted else None)
    except (KeyboardInterrupt, SystemExit) as error:  # raised in a task, it would end the loop
        raise RuntimeError(type(error).__name__) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ProtocolBrokenError(
            "SERVER_ERROR", "the provider cancelled itself", True, maybe_billed=True
        ) from error


async def _guarded(provider: Any, request: ProviderRequest, tap: StreamTap) -> Any:
    try:
        return await provider.asend(request, on_text=tap.take_text if tap.wanted else None)
    except (KeyboardInterrupt, SystemExit) as error:  # raised in a task, it would end the loop
        raise RuntimeError(type(error).__name__) from error


async def _in_thread(provider: Any, request: ProviderRequest) -> Any:
    value: Any = await call_in_thread("remit-provider", lambda: provider.send(request))
    return await value if asyncio.iscoroutine(value) else value


def _abandon(task: asyncio.Future[Any]) -> None:
    task.cancel()
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
