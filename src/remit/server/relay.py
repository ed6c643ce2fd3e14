"""A stream on its way from a provider to a client.

A provider of the client's own dialect is passed on byte by byte; another one's stream is
translated. The last event is held back until the exchange is durable, so that a client that has
seen the end of an answer can rely on its record.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from remit.gateway import Dispatched
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptResponse, RouteOutcome
from remit.providers import Body, WireChunk
from remit.providers.dialects import own_events, read_request, stream_events, stream_writer
from remit.providers.sse import SseParser
from remit.providers.wire import GENERATE, member_at
from remit.server.answers import answer_of, end_comment, failure
from remit.server.refusals import HttpError, error_event, status_of
from remit.server.request import Request
from remit.server.responses.call import ResponseCall
from remit.server.responses.response_stream import stream_of

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_OPENING = frozenset(
    ("message_start", "ping", "response.created", "response.queued", "response.in_progress")
)
"""Types of events that announce an answer and hold none of it."""
_DONE = b"data: [DONE]\n\n"
_MAX_OPENING = 3  # events: pings are then passed on, so that the client does not give up


class Relay:
    """The stream of an answer.

    The gateway calls ``take`` and ``pass_on``, the server the rest.

    The object serves one call: after the call, :meth:`finish`, :meth:`all_at_once` or
    :meth:`break_off` ends the stream. No event is sent before the first one with content, or the
    fourth event: until then another attempt can still answer. An event without data, such as a
    comment, is sent at once, because it keeps the client waiting, after the events before it.
    :meth:`release` ends the wait for content.

    Args:
        body: the client's request.
        request: where the stream is written.
        keeper: the stored response, for the Responses endpoint.

    Attributes:
        started: True if the client has received anything, such as a comment.
        begun: True if the client has received a part of the answer, or is about to.
    """

    def __init__(self, body: Body, request: Request, keeper: ResponseCall | None = None) -> None:
        self.started = False
        self._body = body
        self._keeper = keeper
        self._endpoint = body.endpoint.name
        self._request = request
        self._dispatch = ""
        self._created = 0
        self._dropped: Sequence[str] = ()
        self._held = b""
        self._ready: list[bytes] = []  # Events of one read, or held back.
        self._has_chunk = False  # True if one of them does more than announce an answer.
        self.begun = False
        self._writer: Any = None
        self._problem: RemitError | None = None
        self._kind = b""  # Content type of an answer that is not an event stream.
        self._passed: tuple[tuple[str, str], ...] = ()
        self._has_whole = False  # True if an event of the provider was a whole answer.

    @property
    def holds(self) -> bool:
        """True if the provider's last event has arrived."""
        return bool(self._held)

    async def take(self, event: Any) -> bool:
        """Handle an event of the gateway, then wait until the client's connection accepts more.

        The provider's last event is held back for :meth:`finish`. A new attempt drops unsent
        events. An event that cannot be translated is not raised here but by :meth:`finish`.

        Args:
            event: a chunk of the provider, a neutral event, or the dispatch of an attempt.

        Returns:
            :attr:`begun`.
        """
        kind = type(event)
        if kind is WireChunk and event.endpoint == self._endpoint and event.events is None:
            self._pass_on(event)
        elif kind is Dispatched:
            self._dispatch, self._dropped = event.dispatch_entry_id, event.dropped
            self._created = event.created
            self._held = b""
            if not self.begun:  # Another attempt may answer in another dialect.
                self._forget()
        elif kind is WireChunk and not event.has_data:
            is_comment = event.raw.startswith(b":")
            if is_comment and self._writer is not None and self._endpoint != GENERATE.name:
                self._write(event.raw)
        elif self._problem is None:
            try:
                self._translate(event.events if kind is WireChunk else [event])
            except RemitError as error:
                # The traceback would keep all received data alive.
                self._problem = error.with_traceback(None)
        if self._request.full:
            await self._request.drain()
        return self.begun

    def release(self) -> bool:
        """Send the events that are held back, unless they only announce an answer.

        Returns:
            :attr:`begun`.
        """
        if self._has_chunk and not self.begun:
            self.begun = True
            self._write(self._taken())
            self._request.push()
        return self.begun

    def _forget(self) -> None:
        """Drop the unsent events and the state of an earlier attempt."""
        self._held = self._kind = b""
        self._problem = self._writer = None
        if self._keeper is not None:
            self._keeper.writer = None
        self._passed = ()
        self._has_whole = False
        self._ready.clear()
        self.begun = self._has_chunk = False

    def pass_on(self, raw: bytes) -> bool:
        """Send complete events in the client's dialect, none of which is the last.

        Args:
            raw: the events, as the provider sent them.

        Returns:
            False if they were not sent: then :meth:`take` must handle each event. That is so before
                the answer began, for a translated stream, and while earlier data is unsent.
        """
        return self.begun and self._writer is None and self._request.offer(raw)

    def _pass_on(self, event: WireChunk) -> None:
        if not self.started:
            self._kind = event.content_type.encode("latin-1", "replace")
            self._passed = event.headers
        raw, total = event.raw, event.total
        if total is not None and total.is_whole and not self._has_whole:
            self._has_whole = True
            if self._endpoint != GENERATE.name:  # Its events have the form of a whole answer.
                parser = SseParser()
                whole = next(iter(parser.feed(raw)), None) or parser.end()  # It may end with CR CR.
                events = self._own_events(b"" if whole is None else whole.data)
                raw = b"".join(one for one in events if event.is_last or one != _DONE)
        if event.is_last:
            self._held = raw
        elif not self.begun and not self._ready and not event.has_data:
            self._write(raw)
        elif not event.is_asked:
            self._ready.append(raw)
            self.begun = self.begun or not self._opens(event)
        if self._ready and self.begun and (event.is_last or not event.more):
            self._write(self._taken())

    def _opens(self, event: WireChunk) -> bool:
        """Return True if an event has no content and is one of the first three."""
        value, total = event.value, event.total
        if type(value) is not dict or len(self._ready) > _MAX_OPENING:
            return False
        if value.get("type") in _OPENING:
            return True
        self._has_chunk = total is not None and total.pieces == 0
        return self._has_chunk

    def _translate(self, events: list[Any]) -> None:
        if not events:  # Nothing is begun, so that another attempt can still answer.
            return
        wire = b"" if self._writer is not None else self._begin(self._dispatch)
        wire += b"".join([self._writer.event(event) for event in events])
        if wire:
            self.begun = True
            self._write(wire)

    def _begin(self, answer_id: str, model: str = "") -> bytes:
        keeper = self._keeper
        if keeper is not None:  # The stream must equal the stored response.
            call, answer_id, created = keeper.asked, keeper.response_id, keeper.created
            model = self._body.model
        else:
            call = read_request(self._endpoint, self._body.value)
            created = self._created or int(time.time())
        self._writer = stream_writer(
            self._endpoint, call, answer_id=answer_id or "stream", created=created,
            model=model or self._body.model,
        )  # fmt: skip
        if keeper is not None:
            keeper.writer = self._writer
        start: bytes = self._writer.start()
        return start

    def _write(self, data: bytes, *, more: bool = True) -> None:
        if not self.started:
            self.started = True
            headers = [(b"content-type", self._kind)] if self._kind else [*_HEADERS]
            if self._dispatch:
                headers.append((b"x-remit-dispatch", self._dispatch.encode()))
            if self._dropped:
                headers.append((b"x-remit-dropped", ", ".join(self._dropped).encode()))
            headers += [
                (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
                for name, value in self._passed
                if name != "content-type"
            ]
            self._request.begin(200, headers)
        if more:
            self._request.write(data)
        else:
            self._request.end(data)

    def _taken(self) -> bytes:
        """Return the events that were not sent yet, which are sent next."""
        data = b"".join(self._ready)
        self._ready.clear()
        return data

    def _end(self, data: bytes) -> None:
        self._write(self._taken() + data, more=False)

    def finish(self, response: PromptResponse) -> None:
        """Send the end of the stream, after the exchange was recorded.

        The provider's last event is sent, or an error event for a failed call that did not end with
        the provider's own. The call's headers go first, as a comment, except to Gemini's clients
        and for audio.

        Args:
            response: the call's response.

        Raises:
            RemitError: the stream cannot be translated.
            HttpError: the call failed, and its answer is not an event stream (audio).
        """
        comment = self._comment(response)
        if response.outcome is not RouteOutcome.SUCCESS:
            code, message = response.error_code or "error", response.error_message or ""
            if (refused := failure(response)).code == "answer_untranslatable":
                code, message = "stream_untranslatable", refused.message
            # Unless it is [DONE], the last event is the provider's own error.
            if self._held and not self._kind and not self._held.rstrip().endswith(b"[DONE]"):
                self._end(comment + self._held)
            else:
                self.break_off(status_of(response), code, message, comment)
        elif self._problem is not None:
            raise self._problem
        elif self._writer is not None:
            self._end(comment + self._writer.end(answer_of(response)))
        else:
            self._end(comment + self._held)

    def _comment(self, response: PromptResponse) -> bytes:
        """Return the call's headers as a comment; empty for sound, and for Gemini, whose clients
        cannot read comments.
        """
        silent = self._kind or self._endpoint == GENERATE.name
        return b"" if silent else end_comment(response)

    def all_at_once(self, response: PromptResponse) -> None:
        """Send a complete answer as a stream, with its end.

        The answer is a replay, or that of a provider that does not stream. An answer of the
        client's own dialect keeps all its members.

        Args:
            response: outcome of a successful call.

        Raises:
            RemitError: the answer cannot be translated, or is not JSON.
        """
        self._forget()
        self._dispatch = response.dispatch_entry_id or self._dispatch
        came, comment = response.reply, self._comment(response)
        if came is not None and came.endpoint == self._endpoint:
            *events, last = self._own_events(came.body)
            self._end(b"".join([*events, comment, last]))
            return
        answer = answer_of(response)
        parts = [self._begin(self._dispatch or response.exchange_entry_id, response.model_id)]
        parts += [self._writer.event(event) for event in stream_events(answer)]
        self._end(b"".join([*parts, comment, self._writer.end(answer)]))

    def _own_events(self, answer: bytes) -> list[bytes]:
        """Return a whole answer of the client's dialect as the events of a stream."""
        if self._keeper is not None:
            return [stream_of(answer)]
        options = self._body.value.get("stream_options")
        asks = member_at(options, "include_usage") is True
        return own_events(self._endpoint, answer, with_usage=asks)

    def break_off(self, status: int, code: str, message: str, comment: bytes = b"") -> None:
        """End the stream with an error event, instead of its own last event.

        Args:
            status: HTTP status of the error.
            code: error code.
            message: sentence for people.
            comment: SSE comment to send before the error.

        Raises:
            HttpError: the answer is not an event stream (audio); it stays without its end.
        """
        if self._kind:
            raise HttpError(status, code, message)
        if self._writer is not None:
            wire = self._writer.error(status, code.lower(), message)
            self._end(comment + wire)
        else:
            wire = error_event(self._endpoint, status, code, message)
            self._end(comment + wire)
