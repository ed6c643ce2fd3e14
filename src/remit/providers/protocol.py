"""What the gateway asks of a provider, and what it gets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msgspec import Struct

from remit.kernel.errors import RemitError
from remit.kernel.exchange import Message, Reply, StreamEvent, TextSink
from remit.providers.wire.body import Body

if TYPE_CHECKING:
    from remit.providers.sse import SseEvent
    from remit.providers.upstream_http import Timeouts

__all__ = [
    "AsyncProvider",
    "Dispatched",
    "EventSink",
    "NeutralSink",
    "Outgoing",
    "Provider",
    "ProviderError",
    "ProviderReply",
    "ProviderRequest",
    "ProviderResponse",
    "StreamingProvider",
    "WireChunk",
    "WireProvider",
]

CODES = (
    "TIMEOUT",
    "RATE_LIMITED",
    "SERVER_ERROR",
    "AUTH_ERROR",
    "INVALID_REQUEST",
    "CONTENT_FILTERED",
    "CONTEXT_LENGTH",
    "LOCAL_ERROR",
)
"""The codes an adapter may give a :class:`ProviderError`; the last: nothing was sent, for want of
something on this machine."""


class ProviderRequest(Struct, frozen=True, gc=False):
    """One call: in neutral form (messages as in :mod:`remit.kernel.exchange`), or as a body.

    Attributes:
        max_tokens: ``None`` leaves the end to the model.
        temperature: ``None`` sends none.
        response_schema: a JSON Schema to hold the output to.
        timeout_s: how long the gateway will wait, in seconds.
        stream: whether the answer is wanted in pieces.
        body: what a client sent, as it is on the wire; then nothing of the neutral form counts.
        headers: of the client's, which the provider may pass on.
        largest_output: most output tokens that the model can make, where that is known.
        max_completion_tokens: whether Chat Completions takes the limit by this name alone for the
            model, and no temperature.
        translate: the body is sent in the form of the provider's main endpoint, whatever it is in.
    """

    model_id: str
    messages: tuple[Message, ...]
    max_tokens: int | None
    temperature: float | None
    timeout_s: float
    tools: tuple[Mapping[str, Any], ...] = ()
    response_schema: Mapping[str, Any] | None = None
    stream: bool = False
    body: Body | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    largest_output: int | None = None
    max_completion_tokens: bool = False
    translate: bool = False


class ProviderResponse(Struct, frozen=True):
    """One answer in neutral form, and as it came.

    Attributes:
        model: the model that answered, as the provider names it.
        finish_reason: ``stop``, ``length``, ``tool_use``, ``content_filter`` or ``error``.
        cached: the provider answered from a cache of its own.
        content_blocks: text and tool_use blocks, when the provider sends blocks. Not made of
            answers to a body.
        cached_input_tokens: part of ``input_tokens`` read from a prompt cache, when reported.
        cache_write_tokens: part of ``input_tokens`` written to one, when reported;
            ``cache_write_short_tokens`` of them are reported as kept for the usual short time,
            ``cache_write_long_tokens`` for longer.
        reasoning_tokens: part of ``output_tokens`` that was thinking, when reported.
        audio_input_tokens: part of ``input_tokens`` that was sound, when reported;
            ``audio_output_tokens`` that of ``output_tokens``.
        audio_seconds: length of the sound that was read or made, when that is what is reported.
        usage_reported: ``False`` when the provider reported no token counts: then the call is
            charged at its upper bound.
        server_tool_uses: how often each tool ran that the provider runs.
        served: the service that the provider says it gave, by the field that asks for it.
        reply: the answer as it came, or as its stream adds up.
        more_than_text: whether ``content`` leaves out any of it.
        failure: the provider's own word for the end of an answer that failed; else empty.
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
    audio_input_tokens: int | None = None
    audio_output_tokens: int | None = None
    audio_seconds: float | None = None
    server_tool_uses: Mapping[str, int] = MappingProxyType({})
    reply: Reply | None = None
    more_than_text: bool = False
    cache_write_long_tokens: int | None = None
    served: Mapping[str, str] = MappingProxyType({})
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Dispatched:
    """An event for listeners of the stream: the intent of an attempt is durable."""

    dispatch_entry_id: str


class WireChunk(Struct, frozen=True):
    """One event of a provider's stream as it came.

    Attributes:
        endpoint: in whose form it is, as ``openai.chat``.
        raw: its exact bytes, with the line ends.
        name: the event's name; empty where the dialect has none.
        value: its data, read; ``None`` where it has none, or none that is JSON.
        is_last: whether the answer is complete with it.
        is_asked: whether it answers only what Remit asked for, and the client did not.
        content_type: of a body that is no stream of events, such as sound; else empty.
        more: whether the next one is at hand: they may go out together.
        headers: those of its answer that the client gets, lower case.
    """

    endpoint: str
    raw: bytes
    name: str
    value: Any
    is_last: bool = False
    is_asked: bool = False
    content_type: str = ""
    more: bool = False
    headers: tuple[tuple[str, str], ...] = ()


