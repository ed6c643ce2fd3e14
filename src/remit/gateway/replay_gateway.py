"""A gateway that answers calls from a recorded run, and sends nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple

from typing_extensions import override

from remit.gateway.auth import Identity
from remit.gateway.gateway import LLMGateway
from remit.gateway.neutral_calls import in_neutral_form
from remit.gateway.outgoing_requests import lowered, speaks
from remit.gateway.recorded_answers import recorded_response
from remit.gateway.recorded_run import (
    ANY_MODEL,
    RecordedCall,
    Recording,
    neutral_text,
)
from remit.gateway.records import refused_response
from remit.gateway.stream import StreamTap
from remit.gateway.transport import send_body
from remit.gateway.validation import encode_sent
from remit.gateway.values import Call, Choice, Model, Refusal, RefusedError
from remit.kernel.canonical import sha256_hex
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome, TextSink
from remit.kernel.json_splice import set_member
from remit.kernel.json_text import dump, load
from remit.ledger import LedgerEntry
from remit.providers import EventSink, Outgoing, ProviderError, Timeouts, UpstreamReply
from remit.providers.sse import SseParser

_TIMEOUTS = Timeouts(30.0, 30.0, 30.0)


class _Form(NamedTuple):
    """A request as one recorded call would have sent it.

    Attributes:
        text: the body, or the neutral form as JSON.
        digest: SHA-256 of the text, 64 hex digits.
        outgoing: the body with its stream options; None in neutral form.
    """

    text: bytes
    digest: str
    outgoing: Outgoing | None = None


class ReplayGateway(LLMGateway):
    """A gateway whose calls are answered from a recording. No provider is called.

    A request must equal a recorded one in the form in which that one was sent, or differ from it in
    labels alone. A request that equals none gets the next recorded refusal, if no recorded call
    precedes it. Otherwise it is refused as ``REPLAY_DIFFERS`` with the first difference, as is
    every later request. Ids, times and costs of the answers are the recorded ones.

    Args:
        recording: the run.
        pause: awaited with each recorded call before its answer; None to answer at once.
        aliases: names of models and routes that the settings define; what such a name meant is not
            compared.
        options: arguments of :class:`LLMGateway`. Its ledger is a scratch ledger, never the
            recorded one.
    """

    def __init__(
        self,
        recording: Recording,
        pause: Callable[[RecordedCall], Awaitable[None]] | None = None,
        aliases: Collection[str] = (),
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._recording = recording
        self._pause = pause
        self._aliases = aliases

    @override
    async def aroute(
        self,
        request: PromptRequest,
        *,
        on_text: TextSink | None = None,
        sink: EventSink | None = None,
        identity: Identity | None = None,
        choice: Choice | None = None,
    ) -> PromptResponse:
        """Return the recorded response to a request that equals one, or differs in labels alone.

        Nothing is written. A request that equals no recorded call gets a recorded refusal, if one
        is due, or the refusal ``REPLAY_DIFFERS``, which ends the replay. A recorded stream is
        played to the listeners, a failed one to its break.

        Args:
            request: the request.
            on_text: receives the answer's text as it comes; None to receive none.
            sink: receives the recorded stream; None to receive none.
            identity: ignored.
            choice: ignored.

        Raises:
            LedgerError: the record cannot be read.
            CancelledError: the caller was cancelled.
        """
        recording, call = self._recording, Call(request, StreamTap(on_text, sink))
        forms = {one.target: _NO_FORM for one in recording.pending}
        for target in forms:
            with contextlib.suppress(RefusedError, RemitError):
                forms[target] = await self._form(call, *target)
        recorded = recording.take(lambda one: forms[one.target].digest == one.digest)
        if recorded is None:
            parts = {target: recording.compared(form.text) for target, form in forms.items()}
            recorded = await asyncio.to_thread(
                recording.take, lambda one: recording.compared_of(one) == parts[one.target]
            )
        if recorded is None:
            if (refusal := recording.take_rejection()) is not None:
                return _rejected(call, refusal)
            found = await asyncio.to_thread(
                recording.differ, lambda one: forms[one.target].text or _text_of(request)
            )
            said = f"the replay of {recording.run} ended: {found}"
            return refused_response(call, Refusal("REPLAY_DIFFERS", said, found.field))
        if self._pause is not None:
            await self._pause(recorded)
        entry = await asyncio.to_thread(recording.ledger.read, recorded.exchange_entry_id)
        response = await asyncio.to_thread(recorded_response, recording.ledger, entry)
        return await self._played(call, entry, response, forms[recorded.target].outgoing)

    async def _form(
        self, call: Call, provider_id: str, model_id: str, asked: str, wire: str, output: int | None
    ) -> _Form:
        """Return the request as it would be sent to a recorded call's model.

        Raises:
            RefusedError, RemitError: the request cannot be expressed in that form.
        """
        request = call.request
        if not wire:
            neutral = request if request.body is None else in_neutral_form(request)
            prompt = neutral.prompt if neutral.messages is None else neutral.messages
            text = neutral_text(prompt, neutral.tools or ())
            return _Form(text, sha256_hex(text))
        call.sent, body = encode_sent(request), request.body
        call.translated = frozenset()
        if body.endpoint.name != wire and speaks(self.providers.get(provider_id), body):
            call.translated = frozenset({provider_id})
        model = Model(provider_id, model_id, model_id)
        if request.keeper is not None or body.may_name_objects:
            to = await self._candidates.read(call, model)
        else:
            to = self._candidates.make(call, model)
        if output is not None:
            to = lowered(to, output)
        assert to.outgoing is not None
        raw = to.outgoing.body.raw
        # The name of the model was replaced for the provider.
        if asked or body.model in self._aliases:
            is_same = asked in ("", ANY_MODEL, body.model)
        else:
            is_same = (provider_id, model_id) in self._names.candidates(request)
        if not is_same:
            raw = set_member(raw, ("model",), dump(body.model))
        return _Form(raw, sha256_hex(raw), to.outgoing)

    async def _played(
        self, call: Call, entry: LedgerEntry, response: PromptResponse, outgoing: Outgoing | None
    ) -> PromptResponse:
        """Return a recorded response, after its stream was sent to the call's listener."""
        meta, keeper = entry.metadata, call.request.keeper
        if keeper is not None and "response_id" in meta:
            keeper.response_id = meta["response_id"]
            if "replied" in meta and response.reply is not None:
                keeper.replied = response.reply.body
                keeper.created = int(load(keeper.replied)["created_at"])
        stream = meta.get("stream")
        if call.tap.sink is None or outgoing is None:
            return response
        if not isinstance(stream, str):
            # The answer is written as a stream anew.
            response.replayed = response.outcome is RouteOutcome.SUCCESS
            return response
        call.tap.created = meta.get("created", 0)
        await call.tap.dispatched(response.dispatch_entry_id, outgoing)
        player: Any = _Player(stream.encode())
        with contextlib.suppress(ProviderError):  # The record has the failure.
            body = call.request.body
            called = "" if body is None else body.endpoint.name
            await send_body(player, outgoing, call.tap, _TIMEOUTS, called=called)
        return response


