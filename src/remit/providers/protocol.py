"""The protocol between the gateway and a provider: requests, responses, streams and errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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
    from remit.providers.wire.answer import StreamSum

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
    """A call, in neutral form (messages as in :mod:`remit.kernel.exchange`) or as a body.

    Attributes:
        model_id: the provider's name of the model.
        messages: the conversation in neutral form.
        max_tokens: output limit; ``None`` sends none.
        temperature: temperature; ``None`` sends none.
        timeout_s: the longest wait of the gateway, in seconds.
        tools: tool definitions in neutral form.
        response_schema: JSON Schema that the output must match; ``None`` for any output.
        stream: True if the answer is wanted as a stream.
        body: a client's body as received; if there is one, the neutral form is ignored.
        headers: headers of the client, some of which the provider forwards.
        largest_output: largest number of output tokens of the model; ``None`` if it is unknown.
        max_completion_tokens: True if Chat Completions accepts the model's output limit only under
            this name and accepts no temperature.
        translate: True to send the body in the form of the provider's main endpoint.
        query: the query of the client's URL, which is sent with a body that is not translated.
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
    query: str = ""


class ProviderResponse(Struct, frozen=True):
    """An answer in neutral form, and as received; immutable.

    Attributes:
        content: the joined text of the answer.
        model: the model that answered, by the provider's name.
        finish_reason: ``stop``, ``length``, ``tool_use``, ``content_filter`` or ``error``.
        cached: True if the provider answered from a cache of answers.
        content_blocks: text and tool_use blocks; empty for answers to a body.
        cached_input_tokens: input tokens read from a prompt cache; ``None`` if not reported.
        cache_write_tokens: input tokens written to a prompt cache; ``None`` if not reported.
        cache_write_short_tokens: written tokens with ordinary retention; ``None`` if not reported.
        cache_write_long_tokens: written tokens with long retention; ``None`` if not reported.
        reasoning_tokens: output tokens of reasoning; ``None`` if not reported.
        audio_input_tokens: input tokens of audio; ``None`` if not reported.
        audio_output_tokens: output tokens of audio; ``None`` if not reported.
        audio_seconds: length of audio that was read or made; ``None`` if not reported.
        usage_reported: False if the provider reported no token counts, so that the call is charged
            at its upper bound. A count that is no integer from 0 to 2⁵³ - 1 has the same effect.
        server_tool_uses: number of uses of each tool that the provider runs.
        served: the service levels that the provider states, by the request field that selects them.
        reply: the answer as received, or as assembled from its stream.
        more_than_text: True if ``content`` omits a part of the answer.
        failure: the provider's word for the end of a failed answer; empty otherwise.
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
    """The event that the ``DISPATCH`` of an attempt is durable, before the request is sent.

    Attributes:
        dispatch_entry_id: the id of the ``DISPATCH``.
        dropped: the client's names of fields that do not reach the provider as sent.
        created: the time that a translated stream states, in seconds since 1970; 0 for the time of
            its first event.
    """

    dispatch_entry_id: str
    dropped: Sequence[str] = ()
    created: int = 0


class WireChunk(Struct, frozen=True):
    """An event of a provider's stream as received.

    Attributes:
        endpoint: the endpoint whose form the event has, such as ``openai.chat``.
        raw: exact bytes, with the line ends.
        name: name of the event; empty if the dialect names none.
        value: the parsed data; ``None`` without data or if the data is not JSON.
        is_last: True if the event completes the answer.
        is_asked: True if only Remit, and not the client, asked for the event.
        content_type: content type of a body that is not an event stream, such as audio; else empty.
        more: True if the next event is available, so that both can be sent together.
        headers: headers of the answer that the client receives, with lower-case names.
        total: the sum of the stream, this event included; None without one.
        events: the event in neutral form, for a client of another dialect or of text; else None.
        has_data: False for an event without data, such as a comment or ``retry: 3000``.
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
    total: StreamSum | None = None
    events: list[StreamEvent] | None = None
    has_data: bool = True


class EventSink(Protocol):
    """A receiver of a stream's events, implemented by the server and passed to the gateway."""

    async def take(self, event: StreamEvent | WireChunk | Dispatched) -> bool | None:
        """Take an event; the provider is not read until this returns.

        Returns:
            ``False`` if nothing has reached the client yet, so that another model may answer;
                otherwise ``True`` or None.
        """
        ...

    def release(self) -> bool:
        """Pass on the held chunks without content, because no other chunk follows soon.

        A sink without this method keeps them until content follows.

        Returns:
            ``True`` if a part of the answer has reached the client now or before.
        """
        ...

    def pass_on(self, raw: bytes) -> bool:
        """Take complete events after the first one; none of them is the last.

        Args:
            raw: exact bytes of events in the dialect of the previous chunks.

        Returns:
            ``False`` if each event must be given to :meth:`take` instead.
        """
        ...


NeutralSink = Callable[[StreamEvent], None]
"""Receives what the stream of a provider in neutral form brings."""


class Upload(Struct, frozen=True, gc=False):
    """A body that is sent while it arrives.

    Attributes:
        pieces: the bytes of the body. Any exception that the iterator raises ends the request
            before the provider has it whole.
        length: the number of bytes; None if it is unknown.
    """

    pieces: AsyncIterator[bytes]
    length: int | None


class Outgoing(Struct, frozen=True, gc=False):
    """A request as sent.

    Attributes:
        body: the body, in the form of an endpoint of the provider.
        headers: headers in addition to the provider's own.
        stream: True if the answer is requested as a stream.
        asks_usage: True if Remit, and not the client, asked for the stream's usage.
        reconnect: True if the request must use a new connection.
        method: HTTP method.
        path: path after the base URL, with its query; empty for the path of the endpoint.
        dropped: the client's names of fields that do not reach the provider as sent.
        upload: the bytes to send in place of the body's text; None to send the text.
    """

    body: Body
    headers: Mapping[str, str]
    stream: bool
    asks_usage: bool = False
    reconnect: bool = False
    method: str = "POST"
    path: str = ""
    dropped: Sequence[str] = ()
    upload: Upload | None = None


