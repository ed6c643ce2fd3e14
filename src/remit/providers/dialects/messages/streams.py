"""Streams of the Messages API, read as neutral events and written from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from remit.kernel import exchange
from remit.kernel.exchange import StreamEvent
from remit.providers.dialects.citations import citations_of, read_citations
from remit.providers.dialects.errors import (
    check_members,
    error_body,
    shaped,
    unreadable,
)
from remit.providers.dialects.messages.request_reader import read_block
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.seals import seal_of
from remit.providers.dialects.streaming import StreamReader, StreamWriter, sse
from remit.providers.dialects.tool_calls import NAMELESS, ToolNames, input_of, json_text
from remit.providers.dialects.usage import usage_of
from remit.providers.protocol import ProviderResponse
from remit.providers.wire.messages import MessageSum

_ROLES = (None, "assistant")
_READ = ("text", "thinking", "redacted_thinking", "tool_use")
_GROWS = ("text", "thinking")
_OF_A_BLOCK = ("content_block_delta", "content_block_stop")
_TEXT_OF = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json",
            "signature_delta": "signature"}  # fmt: skip
_MESSAGE = {"id": str, "type": str, "role": str, "model": str, "content": list, "stop_reason": str,
            "stop_sequence": str}  # fmt: skip
"""The members of a message and their types; each may be null in a message that only begins."""
_BLOCK = {"id": str, "name": str, "tool_use_id": str, "signature": str, "citations": list}
"""The members that blocks have in common, and their types."""
_SOURCE = {"url": str, "title": str}
_WORDS = {"length": "max_tokens", "tool_use": "tool_use", "content_filter": "refusal"}
_ENDPOINT = "anthropic.messages"
_SEARCH_TOOL = "web_search"

_TEXT = {"type": "text", "text": ""}
_THINKING = {"type": "thinking", "thinking": "", "signature": ""}
_TEXTS = ("text", "refusal")
_CHARACTERS_PER_TOKEN = 4


class MessagesReader(StreamReader):
    """Translates a stream of the Messages API to neutral events, read from the sum of the stream.

    The argument is a MessageSum, to which each event is added before :meth:`feed`.
    """

    _sum: MessageSum

    def __init__(self, total: MessageSum) -> None:
        super().__init__(total)
        self._begun = 0  # blocks
        self._open: list[int] = []  # places of blocks in the sum
        self._queries: dict[Any, list[str]] = {}

    def _feed(self, data: Mapping[str, Any]) -> None:
        kind = data.get("type")
        whole = kind == "message" or isinstance(data.get("content"), list)  # Nothing is streamed.
        _check("message" if whole else kind, data)
        while self._begun < self._sum.count:
            for earlier in tuple(self._open):  # Only calls come at the same time.
                if self._sum.block(earlier).get("type") != "tool_use" or whole:
                    self._end(earlier)
            self._begin(self._begun)
            self._begun += 1
        if kind in _OF_A_BLOCK:
            at = self._sum.place(data.get("index"))
            if at is None or at not in self._open:
                raise unreadable("index")
            self._grow(at)
            if kind == "content_block_stop":
                self._end(at)
        if whole:
            self._finish()

    def _finish(self) -> None:
        for at in tuple(self._open):
            self._end(at)

    def _begin(self, at: int) -> None:
        self._open.append(at)
        block = self._sum.block(at)
        if block.get("type") == "tool_use":
            identity = shaped(block.get("id"), str, "content_block.id")
            name = shaped(block.get("name") or NAMELESS, str, "content_block.name")
            self._begin_call(at, identity, name)
            given = block.get("input")
            if isinstance(given, dict) and given:
                self._input(at, json_text(given))
        self._grow(at)

    def _grow(self, at: int) -> None:
        block = self._sum.block(at)
        kind = str(block.get("type"))
        if kind == "tool_use":
            self._input(at, self._new(at, self._sum.inputs(at), "content_block.input"))
        elif kind in _GROWS:
            where = f"content_block.{kind}"
            self._piece(kind, self._new(at, block.get(kind, ""), where))

    def _end(self, at: int) -> None:
        self._open.remove(at)
        self._close()
        ended = self._block(at)
        if ended.get("type") == "tool_use" and not ended.get("name"):
            ended = {**ended, "name": NAMELESS}
        block = _read(ended, self._queries)
        if block is not None and block["type"] == "tool_use":
            self._end_call(at, block)
        elif block is not None:
            self._end_block(block)

    def _block(self, at: int) -> dict[str, Any]:
        """Return the ended block at a place of the sum, in the form of the Messages API."""
        return self._sum.whole(at)


def _check(kind: Any, data: Mapping[str, Any]) -> None:
    """Raise DialectError unless an event has the form that its kind demands in the API."""
    if kind == "message":
        shaped(data.get("content"), list, "content")
        _check_message(data)
    elif kind == "message_start":
        _check_message(shaped(data.get("message"), dict, "message"))
    elif kind == "message_delta":
        _check_message(shaped(data.get("delta"), dict, "delta"))
    elif kind == "content_block_start":
        _check_block(data.get("content_block"))
    elif kind == "content_block_delta":
        delta = shaped(data.get("delta"), dict, "delta")
        delta_kind = delta.get("type")
        key = _TEXT_OF.get(delta_kind) if isinstance(delta_kind, str) else None
        if key is not None:
            shaped(delta.get(key), str, f"delta.{key}")


def _check_message(message: Mapping[str, Any]) -> None:
    check_members(message, _MESSAGE, "message")
    if message.get("type") not in (None, "message") or message.get("role") not in _ROLES:
        raise unreadable("message")
    for block in message.get("content") or ():
        kind = _check_block(block)
        if kind in _GROWS:
            shaped(block.get(kind), str, f"content.{kind}")


def _check_block(block: Any) -> str:
    """Return the block's type; raise DialectError if it has none."""
    kind: str = shaped(shaped(block, dict, "content_block").get("type"), str, "content_block.type")
    if not kind:
        raise unreadable("content_block.type")
    check_members(block, _BLOCK, "content_block")
    return kind