class _Player:
    """A provider, and its connection, that answers one request with recorded events, one by one.

    Args:
        stream: the bytes of an event stream.
    """

    status = 200

    def __init__(self, stream: bytes) -> None:
        self.headers = {"content-type": "text/event-stream"}
        parser = SseParser()
        self._events = deque(event.raw for event in parser.feed(stream))
        if (rest := parser.end()) is not None:
            self._events.append(rest.raw)

    @property
    def at_end(self) -> bool:
        return not self._events

    async def send(self, outgoing: Outgoing, timeouts: Timeouts) -> UpstreamReply:
        return UpstreamReply(self, 0.0)  # type: ignore[arg-type]

    async def piece(self, idle_s: float, pass_on: Any = None) -> bytes:
        return self._events.popleft() if self._events else b""

    async def release(self) -> None:
        """Do nothing: there is no connection."""


_NO_FORM = _Form(b"", "")


def _text_of(request: PromptRequest) -> bytes:
    return request.body.raw if request.body is not None else b""


def _rejected(call: Call, refusal: LedgerEntry) -> PromptResponse:
    """Return the response of a recorded ``PROMPT_REJECTED``."""
    meta = refusal.metadata
    response = refused_response(call, Refusal(meta["error_code"], str(meta["error_message"])))
    response.exchange_entry_id, response.timestamp = refusal.id, refusal.timestamp
    return response
