"""Neutral events as chunks of Chat Completions."""

from __future__ import annotations

from typing import Any

from remit.kernel.exchange import (
    BlockEnd,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    ToolInputDelta,
    ToolUseStart,
)
from remit.providers.dialects.arguments import arguments_text, free_text, json_text
from remit.providers.dialects.chat.answer import finish_word, web_annotations
from remit.providers.dialects.errors import error_body
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.names import ToolNames
from remit.providers.dialects.unreadable import unreadable
from remit.providers.dialects.usage import chat_usage
from remit.providers.protocol import ProviderResponse

__all__ = ["ChatWriter"]


class _Call:
    def __init__(self, number: int, custom: bool) -> None:
        self.number = number
        self.custom = custom
        self.has_input = False


class ChatWriter:
    """A writer of a stream of Chat Completions (:class:`~remit.providers.dialects.StreamWriter`).

    The arguments are those of :func:`~remit.providers.dialects.endpoints.write_answer`.
    """

    def __init__(self, call: ModelCall, *, answer_id: str, created: int, model: str) -> None:
        self._names = ToolNames(call)
        self._include_usage = call.include_usage
        self._head = {
            "id": answer_id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        self._calls: dict[int, _Call] = {}
        self._texts: list[dict[str, Any]] = []

    def start(self) -> bytes:
        """Return the first chunk, which names the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def event(self, event: StreamEvent) -> bytes:
        """Return the chunks of one neutral event."""
        if isinstance(event, TextDelta):
            return self._chunk({"content": event.text})
        if isinstance(event, ToolInputDelta):
            return self._input(event)
        if isinstance(event, ToolUseStart):
            return self._begin(event)
        if isinstance(event, BlockEnd):
            return self._end(event)
        if isinstance(event, RefusalDelta):
            return self._chunk({"refusal": event.text})
        return self._chunk({"reasoning_content": event.text}) if event.text else b""

    def end(self, answer: ProviderResponse) -> bytes:
        """Return the last chunks, with usage if the client asked for it."""
        last = self._chunk({}, finish_word(answer.finish_reason, bool(self._calls)))
        if self._include_usage:
            last += _data({**self._head, "choices": [], "usage": chat_usage(answer)})
        return last + b"data: [DONE]\n\n"

    def error(self, status: int, code: str, message: str) -> bytes:
        """Return an error that ends the stream."""
        return _data(error_body("openai.chat", status, code, message))

    def _begin(self, event: ToolUseStart) -> bytes:
        block = {"name": event.name}
        call = _Call(len(self._calls), self._names.is_custom(block))
        self._calls[event.index] = call
        kind, piece = ("custom", "input") if call.custom else ("function", "arguments")
        called = {"name": self._names.own(event.name), piece: ""}
        return self._called(call, {"id": event.id, "type": kind, kind: called})

    def _input(self, event: ToolInputDelta) -> bytes:
        call = self._calls.get(event.index)
        if call is None:
            raise unreadable("the input of a tool that has not been called")
        if call.custom or not event.partial_json:
            return b""  # free text, which is known when its JSON is whole
        call.has_input = True
        return self._called(call, {"function": {"arguments": event.partial_json}})

    def _end(self, event: BlockEnd) -> bytes:
        block = event.block
        if event.index is None:
            if block["type"] != "text":
                return b""
            before = len(web_annotations(self._texts))
            self._texts.append(block)
            noted = web_annotations(self._texts)[before:] if block.get("citations") else []
            return self._chunk({"annotations": noted}) if noted else b""
        call = self._calls.get(event.index)
        if call is None:
            raise unreadable("the end of a tool that has not been called")
        if call.custom:
            return self._called(call, {"custom": {"input": free_text(block["input"])}})
        if call.has_input:
            return b""
        # Clients read the arguments as JSON, and an empty text is none.
        return self._called(call, {"function": {"arguments": arguments_text(block["input"])}})

    def _called(self, call: _Call, fields: dict[str, Any]) -> bytes:
        return self._chunk({"tool_calls": [{"index": call.number, **fields}]})

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _data({**self._head, "choices": [choice]})


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + json_text(value).encode() + b"\n\n"
