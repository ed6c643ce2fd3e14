"""Streams of Responses, read as neutral events and written from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from remit.kernel import exchange
from remit.providers.dialects.citations import annotations_of, read_citations
from remit.providers.dialects.client_tools import item_fields
from remit.providers.dialects.errors import check_members, shaped, unreadable
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.responses.request_reader import read_item
from remit.providers.dialects.responses.request_writer import ended, response_object
from remit.providers.dialects.seals import seal_of
from remit.providers.dialects.streaming import StreamReader, StreamWriter, sse
from remit.providers.dialects.tool_calls import NAMELESS, free_text, json_text
from remit.providers.protocol import ProviderResponse
from remit.providers.wire.delta_sums import settled
from remit.providers.wire.responses import PARTS, ResponseSum

_INPUTS = {"function_call": "arguments", "custom_tool_call": "input"}
_RATE_LIMITED = 429
_RESPONSE = {"id": str, "model": str, "status": str, "output": list}
_ITEM = {"id": str, "status": str, "role": str, "action": dict}
"""The members of a response and of its items, and their types."""

_PREFIXES = {
    "message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc",
    "web_search_call": "ws", "shell_call": "sh", "local_shell_call": "lsh",
    "apply_patch_call": "apc", "tool_search_call": "tsc",
}  # fmt: skip
"""The beginning of an item's id, keyed by the item's type."""

_RAW, _SUMMARY = "response.reasoning_text", "response.reasoning_summary_text"
_PART_OF = {_RAW: "response.content_part", _SUMMARY: "response.reasoning_summary_part"}
"""The events of thoughts and of the part that they form."""


class _Item:
    """The part of an output item that was passed on."""

    def __init__(self) -> None:
        self.parts = 0  # The number of parts that have ended.
        self.thinks = ""  # the list with the thoughts: summary or content


class ResponsesReader(StreamReader):
    """Translates a stream of Responses to neutral events, read from the sum of the stream.

    The argument is a ResponseSum, to which each event is added before :meth:`feed`.
    """

    _sum: ResponseSum

    def __init__(self, total: ResponseSum) -> None:
        super().__init__(total)
        self._open: dict[int, _Item] = {}  # keyed by output index
        self._last: dict[int, dict[str, Any]] = {}

    def _feed(self, data: Mapping[str, Any]) -> None:
        kind = data.get("type")
        if not isinstance(kind, str):
            kind, data = "response.completed", {"response": data}
        answer = data.get("response")
        if isinstance(answer, dict):
            check_members(answer, _RESPONSE, "response")
        if kind in ("response.completed", "response.incomplete"):
            if not self._last:
                self._begin(answer)
            self._finish()
        elif "output_index" in data or kind.startswith("response.output_item."):
            self._add(kind, data)

    def _add(self, kind: str, data: Mapping[str, Any]) -> None:
        """Add the additions of an event that belongs to an output item."""
        index = shaped(data.get("output_index"), int, "output_index")
        if kind.endswith(".delta"):
            shaped(data.get("delta"), str, "delta")
        if (item := self._sum.item(index)) is not None:
            state = self._open.get(index)
            if state is None:
                if index in self._last:
                    raise unreadable("output_index")
                state = self._open[index] = _Item()
            self._last[index] = item
            self._grow(state, item, index)
            ends_part = kind == "response.content_part.done" and item.get("type") == "message"
            if ends_part and state.parts < len(item["content"]):  # The end may come twice.
                self._end_part(state, item)
        if kind == "response.output_item.done":
            self._end(index, shaped(data.get("item"), dict, "item"))

    def _finish(self) -> None:
        for index in sorted(self._open):
            self._end(index, settled(self._last[index]))

    def _begin(self, answer: Any) -> None:
        """Begin all items of an answer of which none has come."""
        output = shaped(shaped(answer, dict, "response").get("output"), list, "output")
        for index, item in enumerate(output):
            self._open[index] = _Item()
            self._last[index] = shaped(item, dict, f"output[{index}]")

    def _grow(self, state: _Item, item: dict[str, Any], index: int) -> None:
        kind = str(item.get("type"))
        if kind == "message":
            parts = shaped(item.get("content", []), list, "item.content")
            while state.parts < len(parts):
                part = parts[state.parts]
                is_refusal = type(part) is dict and part.get("type") == "refusal"
                key = "refusal" if is_refusal else "text"
                self._piece(key, self._said((index, state.parts), part, key))
                if state.parts + 1 == len(parts):
                    break
                self._end_part(state, item)
        elif kind == "reasoning":
            self._think(state, item, index)
        elif kind in _INPUTS:
            if index not in self._ids:
                identity = shaped(item.get("call_id"), str, "item.call_id")
                name = shaped(item.get("name") or NAMELESS, str, "item.name")
                self._begin_call(index, identity, name)
            given = item.get(_INPUTS[kind])
            if isinstance(given, (str, list)) and kind == "function_call":
                self._input(index, self._new((index, 0), given, ""))

    def _said(self, place: tuple[int, int], part: Any, key: str) -> str:
        """Return the text that was added to the part of an item at a place."""
        value = part.get(key, "") if type(part) is dict else None
        return self._new(place, value, f"part.{key}")

    def _think(self, state: _Item, item: dict[str, Any], index: int) -> None:
        for name, raw in (("content", True), ("summary", False)):
            parts = item.get(name)
            if state.thinks in ("", name) and isinstance(parts, list):
                for number, part in enumerate(parts):
                    place = (index, number)
                    begins = number > 0 and place not in self._cursors and not raw
                    new = self._said(place, part, "text")
                    if new or begins:
                        state.thinks = name
                        self._piece("thinking", f"\n\n{new}" if begins else new, raw=raw)

    def _end_part(self, state: _Item, item: dict[str, Any]) -> None:
        """End the current part of a message."""
        part = settled(shaped(item.get("content"), list, "item.content")[state.parts])
        state.parts += 1
        self._close()
        for block in _read({"type": "message", "role": "assistant", "content": [part]}):
            self._end_block(block)

    def _end(self, index: int, item: dict[str, Any]) -> None:
        state = self._open.pop(index, None)
        if state is None:
            return
        check_members(item, _ITEM, "item")
        self._grow(state, item, index)
        self._close()
        if item.get("type") == "message":
            rest = shaped(item.get("content", []), list, "item.content")[state.parts :]
            item = {**item, "role": "assistant", "content": rest}
        for block in _read(item):
            if block["type"] != "tool_use":
                self._end_block(block)
                continue
            if index not in self._ids:
                self._begin_call(index, block["id"], block["name"])
            self._end_call(index, block)


def _read(item: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the neutral blocks of an output item; none for items without meaning elsewhere.

    Raises:
        DialectError: the item does not have the API's form.
    """
    given = item.get("arguments")  # absent, or an object, as some servers write it
    if item.get("type") == "function_call" and not isinstance(given, str):
        item = {**item, "arguments": "" if given is None else json_text(given)}
    if str(item.get("type")) in _INPUTS and not item.get("name"):
        item = {**item, "name": NAMELESS}
    role, content = read_item(item, "item")
    blocks = [b for b in content if b["type"] != "other"] if role == "assistant" else []
    for block in blocks:
        read_citations(block.get("citations", []))
        if block["type"] == "server_tool":
            del block["endpoint"], block["value"], block["at"]
    return blocks


