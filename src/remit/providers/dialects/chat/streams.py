"""Streams of Chat Completions, read as neutral events and written from them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson
from typing_extensions import override

from remit.kernel import exchange
from remit.providers.dialects.chat.request_reader import citations_in, read_call, thoughts_in
from remit.providers.dialects.citations import annotations_of, read_citations
from remit.providers.dialects.errors import (
    check_members,
    error_body,
    shaped,
    unreadable,
)
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.seals import google_extra, thought_seal
from remit.providers.dialects.streaming import StreamReader, StreamWriter, event_bytes
from remit.providers.dialects.tool_calls import free_text
from remit.providers.dialects.usage import usage_of
from remit.providers.protocol import ProviderResponse
from remit.providers.wire.chat import ChatSum
from remit.providers.wire.delta_sums import Pieces, settled

_THOUGHTS = ("reasoning_content", "reasoning")
_TEXTS = (*(("thinking", key) for key in _THOUGHTS), ("text", "content"), ("refusal", "refusal"))
"""The types of blocks, and the members that hold their texts."""

_CHUNK = {"id": str, "model": str, "choices": list}
_CHOICE = {"finish_reason": str}
_MESSAGE = {"role": str, "annotations": list, "tool_calls": list}
"""The members of a chunk, a choice and a message, and their types."""

_WORDS = {"length": "length", "tool_use": "tool_calls", "content_filter": "content_filter"}


class ChatReader(StreamReader):
    """Translates the first choice of a stream of Chat Completions to neutral events.

    The argument is a ChatSum, to which each chunk is added before :meth:`feed`.
    """

    _sum: ChatSum

    def __init__(self, total: ChatSum) -> None:
        super().__init__(total)
        self._cited = 0
        self._details = 0
        self._calls: list[dict[str, Any]] = []

    def _feed(self, data: Mapping[str, Any]) -> None:
        choice = self._sum.first_choice
        if choice is None:
            return
        message = choice.message
        check_members(data, _CHUNK, "chunk")
        check_members(choice.fields, _CHOICE, "choice")
        check_members(message, _MESSAGE, "message")
        for kind, key in _TEXTS:
            if new := self._added(key, message.get(key)):
                if self._kind != kind:
                    self._end_open(kind)
                self._piece(kind, new, raw=True)
        calls = message.get("tool_calls") or ()
        if not calls and (older := message.get("function_call")) is not None:
            calls = ({"function": shaped(older, dict, "function_call")},)
        for number, call in enumerate(calls):
            self._call(number, shaped(call, dict, "tool_calls"))

    def _added(self, key: str, value: Any) -> str:
        """Return the text added to a member of the message."""
        if value is None or (key == "reasoning" and self._cursors["reasoning_content"].size):
            return ""  # or the same thoughts again
        if key in _THOUGHTS and type(value) is not Pieces and not isinstance(value, (str, list)):
            return ""
        return self._new(key, value, f"delta.{key}")

    def _end_open(self, follows: str = "") -> None:
        """End the text, refusal or thinking that is coming; add OpenRouter's details.

        Details that have come belong to thinking that follows: they may still grow.
        """
        choice = self._sum.first_choice
        message = {} if choice is None else choice.message
        kind, text = self._kind, self._close()
        if kind and kind != "thinking":
            block: dict[str, Any] = {"type": kind, kind: text}
            noted = message.get("annotations")
            if kind == "text" and isinstance(noted, list):
                if cited := citations_in(settled(noted[self._cited :])):
                    block["citations"] = read_citations(cited)
                self._cited = len(noted)
            self._end_block(block)
        if follows == "thinking":
            return
        details = message.get("reasoning_details")
        left = settled(details[self._details :]) if isinstance(details, list) else []
        self._details += len(left)
        thought = text if kind == "thinking" else ""
        for block in thoughts_in({"reasoning_content": thought, "reasoning_details": left}):
            if not thought and any(self._cursors[key].size for key in _THOUGHTS):
                block["thinking"] = ""  # It was told before its details came.
            elif not thought:
                self._piece("thinking", block["thinking"], raw=True)
                self._close()
            self._end_block(block)

    def _call(self, number: int, call: dict[str, Any]) -> None:
        if number == len(self._calls):
            self._end_open()
            for earlier, one in enumerate(self._calls):
                if earlier in self._ids and _is_whole(one):
                    self._finish_call(earlier)
            self._calls.append(call)
        self._calls[number] = call
        kind = _kind_of(call)
        called = call.get(kind)
        called = called if isinstance(called, dict) else {}
        given = called.get("input" if kind == "custom" else "arguments")
        new = self._new(number, given, "") if type(given) in (Pieces, str) else ""
        if number not in self._ids:
            name = settled(called.get("name"))
            if not name or not isinstance(name, str) or not (call.get("id") or given):
                return  # some servers send the id, the name, or pieces of it one by one
            self._begin(number, call, name)
            new = self._cursors[number].text(given)
        if number in self._ended:
            if new.strip():
                raise unreadable("delta.tool_calls")
        elif kind == "function":  # The JSON of a free text is known at its end.
            self._input(number, new)

    def _begin(self, number: int, call: dict[str, Any], name: str) -> None:
        if seal := thought_seal(settled(call)):
            self._end_block(seal)
        self._begin_call(number, self._call_id(number, call), name)

    def _call_id(self, number: int, call: dict[str, Any]) -> str:
        """Return a call's id. An absent one is made, different in each answer."""
        identity = call.get("id")
        if isinstance(identity, str) and identity:
            return identity
        digest = hashlib.sha256(f"{self._sum.request_id}:{number}".encode("utf-8", "surrogatepass"))
        return f"call_{digest.hexdigest()[:24]}"

    def _finish_call(self, number: int) -> None:
        if number in self._ended:
            return
        call = settled(self._calls[number])
        if number not in self._ids:
            called = call.get(_kind_of(call))
            name = called.get("name") or "" if isinstance(called, dict) else None
            self._begin(number, call, shaped(name, str, "delta.tool_calls"))
        block = read_call(_named(call), "tool_calls", self._call_id(number, call))
        self._end_call(number, block)

    def _finish(self) -> None:
        self._end_open()
        choice = self._sum.first_choice
        if choice is not None and choice.is_cut and not self._sum.is_whole:
            raise unreadable("tool_calls")
        for number in range(len(self._calls)):
            self._finish_call(number)