def _read(block: dict[str, Any], queries: dict[Any, list[str]]) -> dict[str, Any] | None:
    """Return one block of an answer in neutral form; None for blocks without meaning elsewhere.

    A search and its result become one block.

    Args:
        block: the block.
        queries: search queries, keyed by the search's id; added to.
    """
    kind = block.get("type")
    if kind == "server_tool_use" and block.get("name") == "web_search":
        asked = block.get("input")
        query = asked.get("query") if isinstance(asked, dict) else None
        queries[str(block.get("id"))] = [query] if isinstance(query, str) else []
    elif kind == "web_search_tool_result":
        return _search(block, queries)
    elif kind in _READ:
        if kind == "tool_use":
            block = {**block, "input": input_of(block.get("input"))}
        check_members(block, _BLOCK, "content_block")
        read_citations(block.get("citations") or [])
        return read_block(block, str(kind), "content_block")
    return None


def _search(block: dict[str, Any], queries: dict[Any, list[str]]) -> dict[str, Any]:
    identity = str(block.get("tool_use_id"))
    found = block.get("content")
    sources = []
    for result in found if isinstance(found, list) else ():  # an object says why it failed
        check_members(shaped(result, dict, "content"), _SOURCE, "content")
        if result.get("url"):
            sources.append({key: result[key] for key in _SOURCE if result.get(key) is not None})
    asked = queries.get(identity, [])
    return {"type": "server_tool", "id": identity, "queries": asked, "sources": sources}


