"""Answers of Bedrock's Converse, whole and streamed, read as answers of the Messages API."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, ClassVar

from typing_extensions import override

from remit.kernel.json_text import dump
from remit.providers.wire import messages
from remit.providers.wire.answer import AnswerFacts, texts
from remit.providers.wire.body import member_at
from remit.providers.wire.messages import MessageSum
from remit.providers.wire.usage import continued, is_count, objects_in

DOCUMENTS = {
    "pdf": "application/pdf", "csv": "text/csv", "html": "text/html", "txt": "text/plain",
    "md": "text/markdown", "doc": "application/msword", "xls": "application/vnd.ms-excel",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}  # fmt: skip
"""Formats of documents and their media types."""

_FOREIGN = "converse"
"""The type, in place of one of the Messages API, of a block that only Converse has."""

_OF_EVENTS = frozenset(("output", "role", "start", "delta", "contentBlockIndex", "p", "type"))
"""Members of events that are part of the message, and ``p``, which only fills up a frame."""

_NOTHING: dict[str, Any] = {}

_DELTAS = (
    ("text_delta", "text", "", "text"),
    ("input_json_delta", "partial_json", "toolUse", "input"),
    ("thinking_delta", "thinking", "reasoningContent", "text"),
    ("signature_delta", "signature", "reasoningContent", "signature"),
    ("citations_delta", "citation", "", "citation"),
)
"""Deltas: type and member in the Messages API, and the object and its member in Converse."""


def message_blocks(blocks: Any) -> Any:
    """Return blocks of Converse as blocks of the Messages API, in a new list.

    A cache point marks the block before it; without one it is left out. Values of the wrong type
    stay, for the reader to refuse.
    """
    if type(blocks) is not list:
        return blocks
    found: list[Any] = []
    for block in blocks:
        point = block.get("cachePoint") if type(block) is dict else None
        if type(point) is not dict:
            found.append(message_block(block))
        elif found and type(found[-1]) is dict:
            ttl = {"ttl": point["ttl"]} if point.get("ttl") else {}
            found[-1]["cache_control"] = {"type": "ephemeral", **ttl}
    return found


def message_block(block: Any) -> Any:
    """Return a block of Converse as one of the Messages API; a value that is no object itself.

    A block that only Converse has becomes ``{"type": "converse", "value": block}``.
    """
    if type(block) is not dict:
        return block
    block = {name: value for name, value in block.items() if value is not None} or block
    if "text" in block:
        return {"type": "text", "text": block["text"]}
    kind = next((name for name, value in block.items() if type(value) is dict), "")
    value: dict[str, Any] = block.get(kind, _NOTHING)
    if kind == "toolUse" and "type" not in value:
        names = {"id": "toolUseId", "name": "name", "input": "input"}
        return {"type": "tool_use"} | {to: value[own] for to, own in names.items() if own in value}
    if kind == "toolResult" and "type" not in value:
        found = {"type": "tool_result", "tool_use_id": value.get("toolUseId")}
        found["content"] = message_blocks(value.get("content"))
        return found | ({"is_error": True} if value.get("status") == "error" else {})
    if kind == "json" or "json" in block:
        return {"type": "text", "text": dump(block["json"]).decode()}
    if kind == "reasoningContent":
        return _thought(value) or {"type": _FOREIGN, "value": block}
    source = value.get("source")
    source = source if type(source) is dict else _NOTHING
    if kind == "image" and "bytes" in source:
        media = f"image/{value.get('format')}"
        return {"type": kind, "source": _base64(media, source["bytes"])}
    if kind == "document" and not source.keys().isdisjoint(("bytes", "text", "content")):
        if "bytes" in source:
            given = _base64(DOCUMENTS.get(str(value.get("format")), "?"), source["bytes"])
        elif "text" in source:
            given = {"type": "text", "media_type": "text/plain", "data": source["text"]}
        else:
            given = {"type": "content", "content": message_blocks(source["content"])}
        more = {name: value[name] for name in ("context", "citations") if name in value}
        return {"type": kind, "source": given, "title": value.get("name"), **more}
    if kind == "citationsContent":
        text = texts(value.get("content"))
        return {"type": "text", "text": text, "citations": value.get("citations")}
    if kind == "searchResult":
        return {**value, "type": "search_result", "content": message_blocks(value.get("content"))}
    return {"type": _FOREIGN, "value": block}


def _base64(media_type: str, data: Any) -> dict[str, Any]:
    return {"type": "base64", "media_type": media_type, "data": data}


def _thought(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return a thought as a block; None for one without the form of the API."""
    text, data = value.get("reasoningText"), value.get("redactedContent")
    if type(text) is dict:
        seal = {"signature": text["signature"]} if text.get("signature") else {}
        return {"type": "thinking", "thinking": text.get("text"), **seal}
    if type(data) is not str:
        return None
    try:
        plain = base64.b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    return {"type": "redacted_thinking", "data": plain}


