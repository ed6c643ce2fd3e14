"""Answers, streams and errors in the form of the Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import (
    BlockEnd,
    PromptResponse,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    ToolInputDelta,
    ToolUseStart,
)
from remit.providers.dialects._usage import messages_usage

__all__ = ["MessagesStream", "messages_answer", "messages_error"]

_FINISH = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_use": "tool_use",
    "content_filter": "refusal",
}
_ERROR_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def messages_answer(
    response: PromptResponse,
    *,
    answer_id: str,
    model: str,
    cached_input_tokens: int | None = None,
    reasoning_tokens: int | None = None,
) -> dict[str, Any]:
    """A ``message`` object.

    Args:
        response: a successful one.
        answer_id: the object's ``id``.
        model: the name that the client knows the model by.
        cached_input_tokens: part of the input tokens read from a cache, where known; given
            beside ``input_tokens``, as the API does.
        reasoning_tokens: part of the output tokens spent on thinking, where known.
    """
    blocks: list[dict[str, Any]] = []
    calls = False
    for block in response.content_blocks or ():
        kind = block["type"]
        calls = calls or kind == "tool_use"
        if kind == "thinking" and "signature" not in block:
            block = {**block, "signature": ""}
        blocks.append(block)
    if not blocks and response.content:
        blocks.append({"type": "text", "text": response.content})
    return {
        "id": answer_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": _finish(response.finish_reason, calls),
        "stop_sequence": None,
        "usage": messages_usage(
            {
                "input_tokens": response.input_tokens,
                "output_tokens": response.output_tokens,
                "cached_input_tokens": cached_input_tokens,
                "reasoning_tokens": reasoning_tokens,
            }
        ),
    }


def messages_error(status: int, code: str, message: str) -> dict[str, Any]:
    """An error body. The API has no field for ``code``; ``status`` chooses the type."""
    kind = _ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


class MessagesStream:
    """Server-sent events of one answer: ``start``, each ``event``, then ``end`` or ``error``.

    Args:
        answer_id: the message's ``id``.
        model: the name that the client knows the model by.
        input_tokens: what the first event says of them, before the provider has reported any.
    """

    def __init__(self, *, answer_id: str, model: str, input_tokens: int = 0) -> None:
        self._message: dict[str, Any] = {
            "id": answer_id,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": input_tokens, "output_tokens": 0},
        }
        self._blocks = 0
        self._open: str | int | None = None
        self._calls: set[int] = set()

    def start(self) -> bytes:
        """The ``message_start`` event."""
        return _sse("message_start", {"message": self._message})

    def event(self, event: StreamEvent) -> bytes:
        """The events of one piece: a block ends where one of another kind begins.

        Raises:
            InvalidInputError: input for a tool call that has not begun, or that has ended:
                a client may already have run the tool.
        """
        if isinstance(event, TextDelta):
            return self._delta("text", _TEXT, {"type": "text_delta", "text": event.text})
        if isinstance(event, ToolInputDelta):
            if self._open != event.index:
                raise InvalidInputError("A tool call got input before it began or after its end.")
            piece = {"type": "input_json_delta", "partial_json": event.partial_json}
            return self._delta(event.index, None, piece)
        if isinstance(event, ToolUseStart):
            if event.index in self._calls:
                raise InvalidInputError("A tool call began twice.")
            self._calls.add(event.index)
            block = {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}
            return self._begin(event.index, block)
        if isinstance(event, (RefusalDelta, BlockEnd)):
            return b""
        wire = b""
        if event.text or not event.signature:
            delta = {"type": "thinking_delta", "thinking": event.text}
            wire = self._delta("thinking", _THINKING, delta)
        if event.signature:
            seal = {"type": "signature_delta", "signature": event.signature}
            wire += self._delta("thinking", _THINKING, seal) + self._stop()
        return wire

    def end(
        self, finish_reason: str, usage: Mapping[str, Any] | None, include_usage: bool = True
    ) -> bytes:
        """The last events.

        Args:
            finish_reason: in neutral words.
            usage: ``input_tokens``, ``output_tokens``, and where known ``cached_input_tokens``
                and ``reasoning_tokens``; all that came before counts as part of it.
            include_usage: of no effect: this dialect always reports it.
        """
        reason = _finish(finish_reason, bool(self._calls))
        reported = {"output_tokens": 0} if usage is None else messages_usage(usage)
        delta = {"stop_reason": reason, "stop_sequence": None}
        last = _sse("message_delta", {"delta": delta, "usage": reported})
        return self._stop() + last + _sse("message_stop", {})

    def error(self, status: int, code: str, message: str) -> bytes:
        """An error in the midst of the stream, which ends it."""
        error = messages_error(status, code, message)["error"]
        return _sse("error", {"error": error})

    def _begin(self, what: str | int, block: dict[str, Any]) -> bytes:
        before = self._stop()
        self._open = what
        return before + _sse("content_block_start", {"index": self._blocks, "content_block": block})

    def _delta(self, what: str | int, block: dict[str, Any] | None, delta: dict[str, Any]) -> bytes:
        begun = b""
        if block is not None and self._open != what:
            begun = self._begin(what, block)
        return begun + _sse("content_block_delta", {"index": self._blocks, "delta": delta})

    def _stop(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        self._blocks += 1
        return _sse("content_block_stop", {"index": self._blocks - 1})


_TEXT = {"type": "text", "text": ""}
_THINKING = {"type": "thinking", "thinking": "", "signature": ""}


def _sse(kind: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **data}))


def _finish(reason: str, calls: bool) -> str:
    wire = _FINISH.get(reason, "end_turn")
    return "tool_use" if calls and wire == "end_turn" else wire