class MessagesWriter(StreamWriter):
    """A writer of one answer as events of the Messages API, in the bytes of server-sent events.

    While a call is open, events of other blocks wait, since blocks of this API come one after the
    other. The first event estimates the input tokens. The arguments are those of
    :func:`~remit.providers.dialects.translators.write_answer`.
    """

    def __init__(self, call: ModelCall, *, answer_id: str, created: int, model: str) -> None:
        super().__init__(call)
        self._answer_id = answer_id
        self._message: dict[str, Any] = {
            "id": answer_id,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": _estimate(call), "output_tokens": 0},
        }
        self._blocks = 0
        self._open: str | int | None = None  # a call's index, or a kind of block
        self._waiting: list[StreamEvent] = []
        self._kinds: set[str] = set()

    @override
    def start(self) -> bytes:
        return self._sse("message_start", {"message": self._message})

    @override
    def event(self, event: StreamEvent) -> bytes:
        if isinstance(self._open, int) and getattr(event, "index", None) != self._open:
            self._waiting.append(event)
            return b""
        return super().event(event)

    @override
    def end(self, answer: ProviderResponse) -> bytes:
        last = self._stop()
        while self._waiting:
            last += self._replay() + self._stop()
        calls = {"tool_use", "refusal"} & self._kinds
        word = "tool_use" if "tool_use" in calls else "refusal" if calls else "end_turn"
        reason = _WORDS.get(answer.finish_reason, word)
        delta = {"stop_reason": reason, "stop_sequence": None}
        last += self._sse("message_delta", {"delta": delta, "usage": usage_of(_ENDPOINT, answer)})
        return last + self._sse("message_stop", {})

    @override
    def error(self, status: int, code: str, message: str) -> bytes:
        return self._sse("error", error_body(_ENDPOINT, status, code, message))

    def _text(self, kind: str, text: str) -> bytes:
        return self._piece(kind, _TEXT, {"type": "text_delta", "text": text})

    def _thought(self, text: str, *, raw: bool) -> bytes:
        return self._piece("thinking", _THINKING, {"type": "thinking_delta", "thinking": text})

    def _begin_call(self, event: exchange.ToolUseStart) -> bytes:
        name = self._names.own(event.name)
        return self._begin(
            event.index, {"type": "tool_use", "id": event.id, "name": name, "input": {}}
        )

    def _input(self, index: int, text: str) -> bytes:
        return self._delta({"type": "input_json_delta", "partial_json": text})

    def _end_call(self, index: int, block: dict[str, Any]) -> bytes:
        self._kinds.add(block["type"])
        return self._stop() + self._replay()

    def _end_block(self, block: dict[str, Any]) -> bytes:
        self._kinds.add(block["type"])
        wholes = _blocks(block, self._names, self._answer_id)
        return b"".join([self._whole(block["type"], whole) for whole in wholes])

    def _whole(self, kind: str, whole: dict[str, Any]) -> bytes:
        """Return the end of a block whose pieces were sent, or the whole block if none were."""
        if kind in _TEXTS:
            wire = b"" if self._open == kind else self._begin(kind, _TEXT)
            for citation in whole.get("citations", ()):
                wire += self._delta({"type": "citations_delta", "citation": citation})
        elif kind == "thinking":
            wire = b"" if self._open == kind else self._begin(kind, _THINKING)
            if whole["signature"]:
                seal = {"type": "signature_delta", "signature": whole["signature"]}
                wire += self._delta(seal)
        elif whole["type"] == "server_tool_use":
            wire = self._begin(kind, {**whole, "input": {}})
            piece = json_text(whole["input"])
            wire += self._delta({"type": "input_json_delta", "partial_json": piece})
        else:
            wire = self._begin(kind, whole)
        return wire + self._stop()

    def _replay(self) -> bytes:
        waiting, self._waiting = self._waiting, []
        return b"".join([self.event(event) for event in waiting])

    def _begin(self, what: str | int, block: dict[str, Any]) -> bytes:
        before = self._stop()
        self._open = what
        return before + self._sse(
            "content_block_start", {"index": self._blocks, "content_block": block}
        )

    def _piece(self, what: str, block: dict[str, Any], delta: dict[str, Any]) -> bytes:
        begun = b"" if self._open == what else self._begin(what, block)
        return begun + self._delta(delta)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return self._sse("content_block_delta", {"index": self._blocks, "delta": delta})

    def _stop(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        ended = self._sse("content_block_stop", {"index": self._blocks})
        self._blocks += 1
        return ended

    def _sse(self, name: str, data: Mapping[str, Any]) -> bytes:
        """Return one event, here in the form of the Messages API."""
        return sse(name, data)


def _estimate(call: ModelCall) -> int:
    """Return about how many tokens the input has; its count comes with the last events."""
    size, left = 0, [call.messages, call.tools]
    while left:
        value: Any = left.pop()
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, dict):
            # The data of a picture is no text.
            left += [each for name, each in value.items() if name != "data"]
        elif isinstance(value, (list, tuple)):
            left += value
    return max(1, size // _CHARACTERS_PER_TOKEN)


def whole(value: dict[str, Any], answer: ProviderResponse) -> dict[str, Any]:
    """Return a ``message`` with the usage of the whole answer and an object as input of each call.

    Args:
        value: the sum of the message's stream, in which an incomplete input is a text.
        answer: the answer.
    """
    calls = [block for block in answer.content_blocks if block["type"] == "tool_use"]
    used = [block for block in value["content"] if block["type"] == "tool_use"]
    for block, call in zip(used, calls, strict=False):
        block["input"] = call["input"]
    return {**value, "usage": usage_of(_ENDPOINT, answer)}


def _blocks(block: Mapping[str, Any], names: ToolNames, search_id: str) -> list[dict[str, Any]]:
    """Return a neutral block of an answer as blocks of a ``message``.

    Args:
        block: the block.
        names: names of the call's tools.
        search_id: the id of a search that has no id of its own.
    """
    kind = block["type"]
    if kind == "text":
        text: dict[str, Any] = {"type": kind, "text": block["text"]}
        cited = citations_of(block)
        return [{**text, "citations": cited} if cited else text]
    if kind == "refusal":
        return [{"type": "text", "text": block["refusal"]}]
    if kind == "thinking":
        seal = seal_of(block, "signature") or ""
        return [{"type": kind, "thinking": block["thinking"], "signature": seal}]
    if kind == "redacted_thinking":
        return [{"type": kind, "data": block["data"]}]
    if kind == "tool_use":
        head = {"type": kind, "id": block["id"], "name": names.own(block["name"])}
        return [{**head, "input": block["input"]}]
    if kind == "server_tool":
        return _search_blocks(block, f"srvtoolu_{search_id}")
    return []


def _search_blocks(block: Mapping[str, Any], search_id: str) -> list[dict[str, Any]]:
    identity = block.get("id") or search_id
    query = " ".join(block.get("queries", ()))
    results = [
        {
            "type": "web_search_result",
            "url": source["url"],
            "title": source.get("title", source["url"]),
            "encrypted_content": "",
            "page_age": None,
        }
        for source in block.get("sources", ())
    ]
    named = {"type": "server_tool_use", "id": identity, "name": _SEARCH_TOOL}
    asked = {**named, "input": {"query": query}}
    return [asked, {"type": "web_search_tool_result", "tool_use_id": identity, "content": results}]
