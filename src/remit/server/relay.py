"""A stream on its way from a provider to a client.

A provider of the client's own dialect is relayed event by event as it came; another's is
translated. The last event is held back until the exchange is durable: a client that has seen the
end of an answer can rely on its record.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

from remit.gateway import Dispatched
from remit.kernel.exchange import (
    PromptResponse,
    RouteOutcome,
    TextDelta,
    ToolInputDelta,
    ToolUseStart,
)
from remit.providers import UsageReported, WireChunk
from remit.providers.dialects.anthropic import MessagesStream
from remit.providers.dialects.call import ClientCall
from remit.providers.dialects.openai import ChatStream
from remit.server.refusals import Shape, status_of
from remit.server.replies import Send

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class Relay:
    """One streamed answer. :meth:`take` is the gateway's listener; the rest is the server's."""

    def __init__(self, shape: Shape, call: ClientCall, send: Send) -> None:
        self.shape = shape
        self.send = send
        self.started = False
        self._call = call
        self._waiting: deque[Any] = deque()
        self._news = asyncio.Event()
        self._over = False
        self._dispatch = ""
        self._raw: bool | None = None  # whether the provider's own events are passed on
        self._translation: ChatStream | MessagesStream | None = None
        self._held = b""
        self._calls: dict[int, list[Any]] = {}

    def take(self, event: Any) -> None:
        """One event, from the gateway."""
        if isinstance(event, Dispatched):
            self._dispatch = event.dispatch_entry_id
            return
        self._waiting.append(event)
        self._news.set()

    def ended(self, _: object) -> None:
        """The gateway has returned."""
        self._over = True
        self._news.set()

    async def run(self) -> None:
        """Pass on what comes, until the gateway has returned."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self._drain()
            if self._over:
                await self._drain()
                return

    async def _drain(self) -> None:
        if not self._waiting:
            return
        wire = b"".join([self._encode(self._waiting.popleft()) for _ in range(len(self._waiting))])
        if wire:
            await self._write(wire)

    async def _write(self, data: bytes, *, more: bool = True) -> None:
        if not self.started:
            self.started = True
            headers = [*_HEADERS]
            if self._dispatch:
                headers.append((b"x-remit-dispatch", self._dispatch.encode()))
            await self.send({"type": "http.response.start", "status": 200, "headers": headers})
        await self.send({"type": "http.response.body", "body": data, "more_body": more})

    def _encode(self, event: Any) -> bytes:
        if type(event) is WireChunk:
            if self._raw is None:
                self._raw = event.dialect == self.shape
            return self._relayed(event) if self._raw else b""
        if self._raw or type(event) is UsageReported:
            return b""
        self._raw = False
        return self._translated(event)

    def _relayed(self, chunk: WireChunk) -> bytes:
        if self.shape == "anthropic":
            wire = b"event: %s\ndata: %s\n\n" % (chunk.name.encode(), chunk.data)
            if chunk.name == "message_stop":
                self._held = wire
                return b""
            return wire
        if not self._call.include_usage and chunk.value.get("choices") == []:
            return b""  # the counts that Remit asked for, and the client did not
        return b"data: %s\n\n" % chunk.data

    def _translated(self, event: Any) -> bytes:
        start = b""
        if self._translation is None:
            start = self._begin("", self._call.model)
        assert self._translation is not None
        if isinstance(self._translation, MessagesStream) and isinstance(
            event, ToolUseStart | ToolInputDelta
        ):
            # This dialect sends one block after the other; others mix the calls of one answer.
            self._calls.setdefault(event.index, []).append(event)
            return start
        return start + self._translation.event(event)

    def _begin(self, answer_id: str, model: str) -> bytes:
        name = answer_id or self._dispatch or "stream"
        if self.shape == "openai":
            self._translation = ChatStream(
                answer_id=f"chatcmpl-{name}", created=int(time.time()), model=model
            )
        else:
            self._translation = MessagesStream(answer_id=f"msg_{name}", model=model)
        return self._translation.start()

    async def finish(self, response: PromptResponse) -> None:
        """The end, once the exchange is on record."""
        if response.outcome is not RouteOutcome.SUCCESS:
            await self.break_off(
                status_of(response), response.error_code or "error", response.error_message or "",
                _comment(response),
            )  # fmt: skip
            return
        if self._raw:
            last = self._held if self.shape == "anthropic" else b"data: [DONE]\n\n"
            await self._write(_comment(response) + last, more=False)
            return
        await self._write(self._end(response), more=False)

    async def all_at_once(self, response: PromptResponse) -> None:
        """A whole answer as a stream: from the record, or of a provider that does not stream."""
        wire = [self._begin(response.exchange_entry_id, response.model_id)]
        assert self._translation is not None
        for index, block in enumerate(response.content_blocks or ()):
            if block.get("type") == "tool_use":
                start = ToolUseStart(index, str(block["id"]), str(block["name"]))
                wire.append(self._translation.event(start))
                wire.append(self._translation.event(ToolInputDelta(index, _json(block["input"]))))
            elif block.get("type") == "text":
                wire.append(self._translation.event(TextDelta(str(block["text"]))))
        if not response.content_blocks and response.content:
            wire.append(self._translation.event(TextDelta(response.content)))
        self._dispatch = self._dispatch or response.dispatch_entry_id
        await self._write(b"".join(wire) + self._end(response), more=False)

    def _end(self, response: PromptResponse) -> bytes:
        usage = {
            "input_tokens": response.input_tokens,
            "output_tokens": response.output_tokens,
            "cached_input_tokens": response.cached_input_tokens or None,
            "reasoning_tokens": response.reasoning_tokens or None,
        }
        assert self._translation is not None
        calls = [self._translation.event(event) for index in sorted(self._calls)
                 for event in self._calls[index]]  # fmt: skip
        end = b"".join(calls) + self._translation.end(
            response.finish_reason, usage, self._call.include_usage
        )
        return _comment(response) + end

    async def break_off(self, status: int, code: str, message: str, comment: bytes = b"") -> None:
        """An error in the midst of a stream, which ends it."""
        if self.shape == "openai":
            stream = self._translation if isinstance(self._translation, ChatStream) else ChatStream(
                answer_id="", created=0, model=""
            )  # fmt: skip
            wire = stream.error(status, code.lower(), message)
        else:
            wire = MessagesStream(answer_id="", model="").error(status, code.lower(), message)
        await self._write(comment + wire, more=False)


def _comment(response: PromptResponse) -> bytes:
    """What is known of a call only at its end, as an SSE comment."""
    fields = [f"x-remit-exchange={response.exchange_entry_id}"]
    if response.dispatch_entry_id:
        fields.append(f"x-remit-dispatch={response.dispatch_entry_id}")
    if response.decision_entry_id:
        fields.append(f"x-remit-decision={response.decision_entry_id}")
    if response.cost_certainty:
        fields.append(f"x-remit-cost-certainty={response.cost_certainty}")
        if response.cost_known:
            fields.append(f"x-remit-cost-usd={response.cost_incurred:.9f}")
    if response.replayed:
        fields.append("x-remit-replayed=true")
    return f": {' '.join(fields)}\n\n".encode()


def _json(value: Any) -> str:
    import orjson

    return orjson.dumps(value).decode()
