"""Answers, streams, errors and model lists in the form of Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    text_of,
)
from remit.providers.dialects._chat_messages import arguments_text
from remit.providers.dialects._usage import chat_usage

__all__ = ["ChatStream", "chat_answer", "chat_error", "model_list"]

_FINISH = {
    "stop": "stop",
    "length": "length",
    "tool_use": "tool_calls",
    "content_filter": "content_filter",
}
_ERROR_TYPES = {
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    429: "rate_limit_error",
}
_SPENT = ("budget", "quota")


def chat_answer(
    response: PromptResponse,
    *,
    answer_id: str,
    created: int,
    model: str,
    cached_input_tokens: int | None = None,
    reasoning_tokens: int | None = None,
) -> dict[str, Any]:
    """A ``chat.completion`` object.

    Thinking is given as ``reasoning_content``, as servers of open models do.

    Args:
        response: a successful one.
        answer_id: the object's ``id``.
        created: seconds since 1970.
        model: the name that the client knows the model by.
        cached_input_tokens: part of the input tokens read from a cache, where known.
        reasoning_tokens: part of the output tokens spent on thinking, where known.
    """
    message: dict[str, Any] = {"role": "assistant", "content": response.content, "refusal": None}
    calls: list[dict[str, Any]] = []
    if response.content_blocks:
        thoughts: list[str] = []
        for block in response.content_blocks:
            if block["type"] == "tool_use":
                function = {"name": block["name"], "arguments": arguments_text(block)}
                calls.append({"id": block["id"], "type": "function", "function": function})
            elif block["type"] == "thinking":
                thoughts.append(str(block.get("thinking", "")))
        if thoughts:
            message["reasoning_content"] = "".join(thoughts)
        if not response.content:
            message["content"] = text_of(response.content_blocks)
    if calls:
        message["content"] = message["content"] or None
        message["tool_calls"] = calls
    return {
        "id": answer_id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": _finish(response.finish_reason, bool(calls)),
            }
        ],
        "usage": chat_usage(
            {
                "input_tokens": response.input_tokens,
                "output_tokens": response.output_tokens,
                "cached_input_tokens": cached_input_tokens,
                "reasoning_tokens": reasoning_tokens,
            }
        ),
    }


def chat_error(status: int, code: str, message: str, param: str | None = None) -> dict[str, Any]:
    """An error body.

    Args:
        status: the HTTP status; the official SDKs choose their exception by it.
        code: what went wrong, for programs; one that speaks of a budget or quota makes a 429
            ``insufficient_quota``, which clients do not try again.
        message: what went wrong, for people.
        param: the field at fault.
    """
    kind = _ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    if status == 429 and any(word in code.lower() for word in _SPENT):
        kind = "insufficient_quota"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def model_list(models: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The answer of ``GET /v1/models`` for pairs of a model's id and its owner."""
    return {
        "object": "list",
        "data": [
            {"id": model, "object": "model", "created": 0, "owned_by": owner}
            for model, owner in models
        ],
    }


class ChatStream:
    """Server-sent events of one answer: ``start``, each ``event``, then ``end`` or ``error``.

    Args:
        answer_id: the ``id`` of every chunk.
        created: seconds since 1970.
        model: the name that the client knows the model by.
    """

    def __init__(self, *, answer_id: str, created: int, model: str) -> None:
        head = {
            "id": answer_id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        self._head = b"data: " + orjson.dumps(head)[:-1] + b',"choices":['
        self._calls: dict[int, int] = {}
        self._without_input: set[int] = set()

    def start(self) -> bytes:
        """The first chunk, which names the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def event(self, event: StreamEvent) -> bytes:
        """The chunk of one piece.

        Raises:
            InvalidInputError: input for a tool call that has not begun.
        """
        if isinstance(event, TextDelta):
            return self._chunk({"content": event.text})
        if isinstance(event, ToolInputDelta):
            call = self._calls.get(event.index)
            if call is None:
                raise InvalidInputError("A tool call got input before it began.")
            if event.partial_json:
                self._without_input.discard(call)
            return self._arguments(call, event.partial_json)
        if isinstance(event, ToolUseStart):
            if event.index in self._calls:
                raise InvalidInputError("A tool call began twice.")
            number = self._calls[event.index] = len(self._calls)
            self._without_input.add(number)
            function = {"name": event.name, "arguments": ""}
            begun = {"index": number, "id": event.id, "type": "function", "function": function}
            return self._chunk({"tool_calls": [begun]})
        if isinstance(event, (RefusalDelta, BlockEnd)):
            return b""
        if not event.text:
            return b""  # a signature, which this dialect does not have
        return self._chunk({"reasoning_content": event.text})

    def end(
        self, finish_reason: str, usage: Mapping[str, Any] | None, include_usage: bool
    ) -> bytes:
        """The last chunks.

        Args:
            finish_reason: in neutral words.
            usage: ``input_tokens``, ``output_tokens``, and where known ``cached_input_tokens``
                and ``reasoning_tokens``.
            include_usage: whether the client asked for ``usage``.
        """
        # Clients read the arguments as JSON, and an empty text is none.
        last = b"".join([self._arguments(call, "{}") for call in sorted(self._without_input)])
        last += self._chunk({}, _finish(finish_reason, bool(self._calls)))
        if include_usage and usage is not None:
            last += self._head + b'],"usage":' + orjson.dumps(chat_usage(usage)) + b"}\n\n"
        return last + b"data: [DONE]\n\n"

    def error(self, status: int, code: str, message: str) -> bytes:
        """An error in the midst of the stream, which ends it."""
        return b"data: " + orjson.dumps(chat_error(status, code, message)) + b"\n\n"

    def _arguments(self, call: int, text: str) -> bytes:
        return self._chunk({"tool_calls": [{"index": call, "function": {"arguments": text}}]})

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._head + orjson.dumps(choice) + b"]}\n\n"


def _finish(reason: str, calls: bool) -> str:
    wire = _FINISH.get(reason, "stop")
    return "tool_calls" if calls and wire == "stop" else wire