def _is_whole(call: dict[str, Any]) -> bool:
    """Return True unless a call's arguments are a part of their JSON."""
    if _kind_of(call) == "custom":
        return True
    function = call.get("function")
    try:
        text = settled(function["arguments"]) if isinstance(function, dict) else ""
        return isinstance(text, dict) or isinstance(orjson.loads(text), dict)
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return False


def _kind_of(call: dict[str, Any]) -> str:
    return "custom" if isinstance(call.get("custom"), dict) else "function"


def _named(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call with its type, name and a text as free input, as some servers leave them out.

    A call without a name is the model's fault, and is refused like that of an unknown tool.
    """
    kind = _kind_of(call)
    inner = call.get(kind)
    if isinstance(inner, dict):
        inner = {**inner, "name": inner.get("name") or ""}
        if kind == "custom":
            inner = {"input": "", **inner}
    return {**call, "type": kind, kind: inner}


class ChatWriter(StreamWriter):
    """A writer of one answer as chunks of Chat Completions, in the bytes of server-sent events.

    Usage is written only if the client asked for it. The arguments are those of
    :func:`~remit.providers.dialects.translators.write_answer`.
    """

    def __init__(self, call: ModelCall, *, answer_id: str, created: int, model: str) -> None:
        super().__init__(call)
        self._include_usage = call.include_usage
        self._head = {
            "id": answer_id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        self._calls: dict[int, tuple[int, str]] = {}  # number and kind, keyed by index
        self._size = 0  # characters of the texts that have ended
        self._seal: dict[str, Any] = {}  # The next call carries it.

    @override
    def start(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    @override
    def end(self, answer: ProviderResponse) -> bytes:
        word = _WORDS.get(answer.finish_reason, "tool_calls" if self._calls else "stop")
        last = self._chunk({}, word)
        if self._include_usage:
            last += event_bytes(
                {**self._head, "choices": [], "usage": usage_of("openai.chat", answer)}
            )
        return last + b"data: [DONE]\n\n"

    @override
    def error(self, status: int, code: str, message: str) -> bytes:
        return event_bytes(error_body("openai.chat", status, code, message))

    def _text(self, kind: str, text: str) -> bytes:
        return self._chunk({"content" if kind == "text" else kind: text})

    def _thought(self, text: str, *, raw: bool) -> bytes:
        return self._chunk({"reasoning_content": text})

    def _begin_call(self, event: exchange.ToolUseStart) -> bytes:
        is_custom = self._names.is_custom({"name": event.name})
        kind, piece = ("custom", "input") if is_custom else ("function", "arguments")
        self._calls[event.index] = (len(self._calls), kind)
        called = {"name": self._names.own(event.name), piece: ""}
        seal, self._seal = self._seal, {}
        return self._called(event.index, {"id": event.id, "type": kind, kind: called, **seal})

    def _input(self, index: int, text: str) -> bytes:
        if self._calls[index][1] == "custom":
            return b""  # The free text is known once its JSON is whole.
        return self._called(index, {"function": {"arguments": text}})

    def _end_call(self, index: int, block: dict[str, Any]) -> bytes:
        if self._calls[index][1] == "function":
            return b""
        return self._called(index, {"custom": {"input": free_text(block["input"])}})

    def _end_block(self, block: dict[str, Any]) -> bytes:
        if block["type"] != "text":
            if "thought_signature" in block:
                self._seal = {"extra_content": google_extra(block["thought_signature"])}
            return b""
        start, self._size = self._size, self._size + len(block["text"])
        noted = [
            {"type": "url_citation", "url_citation": annotation}
            for annotation in annotations_of(block, start)
            if annotation.pop("type") == "url_citation"
        ]
        return self._chunk({"annotations": noted}) if noted else b""

    def _called(self, index: int, fields: dict[str, Any]) -> bytes:
        return self._chunk({"tool_calls": [{"index": self._calls[index][0], **fields}]})

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event_bytes({**self._head, "choices": [choice]})


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
    return {**value, "usage": usage_of("openai.chat", answer)}