class EventSink(Protocol):
    """Receives what a stream brings."""

    async def take(self, event: StreamEvent | WireChunk | Dispatched) -> bool | None:
        """One event; the provider is not read on until it returns.

        ``False``: nothing has reached the client yet, so another model may still answer.
        """
        ...

    def pass_on(self, raw: bytes) -> bool:
        """Whole events behind the first, of the dialect of the chunks before, none the last.

        ``False``: not now; each is to be given to :meth:`take`.
        """
        ...


NeutralSink = Callable[[StreamEvent], None]
"""Receives what the stream of a provider in neutral form brings."""


class Outgoing(Struct, frozen=True, gc=False):
    """A call as it goes out.

    Attributes:
        body: what is sent, in the form of an endpoint of the provider's.
        headers: beside the provider's own.
        stream: whether the answer is asked for as a stream.
        asks_usage: whether Remit asked for the stream's usage, and the client did not.
        reconnect: whether it must use a new connection.
        method: of HTTP.
        path: behind the base URL, with its query; the endpoint's where empty.
    """

    body: Body
    headers: Mapping[str, str]
    stream: bool
    asks_usage: bool = False
    reconnect: bool = False
    method: str = "POST"
    path: str = ""


class ProviderReply(Protocol):
    """An answer as it comes: a :class:`~remit.providers.upstream_reply.UpstreamReply`, or alike."""

    @property
    def status(self) -> int:
        """Of HTTP."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in any case."""
        ...

    @property
    def content_type(self) -> str:
        """Without parameters, lower case."""
        ...

    async def read(self) -> bytes:
        """All of it; raises :class:`ProviderError`."""
        ...

    def events(
        self, pass_on: Callable[[bytes], bool] | None = None
    ) -> AsyncIterator[list[SseEvent]]:
        """The events of a stream, those together that came at once; raises
        :class:`ProviderError`.

        Args:
            pass_on: may be given whole events as they came; those that it takes are not given
                here.
        """
        ...

    async def aclose(self) -> None:
        """Let go of the connection; what was not read is given up."""
        ...


class ProviderError(RemitError):
    """A call failed.

    Args:
        code: one of :data:`CODES`.
        message: what the provider said; no key in it.
        retryable: whether the same call may succeed a moment later.
        retry_after_s: how long the provider asked to wait, in seconds.
        maybe_billed: the request reached the provider and its usage was not reported; an error
            that the provider states itself costs what it had put out by then.
        status: the HTTP status it answered with, where it answered with one.
        param: the request's field that it refused, as the provider names it.
        reply: the answer as it came, where there was one.
        stale: the connection had been kept open, and was closed just as the request went out:
            nothing is wrong, and the request is to be sent again on a new one.
        healthy: the provider is in good health though the code speaks against it.
        to_translate: the server has no such endpoint just now: the call can be sent in the form
            of the provider's main one.

    Attributes:
        answer: what had come of the answer, where the provider reported its usage.
    """

    answer: ProviderResponse | None = None

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
        reply: Reply | None = None,
        stale: bool = False,
        healthy: bool = False,
        to_translate: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.maybe_billed = maybe_billed
        self.status = status
        self.param = param
        self.reply = reply
        self.stale = stale
        self.healthy = healthy
        self.to_translate = to_translate

    @property
    def speaks_of_health(self) -> bool:
        """Whether a circuit breaker should count it.

        A refusal of one request does not; nor does being asked to come later, which a provider
        in the best of health does.
        """
        return self.code in ("TIMEOUT", "SERVER_ERROR") and not self.healthy


@runtime_checkable
class WireProvider(Protocol):
    """A provider that is spoken to in a dialect: bodies go out, answers come back as they are."""

    def outgoing(self, request: ProviderRequest) -> Outgoing:
        """What would be sent.

        Raises:
            ProviderError: the request asks for what this provider cannot be asked.
        """
        ...

    async def send(self, outgoing: Outgoing, timeouts: Timeouts) -> ProviderReply:
        """Send it; returns when the answer begins.

        Raises:
            ProviderError: there is no answer, or it is a refusal.
        """
        ...


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
        self, request: ProviderRequest, on_event: NeutralSink | None
    ) -> ProviderResponse:
        """Answer one request; with ``on_event``, streaming. Raises :class:`ProviderError`."""
        ...