def converse_block(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block of the Messages API as one of Converse; itself if there is none like it.

    The inverse of :func:`message_block` for answers: text, calls, thinking, and blocks that only
    Converse has.
    """
    kind = block.get("type")
    if kind == "text":
        if block.get("citations"):
            cited = {"content": [{"text": block.get("text", "")}], "citations": block["citations"]}
            return {"citationsContent": cited}
        return {"text": block.get("text", "")}
    if kind == "tool_use":
        names = {"toolUseId": "id", "name": "name", "input": "input"}
        return {"toolUse": {own: block[name] for own, name in names.items() if name in block}}
    if kind == "thinking":
        seal = {"signature": block["signature"]} if block.get("signature") else {}
        return {"reasoningContent": {"reasoningText": {"text": block.get("thinking", ""), **seal}}}
    if kind == "redacted_thinking":
        data = base64.b64encode(str(block.get("data", "")).encode("utf-8", "replace")).decode()
        return {"reasoningContent": {"redactedContent": data}}
    value = block.get("value")
    return value if kind == _FOREIGN and type(value) is dict else block


def message_event(event: Any) -> Any:
    """Return an event, or a whole answer, of Converse as one of the Messages API.

    An event does not name its kind in its data; the kind follows from its members. One without
    known members gives ``{"type": "metadata"}``. An error, or a value that is no object, is
    returned itself.
    """
    if type(event) is not dict or event.get("type") == "error":
        return event
    if type(event.get("output")) is dict:
        return message_of(event)
    index = event.get("contentBlockIndex")
    if "start" in event:
        start = event["start"]
        begun = message_block(start) if type(start) is dict else None
        if type(begun) is dict and begun["type"] == "tool_use":
            begun["input"] = {}
        return {"type": "content_block_start", "index": index, "content_block": begun}
    if "delta" in event:
        return _message_delta(index, event["delta"])
    if "stopReason" in event:
        return {"type": "message_delta", "delta": {"stop_reason": event["stopReason"]}}
    if "contentBlockIndex" in event:
        return {"type": "content_block_stop", "index": index}
    if "role" in event:
        return {"type": "message_start", "message": {"role": event["role"], "content": []}}
    return {"type": "metadata"}


def _message_delta(index: Any, delta: Any) -> dict[str, Any]:
    found: Any = delta
    if type(delta) is dict:
        thought = delta.get("reasoningContent")
        if type(thought) is dict and (block := _thought(thought)) is not None:
            return {"type": "content_block_start", "index": index, "content_block": block}
        for kind, name, outer, own in _DELTAS:
            holder = delta.get(outer) if outer else delta
            if type(holder) is dict and (own in holder or outer == "toolUse"):
                found = {"type": kind, name: holder.get(own)}
                break
    return {"type": "content_block_delta", "index": index, "delta": found}


def converse_delta(delta: dict[str, Any]) -> dict[str, Any] | None:
    """Return a delta of the Messages API as one of Converse; None if there is none like it.

    Citations have none, because their places differ from API to API.
    """
    for kind, name, outer, own in _DELTAS[:4]:
        if delta["type"] == kind:
            said = {own: delta[name]}
            return {outer: said} if outer else said
    return None


def message_of(answer: dict[str, Any]) -> dict[str, Any]:
    """Return a whole answer as an answer of the Messages API, with the usage in any words."""
    message = member_at(answer, "output.message")
    found = {"type": "message", "role": member_at(message, "role"),
             "content": message_blocks(member_at(message, "content")),
             "stop_reason": answer.get("stopReason"), "usage": _usage(answer)}  # fmt: skip
    if (tier := answer.get("serviceTier")) is not None:
        found["serviceTier"] = tier
    return found


def _usage(answer: dict[str, Any]) -> Any:
    """Return the usage; tokens written to a cache for each time are in Anthropic's words too."""
    usage = answer.get("usage")
    if type(usage) is not dict or usage.get("cacheDetails") is None:
        return usage
    details, kept = objects_in(usage["cacheDetails"]), dict[str, int]()
    for each in details or ():
        if type(each.get("ttl")) is not str or not is_count(each.get("inputTokens")):
            details = None
        elif each["ttl"] in ("5m", "1h"):
            name = f"ephemeral_{each['ttl']}_input_tokens"
            kept[name] = kept.get(name, 0) + each["inputTokens"]
    return {**usage, "cache_creation": "unreadable" if details is None else kept}


def is_answer(answer: Any) -> bool:
    """Return True if the answer has a message."""
    return type(member_at(answer, "output.message.content")) is list


def facts(answer: Any) -> AnswerFacts:
    """Return the facts of an answer; see :func:`remit.providers.wire.readers.answer_facts`."""
    if type(answer) is not dict:
        return AnswerFacts(more_than_text=answer is not None)
    return messages.facts(message_of(answer))


class ConverseSum(MessageSum):
    """The sum of a stream of Converse: its message and the other members of its events so far.

    The stream ends with ``messageStop`` unless an event was an error; an event ``metadata`` with
    the usage follows, and is the last.
    """

    read_facts = staticmethod(facts)
    at_once: ClassVar[re.Pattern[bytes] | None] = None

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        super().__init__()
        self._rest: dict[str, Any] = {}

    @override
    def _add(self, kind: str, event: dict[str, Any], data: bytes) -> None:
        said = message_event(event)
        super()._add(str(said.get("type")), said, b"")
        self.is_last = False
        if event.get("type") == "error":
            return
        for key, each in event.items():
            if key == "usage":
                self._rest[key] = continued(self._rest.get(key), each, cache_apart=True)
            elif key not in _OF_EVENTS:
                self._rest[key] = each
        self._ended = self._ended or ("stopReason" in event and self.error is None)
        self.is_last = self._ended and "usage" in self._rest

    @override
    def _usage_so_far(self) -> dict[str, Any] | None:
        usage: dict[str, Any] | None = _usage(self._rest)
        return usage

    def answer(self) -> dict[str, Any]:
        """Return the answer so far in the form of Converse, also after the stream broke off.

        ``output.message`` is missing before the message begins. ``error`` is a reported error.
        """
        found = super().answer()
        answer: dict[str, Any] = {}
        if "content" in found:
            content = [converse_block(block) for block in found["content"]]
            role = found.get("role") or "assistant"
            answer["output"] = {"message": {"role": role, "content": content}}
        answer |= self._rest
        if self.error is not None:
            answer.setdefault("error", self.error)
        return answer
