"""Neutral events as chunks of Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remit.kernel import exchange
from remit.kernel.exchange import StreamEvent
from remit.providers.dialects.arguments import arguments_text, free_text, json_text
from remit.providers.dialects.citations import annotations_of
from remit.providers.dialects.errors import error_body, unreadable
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.names import ToolNames
from remit.providers.dialects.seals import google_extra
from remit.providers.dialects.usage import chat_usage
from remit.providers.protocol import ProviderResponse

__all__ = ["ChatWriter", "whole"]

_WORDS = {"length": "length", "tool_use": "tool_calls", "content_filter": "content_filter"}


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
        self._seal: dict[str, Any] = {}  # The next call carries it.

    def start(self) -> bytes:
        """Return the first chunk, which names the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def event(self, event: StreamEvent) -> bytes:
        """Return the chunks of one neutral event."""
        if isinstance(event, exchange.TextDelta):
            return self._chunk({"content": event.text})
        if isinstance(event, exchange.ToolInputDelta):
            return self._input(event)
        if isinstance(event, exchange.ToolUseStart):
            return self._begin(event)
        if isinstance(event, exchange.BlockEnd):
            return self._end(event)
        if isinstance(event, exchange.RefusalDelta):
            return self._chunk({"refusal": event.text})
        return self._chunk({"reasoning_content": event.text}) if event.text else b""

    def end(self, answer: ProviderResponse) -> bytes:
        """Return the last chunks, with usage if the client asked for it."""
        word = _WORDS.get(answer.finish_reason, "tool_calls" if self._calls else "stop")
        last = self._chunk({}, word)
        if self._include_usage:
            last += _data({**self._head, "choices": [], "usage": chat_usage(answer)})
        return last + b"data: [DONE]\n\n"

    def error(self, status: int, code: str, message: str) -> bytes:
        """Return an error that ends the stream."""
        return _data(error_body("openai.chat", status, code, message))

    def _begin(self, event: exchange.ToolUseStart) -> bytes:
        block = {"name": event.name}
        call = _Call(len(self._calls), self._names.is_custom(block))
        self._calls[event.index] = call
        kind, piece = ("custom", "input") if call.custom else ("function", "arguments")
        called = {"name": self._names.own(event.name), piece: ""}
        seal, self._seal = self._seal, {}
        return self._called(call, {"id": event.id, "type": kind, kind: called, **seal})

    def _input(self, event: exchange.ToolInputDelta) -> bytes:
        call = self._calls.get(event.index)
        if call is None:
            raise unreadable("the input of a tool that has not been called")
        if call.custom or not event.partial_json:
            return b""  # free text, which is known when its JSON is whole
        call.has_input = True
        return self._called(call, {"function": {"arguments": event.partial_json}})

    def _end(self, event: exchange.BlockEnd) -> bytes:
        block = event.block
        if event.index is None:
            if block["type"] != "text":
                if "thought_signature" in block:
                    self._seal = {"extra_content": google_extra(block["thought_signature"])}
                return b""
            before = len(_annotations(self._texts))
            self._texts.append(block)
            noted = _annotations(self._texts)[before:] if block.get("citations") else []
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


def _annotations(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the web citations of all texts as annotations, by place in the joined text."""
    noted: list[dict[str, Any]] = []
    start = 0
    for block in blocks:
        if block["type"] != "text":
            continue
        for annotation in annotations_of(block, start):
            if annotation["type"] == "url_citation":
                held = {key: value for key, value in annotation.items() if key != "type"}
                noted.append({"type": "url_citation", "url_citation": held})
        start += len(block["text"])
    return noted


def whole(value: dict[str, Any], answer: ProviderResponse) -> dict[str, Any]:
    """Return a ``chat.completion`` with the members that its stream leaves out.

    Args:
        value: the sum of the stream.
        answer: the answer.
    """
    (choice,) = value["choices"]
    said = choice["message"]
    first = {name: said[name] for name in ("role", "reasoning_content") if name in said}
    message = choice["message"] = {**first, **said}  # The thoughts stand before the text.
    message.setdefault("refusal", None)
    if not message["content"] and (message.get("tool_calls") or message["refusal"]):
        message["content"] = None
    return {**value, "usage": chat_usage(answer)}