class ResponsesWriter(StreamWriter):
    """A writer of one answer as events of Responses, in the bytes of server-sent events.

    Adjacent texts and refusals form one message. The arguments are those of
    :func:`~remit.providers.dialects.translators.write_answer`.
    """

    def __init__(self, call: ModelCall, *, answer_id: str, created: int, model: str) -> None:
        super().__init__(call)
        self._head = response_object(call, answer_id=answer_id, created=created, model=model)
        self._own_id = answer_id.removeprefix("resp_")
        self._items: list[dict[str, Any]] = []
        self._number = 0
        self._message: dict[str, Any] | None = None
        self._part_open = False
        self._pieces: list[str] = []
        self._size = 0
        self._reasoning: dict[str, Any] | None = None
        self._stem = _SUMMARY
        self._calls: dict[int, tuple[dict[str, Any], list[str]]] = {}

    @override
    def start(self) -> bytes:
        return self._say("response.created", response=self._head) + self._say(
            "response.in_progress", response=self._head
        )

    @property
    @override
    def arguments(self) -> dict[str, str]:
        """Arguments of the ended function calls, keyed by call id."""
        called = (item for item, _ in self._calls.values() if item.get("arguments"))
        return {item["call_id"]: item["arguments"] for item in called}

    @override
    def end(self, answer: ProviderResponse) -> bytes:
        state = "incomplete" if answer.finish_reason == "length" else "completed"
        last = self._close_message(state)
        for item in self._items:
            if "status" in item:
                item["status"] = state if item is self._items[-1] else "completed"
        response = ended(self._head, self._items, answer)
        return last + self._say(f"response.{response['status']}", response=response)

    @override
    def error(self, status: int, code: str, message: str) -> bytes:
        kind = "rate_limit_exceeded" if status == _RATE_LIMITED else "server_error"
        failure = {"code": kind, "message": message}
        response = {**self._head, "status": "failed", "error": failure}
        said = self._say("error", code=code, message=message, param=None)
        return said + self._say("response.failed", response=response)

    def _say(self, kind: str, **fields: Any) -> bytes:
        wire = sse(kind, {"sequence_number": self._number, **fields})
        self._number += 1
        return wire

    def _place(self, item: dict[str, Any] | None, **more: int) -> dict[str, Any]:
        assert item is not None
        return {"item_id": item["id"], "output_index": self._items.index(item), **more}

    def _item_event(self, kind: str, item: dict[str, Any]) -> bytes:
        at = self._items.index(item)
        return self._say(f"response.output_item.{kind}", output_index=at, item=item)

    def _begin(self, kind: str, **fields: Any) -> tuple[bytes, dict[str, Any]]:
        """End the message and add an item of ``kind``; return its events and the item."""
        wire = self._close_message()
        identity = f"{_PREFIXES[kind]}_{self._own_id}_{len(self._items)}"
        item = {"id": identity, "type": kind, **fields}
        self._items.append(item)
        return wire + self._item_event("added", item), item

    # Messages

    def _text(self, kind: str, text: str) -> bytes:
        kind = "output_text" if kind == "text" else kind
        wire = self._part(kind)
        self._pieces.append(text)
        more: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
        return wire + self._say(f"response.{kind}.delta", **self._last_part(), delta=text, **more)

    def _last_part(self) -> dict[str, Any]:
        assert self._message is not None
        return self._place(self._message, content_index=len(self._message["content"]) - 1)

    def _part(self, kind: str) -> bytes:
        """Begin a part of ``kind`` unless one is open; return its events."""
        wire = b""
        if self._message is None:
            wire, self._message = self._begin(
                "message", status="in_progress", role="assistant", content=[]
            )
        content = self._message["content"]
        if self._part_open and content[-1]["type"] == kind:
            return wire
        wire += self._close_part()
        part: dict[str, Any] = {"type": kind, "refusal": ""}
        if kind == "output_text":
            part = {"type": kind, "text": "", "annotations": [], "logprobs": []}
        content.append(part)
        self._part_open = True
        return wire + self._say("response.content_part.added", **self._last_part(), part=part)

    def _close_part(self) -> bytes:
        if self._message is None or not self._part_open:
            return b""
        self._part_open = False
        part, where = self._message["content"][-1], self._last_part()
        text, self._pieces, self._size = "".join(self._pieces), [], 0
        kind = part["type"]
        told = {"refusal": text} if kind == "refusal" else {"text": text}
        part |= told
        more: dict[str, Any] = {} if kind == "refusal" else {"logprobs": []}
        wire = self._say(f"response.{kind}.done", **where, **told, **more)
        return wire + self._say("response.content_part.done", **where, part=part)

    def _close_message(self, status: str = "completed") -> bytes:
        if self._message is None:
            return b""
        wire = self._close_part()
        message, self._message = self._message, None
        message["status"] = status
        return wire + self._item_event("done", message)

    def _end_text(self, block: dict[str, Any]) -> bytes:
        wire = self._part("output_text")
        assert self._message is not None
        noted = self._message["content"][-1]["annotations"]
        for annotation in annotations_of(block, self._size):
            noted.append(annotation)
            wire += self._say(
                "response.output_text.annotation.added", **self._last_part(),
                annotation_index=len(noted) - 1, annotation=annotation,
            )  # fmt: skip
        self._size += len(block["text"])
        return wire

    # Thinking

    def _thought(self, text: str, *, raw: bool) -> bytes:
        wire = b""
        if self._reasoning is None:
            wire, self._reasoning = self._begin("reasoning", summary=[])
            stem = self._stem = _RAW if raw else _SUMMARY
            part = {"type": PARTS[stem][-2], "text": ""}
            wire += self._say(f"{_PART_OF[stem]}.added", **self._thought_place(stem), part=part)
        where = self._thought_place(self._stem)
        return wire + self._say(f"{self._stem}.delta", **where, delta=text)

    def _thought_place(self, stem: str) -> dict[str, Any]:
        return self._place(self._reasoning, **{PARTS[stem][2]: 0})

    def _end_thought(self, block: dict[str, Any]) -> bytes:
        wire, text, raw = b"", block.get("thinking"), block.get("raw") is True
        if self._reasoning is None and text:
            wire = self._thought(text, raw=raw)
        if self._reasoning is None:
            wire, self._reasoning = self._begin("reasoning", summary=[])
        item, stem = self._reasoning, _RAW if raw else _SUMMARY
        _, members, _, kind, member = PARTS[stem]
        if text:
            item[members] = [{"type": kind, member: text}]
        if (sealed := seal_of(block, "encrypted")) is not None:
            item["encrypted_content"] = sealed
        if text:
            where, (part,) = self._thought_place(stem), item[members]
            wire += self._say(f"{stem}.done", **where, text=text)
            wire += self._say(f"{_PART_OF[stem]}.done", **where, part=part)
        self._reasoning = None
        return wire + self._item_event("done", item)

    # Calls

    def _begin_call(self, event: exchange.ToolUseStart) -> bytes:
        own, begun = self._names.in_namespace(event.name), {"status": "in_progress"}
        kind, fields = "function_call", {**begun, "call_id": event.id, **own, "arguments": ""}
        if (tool := self._names.kind(event.name)) is not None:
            kind = f"{tool}_call"
            fields = {**begun, "call_id": event.id, **item_fields(tool, {})}
        elif self._names.is_custom({"name": event.name}):
            kind, fields = "custom_tool_call", {"call_id": event.id, **own, "input": ""}
        wire, item = self._begin(kind, **fields)
        self._calls[event.index] = (item, [])
        return wire

    def _input(self, index: int, text: str) -> bytes:
        item, pieces = self._calls[index]
        if item["type"] != "function_call":
            return b""  # Other inputs follow once their JSON is complete.
        pieces.append(text)
        kind = "response.function_call_arguments.delta"
        return self._say(kind, **self._place(item), delta=text)

    def _end_call(self, index: int, block: dict[str, Any]) -> bytes:
        item, pieces = self._calls[index]
        where, wire = self._place(item), b""
        if item["type"] == "custom_tool_call":
            text = item["input"] = free_text(block["input"])
            wire = self._say("response.custom_tool_call_input.delta", **where, delta=text)
            wire += self._say("response.custom_tool_call_input.done", **where, input=text)
        elif item["type"] == "function_call":
            stated = {"name": item["name"], "arguments": "".join(pieces)}
            item |= {**stated, "status": "completed"}
            wire = self._say("response.function_call_arguments.done", **where, **stated)
        else:
            item |= item_fields(item["type"].removesuffix("_call"), block["input"])
            item["status"] = "completed"
        return wire + self._item_event("done", item)

    def _end_block(self, block: dict[str, Any]) -> bytes:
        kind = block["type"]
        if kind == "text":
            return self._end_text(block)
        if kind == "refusal":
            return self._part("refusal") + self._close_part()
        if kind in ("thinking", "redacted_thinking"):
            return self._end_thought(block)
        return self._search(block) if kind == "server_tool" else b""

    def _search(self, block: dict[str, Any]) -> bytes:
        queries = list(block.get("queries", ()))
        sources = [{"type": "url", "url": source["url"]} for source in block.get("sources", ())]
        action = {"type": "search", "query": " ".join(queries), "queries": queries}
        wire, item = self._begin(
            "web_search_call", status="in_progress", action={**action, "sources": sources}
        )
        for state in ("in_progress", "searching", "completed"):
            wire += self._say(f"response.web_search_call.{state}", **self._place(item))
        item["status"] = "completed"
        return wire + self._item_event("done", item)