class ProviderReply(Protocol):
    """An answer while it is received; its reader closes it with :meth:`aclose`.

    :class:`~remit.providers.upstream_reply.UpstreamReply` is the answer over HTTP.
    """

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; names are case-insensitive."""
        ...

    @property
    def content_type(self) -> str:
        """The content type without parameters, in lower case."""
        ...

    async def read(self) -> bytes:
        """Return the whole body. The body can be read only once.

        Raises:
            ProviderError: the body is too long, or the connection breaks.
        """
        ...

    def events(
        self, pass_on: Callable[[bytes], bool] | None = None
    ) -> AsyncIterator[list[SseEvent]]:
        """Yield the events of a stream; events that came together are in one list, which may be
        empty.

        Args:
            pass_on: may receive complete events as bytes; events that it takes are not yielded.

        Raises:
            ProviderError: the body is not an event stream, or the connection breaks.
        """
        ...

    async def aclose(self) -> None:
        """Release the connection and discard the unread part of the body."""
        ...


UNREACHABLE = "cannot be reached"
"""The cause, and words of its message: no connection to a provider or proxy can be opened.

The server hides the rest of such a message, which names an address.
"""
UNSENT = "no part of the request was sent"
"""The note of a cancellation that came before there was a connection."""
NOT_THIS_API = "the answer does not have the format of this API"
"""The cause, and the beginning of its message: an answer has another format."""


class ProviderError(RemitError):
    """The failure of a call of a provider.

    Args:
        code: one of :data:`CODES`.
        message: the provider's message, without any key.
        retryable: True if the same call may succeed a moment later.
        retry_after_s: wait that the provider asked for, in seconds; ``None`` if it asked for none.
        maybe_billed: True if the provider may have received the request and reported no usage. An
            error that the provider states itself costs the output before it.
        status: HTTP status of the answer; ``None`` without an answer.
        param: refused field of the request, by the provider's name; ``None`` if unknown.
        reply: the answer as received; ``None`` without an answer.
        stale: True if a pooled connection was closed just when the request was sent; the request is
            to be sent again on a new connection.
        healthy: True if the provider is healthy although ``code`` suggests otherwise.
        to_translate: True if the server has no such endpoint at present, so that the call can be
            sent in the form of the provider's main endpoint.
        to_unfold: True if the server does not store the previous response any more, so that the
            call can be sent with the whole conversation.

    Attributes:
        answer: the received part of the answer.
        cause: :data:`UNREACHABLE` or :data:`NOT_THIS_API`; empty for any other failure.
    """

    answer: ProviderResponse | None = None
    cause = ""

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
        to_unfold: bool = False,
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
        self.to_unfold = to_unfold

    @property
    def speaks_of_health(self) -> bool:
        """True if a circuit breaker must count the error: ``TIMEOUT`` or ``SERVER_ERROR``, unless
        healthy.

        Refusals of a single request and rate limits do not count.
        """
        return self.code in ("TIMEOUT", "SERVER_ERROR") and not self.healthy


@runtime_checkable
class WireProvider(Protocol):
    """A provider with a dialect: bodies are sent, and answers are received as they are.

    The gateway takes a request from :meth:`outgoing`, records it, and sends it with :meth:`send`.
    """

    def outgoing(self, request: ProviderRequest) -> Outgoing:
        """Return the request that would be sent.

        Raises:
            ProviderError: ``INVALID_REQUEST``: the provider cannot express or do what is requested.
        """
        ...

    async def send(self, outgoing: Outgoing, timeouts: Timeouts) -> ProviderReply:
        """Send a request once and return the reply as soon as the answer begins.

        Args:
            outgoing: the request.
            timeouts: limits of the waits.

        Returns:
            The reply, whose body is unread; the caller closes it.

        Raises:
            ProviderError: there is no answer, or the provider refused the request.
        """
        ...


class Provider(Protocol):
    """The smallest provider: answers in neutral form, without streams.

    The gateway runs ``send`` in a thread, and gives a stream's client the whole answer as one
    piece.
    """

    def send(self, request: ProviderRequest) -> ProviderResponse:
        """Answer a request. May block.

        Raises:
            ProviderError: the call failed.
        """
        ...


@runtime_checkable
class AsyncProvider(Protocol):
    """A provider that does not block and can stream text.

    The gateway prefers ``asend`` to ``send``. If the call takes too long, the task is cancelled and
    not awaited.
    """

    async def asend(
        self, request: ProviderRequest, *, on_text: TextSink | None = None
    ) -> ProviderResponse:
        """Answer a request, and return the whole answer, also if its text was streamed.

        Args:
            request: the request in neutral form.
            on_text: called with each piece of text when it arrives; None if the answer is not
                streamed.

        Raises:
            ProviderError: the call failed.
        """
        ...


@runtime_checkable
class StreamingProvider(Protocol):
    """A provider that forwards all events of a stream.

    The gateway prefers ``astream`` to ``asend`` and ``send``. Such a provider ends at once if
    cancelled, and keeps to ``timeout_s`` of the request.
    """

    async def astream(
        self, request: ProviderRequest, on_event: NeutralSink | None
    ) -> ProviderResponse:
        """Answer a request, and return the whole answer, also if it was streamed.

        Args:
            request: the request in neutral form.
            on_event: called with each event when it arrives; None if the answer is not streamed.

        Raises:
            ProviderError: the call failed.
        """
        ...
