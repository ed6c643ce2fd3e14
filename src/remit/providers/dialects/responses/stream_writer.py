"""Neutral events as events of Responses, numbered, with the whole response at the end."""

from __future__ import annotations

from typing import Any

from remit.kernel.exchange import (
    BlockEnd,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolUseStart,
)
from remit.providers.dialects.arguments import arguments_text, free_text
from remit.providers.dialects.citations import annotations_of
from remit.providers.dialects.errors import unreadable
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.names import ToolNames
from remit.providers.dialects.responses.output import OutputItems, ended, response_object
from remit.providers.dialects.streaming import sse
from remit.providers.protocol import ProviderResponse

__all__ = ["ResponsesWriter"]

_RATE_LIMITED = 429


class ResponsesWriter:
    """A writer of a stream of Responses (:class:`~remit.providers.dialects.StreamWriter`).

    The arguments are those of :func:`~remit.providers.dialects.endpoints.write_answer`.
    """

    def __init__(self, call: ModelCall, *, answer_id: str, created: int, model: str) -> None:
        self._head = response_object(call, answer_id=answer_id, created=created, model=model)
        self._names = ToolNames(call)
        self._output = OutputItems(answer_id, self._names)
        self._number = 0
        self._message: dict[str, Any] | None = None
        self._part_open = False
        self._pieces: list[str] = []
        self._size = 0
        self._thought: dict[str, Any] | None = None
        self._thought_raw = False
        self._calls: dict[int, tuple[dict[str, Any], list[str]]] = {}

    def start(self) -> bytes:
        """Return the events ``response.created`` and ``response.in_progress``."""
        return self._say("response.created", response=self._head) + self._say(
            "response.in_progress", response=self._head
        )

    def event(self, event: StreamEvent) -> bytes:
        """Return the events of one neutral event."""
        if isinstance(event, TextDelta):
            wire = self._part("output_text")
            self._pieces.append(event.text)
            where = self._place(self._message, content_index=self._last_part())
            return wire + self._say(
                "response.output_text.delta", **where, delta=event.text, logprobs=[]
            )
        if isinstance(event, ToolInputDelta):
            return self._input(event)
        if isinstance(event, ToolUseStart):
            return self._begin_call(event)
        if isinstance(event, BlockEnd):
            return self._end_block(event)
        if isinstance(event, RefusalDelta):
            wire = self._part("refusal")
            self._pieces.append(event.text)
            where = self._place(self._message, content_index=self._last_part())
            return wire + self._say("response.refusal.delta", **where, delta=event.text)
        return self._think(event) if event.text else b""

    def end(self, answer: ProviderResponse) -> bytes:
        """Return the ends of open parts and items, then the whole response."""
        status = "incomplete" if answer.finish_reason == "length" else "completed"
        last = self._close_message(status)
        response = ended(self._head, self._output.finished(answer.finish_reason), answer)
        return last + self._say(f"response.{response['status']}", response=response)

    def error(self, status: int, code: str, message: str) -> bytes:
        """Return an error that ends the stream."""
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
        return {"item_id": item["id"], "output_index": self._output.items.index(item), **more}

    def _item_event(self, kind: str, item: dict[str, Any]) -> bytes:
        at = self._output.items.index(item)
        return self._say(f"response.output_item.{kind}", output_index=at, item=item)

    # Messages

    def _last_part(self) -> int:
        assert self._message is not None
        return len(self._message["content"]) - 1

    def _part(self, kind: str) -> bytes:
        """Begin a part of ``kind`` unless one is open; return its events."""
        wire = b""
        if self._message is None:
            self._message = self._output.begin_message()
            wire = self._item_event("added", self._message)
        content = self._message["content"]
        if self._part_open and content[-1]["type"] == kind:
            return wire
        wire += self._close_part()
        part: dict[str, Any] = {"type": kind, "refusal": ""}
        if kind == "output_text":
            part = {"type": kind, "text": "", "annotations": [], "logprobs": []}
        content.append(part)
        self._part_open = True
        where = self._place(self._message, content_index=len(content) - 1)
        return wire + self._say("response.content_part.added", **where, part=part)

    def _close_part(self) -> bytes:
        if self._message is None or not self._part_open:
            return b""
        self._part_open = False
        part = self._message["content"][-1]
        text, self._pieces, self._size = "".join(self._pieces), [], 0
        where = self._place(self._message, content_index=self._last_part())
        if part["type"] == "refusal":
            part["refusal"] = text
            wire = self._say("response.refusal.done", **where, refusal=text)
        else:
            part["text"] = text
            wire = self._say("response.output_text.done", **where, text=text, logprobs=[])
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
        part = self._message["content"][-1]
        where = self._place(self._message, content_index=self._last_part())
        for annotation in annotations_of(block, self._size):
            index = len(part["annotations"])
            part["annotations"].append(annotation)
            wire += self._say(
                "response.output_text.annotation.added",
                **where,
                annotation_index=index,
                annotation=annotation,
            )
        self._size += len(block["text"])
        return wire

    # Thinking

    def _think(self, event: ThinkingDelta) -> bytes:
        wire, thought = b"", self._thought
        if thought is None:
            wire, thought = self._begin_thought()
            self._thought_raw = event.raw
            if event.raw:
                part = {"type": "reasoning_text", "text": ""}
                where = self._place(thought, content_index=0)
                wire += self._say("response.content_part.added", **where, part=part)
            else:
                part = {"type": "summary_text", "text": ""}
                where = self._place(thought, summary_index=0)
                wire += self._say("response.reasoning_summary_part.added", **where, part=part)
        if self._thought_raw:
            where = self._place(thought, content_index=0)
            return wire + self._say("response.reasoning_text.delta", **where, delta=event.text)
        where = self._place(thought, summary_index=0)
        return wire + self._say("response.reasoning_summary_text.delta", **where, delta=event.text)

    def _begin_thought(self) -> tuple[bytes, dict[str, Any]]:
        wire = self._close_message()
        thought = self._thought = self._output.begin("reasoning", summary=[])
        return wire + self._item_event("added", thought), thought

    def _end_thought(self, block: dict[str, Any]) -> bytes:
        wire = b""
        if self._thought is None:
            text = block.get("thinking")
            raw = block.get("raw") is True
            wire = self._think(ThinkingDelta(text, raw=raw)) if text else self._begin_thought()[0]
        thought, self._thought = self._thought, None
        assert thought is not None
        self._output.end_reasoning(thought, block)
        for part in thought.get("content", ()):
            where = self._place(thought, content_index=0)
            wire += self._say("response.reasoning_text.done", **where, text=part["text"])
            wire += self._say("response.content_part.done", **where, part=part)
        for part in thought["summary"]:
            where = self._place(thought, summary_index=0)
            wire += self._say("response.reasoning_summary_text.done", **where, text=part["text"])
            wire += self._say("response.reasoning_summary_part.done", **where, part=part)
        return wire + self._item_event("done", thought)

    # Calls

    def _begin_call(self, event: ToolUseStart) -> bytes:
        wire = self._close_message()
        custom = self._names.is_custom({"name": event.name})
        item = self._output.begin_call(event.id, event.name, custom)
        self._calls[event.index] = (item, [])
        return wire + self._item_event("added", item)

    def _call(self, index: int) -> tuple[dict[str, Any], list[str]]:
        call = self._calls.get(index)
        if call is None:
            raise unreadable("a piece of a tool's call that has not begun")
        return call

    def _input(self, event: ToolInputDelta) -> bytes:
        item, pieces = self._call(event.index)
        if item["type"] != "function_call" or not event.partial_json:
            return b""  # Other inputs follow once their JSON is complete.
        pieces.append(event.partial_json)
        kind = "response.function_call_arguments.delta"
        return self._say(kind, **self._place(item), delta=event.partial_json)

    def _end_call(self, index: int, block: dict[str, Any]) -> bytes:
        item, pieces = self._call(index)
        where = self._place(item)
        if item["type"] == "custom_tool_call":
            text = item["input"] = free_text(block["input"])
            wire = self._say("response.custom_tool_call_input.delta", **where, delta=text)
            wire += self._say("response.custom_tool_call_input.done", **where, input=text)
            return wire + self._item_event("done", item)
        if item["type"] != "function_call":
            self._output.end_call(item, block)
            return self._item_event("done", item)
        wire = b""
        text = "".join(pieces)
        if not text:
            text = arguments_text(block["input"])
            wire = self._say("response.function_call_arguments.delta", **where, delta=text)
        item |= {"arguments": text, "status": "completed"}
        wire += self._say(
            "response.function_call_arguments.done", **where, name=item["name"], arguments=text
        )
        return wire + self._item_event("done", item)

    def _end_block(self, event: BlockEnd) -> bytes:
        block = event.block
        kind = block["type"]
        if event.index is not None:
            return self._end_call(event.index, block)
        if kind == "text":
            return self._end_text(block)
        if kind == "refusal":
            return self._part("refusal") + self._close_part()
        if kind in ("thinking", "redacted_thinking"):
            return self._end_thought(block)
        return self._search(block) if kind == "server_tool" else b""

    def _search(self, block: dict[str, Any]) -> bytes:
        wire = self._close_message()
        fields = self._output.search_fields(block)
        item = self._output.begin("web_search_call", **{**fields, "status": "in_progress"})
        wire += self._item_event("added", item)
        for state in ("in_progress", "searching", "completed"):
            wire += self._say(f"response.web_search_call.{state}", **self._place(item))
        item["status"] = "completed"
        return wire + self._item_event("done", item)
