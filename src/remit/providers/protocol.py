"""What the gateway asks of a provider, and what it gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from remit.kernel.errors import RemitError
from remit.kernel.exchange import Message, StreamEvent, TextSink

__all__ = [
    "AsyncProvider",
    "EventSink",
    "Provider",
    "ProviderError",
    "ProviderRequest",
    "ProviderResponse",
    "StreamingProvider",
    "UsageReported",
    "WireChunk",
]

CODES = (
    "TIMEOUT",
    "RATE_LIMITED",
    "SERVER_ERROR",
    "AUTH_ERROR",
    "INVALID_REQUEST",
    "CONTENT_FILTERED",
    "CONTEXT_LENGTH",
)
"""The codes an adapter may give a :class:`ProviderError`."""


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """One call in neutral form (messages as in :mod:`remit.kernel.exchange`).

    Attributes:
        max_tokens: ``None`` leaves the end to the model.
        temperature: ``None`` sends none.
        response_schema: a JSON Schema to hold the output to.
        timeout_s: how long the gateway will wait, in seconds.
        parameters: further fields, as ``dialect`` (``openai`` or ``anthropic``) spells them.
    """

    model_id: str
    messages: tuple[Message, ...]
    max_tokens: int | None
    temperature: float | None
    timeout_s: float
    tools: tuple[Mapping[str, Any], ...] = ()
    response_schema: Mapping[str, Any] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    dialect: str | None = None


@dataclass(frozen=True, slots=True)
class ProviderResponse:
    """One answer in neutral form.

    Attributes:
        model: the model that answered, as the provider names it.
        finish_reason: ``stop``, ``length``, ``tool_use`` or ``content_filter``.
        cached: the provider answered from a cache of its own.
        content_blocks: text and tool_use blocks, when the provider sends blocks.
        cached_input_tokens: part of ``input_tokens`` read from a prompt cache, when reported.
        cache_write_tokens: part of ``input_tokens`` written to one, when reported;
            ``cache_write_short_tokens`` of them to be kept for the usual short time.
        reasoning_tokens: part of ``output_tokens`` that was thinking, when reported.
        usage_reported: ``False`` when the provider reported no token counts: then the call is
            charged at its upper bound.
        wire: the answer as it came, after the dialect it is in.
    """

    content: str
    model: str
    input_tokens: int
    output_tokens: int
    finish_reason: str = "stop"
    request_id: str = ""
    cached: bool = False
    content_blocks: tuple[dict[str, Any], ...] = ()
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    usage_reported: bool = True
    cache_write_tokens: int | None = None
    cache_write_short_tokens: int | None = None
    wire: tuple[str, bytes] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class WireChunk:
    """One event of a provider's stream as it came.

    Attributes:
        dialect: ``openai`` or ``anthropic``.
        name: the event's name; empty where the dialect has none.
        data: its data, JSON.
        value: the same, read.
    """

    dialect: str
    name: str
    data: bytes
    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UsageReported:
    """Token counts that came before the stream's end; ``None`` where none was reported."""

    input_tokens: int | None = None
    output_tokens: int | None = None


EventSink = Callable[[StreamEvent | WireChunk | UsageReported], None]
"""Receives what a stream brings, as it comes: each chunk as it came first, then what it says."""


class ProviderError(RemitError):
    """A call failed.

    Args:
        code: one of :data:`CODES`.
        message: what the provider said; no key in it.
        retryable: whether the same call may succeed a moment later.
        retry_after_s: how long the provider asked to wait, in seconds.
        maybe_billed: the request reached the provider and its usage was not reported.
        status: the HTTP status it answered with, where it answered with one.
        param: the request's field that it refused, as the provider names it.
    """

    def __init__(
        self,
        code: str,
        message: str,
        retryable: bool = False,
        *,
        retry_after_s: float | None = None,
        maybe_billed: bool = False,
        status: int | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.maybe_billed = maybe_billed
        self.status = status
        self.param = param

    @property
    def speaks_of_health(self) -> bool:
        """Whether a circuit breaker should count it.

        A refusal of one request does not; nor does being asked to come later, which a provider
        in the best of health does.
        """
        return self.code in ("TIMEOUT", "SERVER_ERROR")


class Provider(Protocol):
    """The least a provider must have. It may block; the gateway gives it a thread."""

    def send(self, request: ProviderRequest) -> ProviderResponse:
        """Answer one request; raises :class:`ProviderError`."""
        ...


@runtime_checkable
class AsyncProvider(Protocol):
    """A provider that does not block, and can stream."""

    async def asend(
        self, request: ProviderRequest, *, on_text: TextSink | None = None
    ) -> ProviderResponse:
        """Answer one request; with ``on_text``, streaming. Raises :class:`ProviderError`."""
        ...


@runtime_checkable
class StreamingProvider(Protocol):
    """A provider that passes on all of a stream, ends at once when cancelled, and keeps time."""

    async def astream(
        self, request: ProviderRequest, on_event: EventSink | None
    ) -> ProviderResponse:
        """Answer one request; with ``on_event``, streaming. Raises :class:`ProviderError`."""
        ...
