"""Answers of the Messages API, whole and streamed."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from msgspec.structs import replace
from typing_extensions import override

from remit.kernel.json_splice import elements, member, value_at
from remit.kernel.json_text import JsonTextError, load_unique
from remit.providers.wire.answer import AnswerFacts, StreamSum, ended_by, string
from remit.providers.wire.delta_sums import Pieces, grow, settled
from remit.providers.wire.usage import Usage, continued, objects_in, read_usage

_PLAIN = frozenset(
    {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}
)
_DELTAS = {"text_delta": "text", "thinking_delta": "thinking"}
_BLOCKS = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
    "compaction_delta": "compaction",
}
"""The kind of block that a delta belongs to, where a server did not begin one."""

_INPUT = "input_json_delta"
_CONTENT = ("text", "thinking", "data", "partial_json")


def read_inputs(answer: Any, raw: bytes) -> None:
    """Parse the inputs of an answer's tool calls again with exact numbers, in place.

    Args:
        answer: the parsed answer.
        raw: its text.
    """
    if b'"tool_use"' in raw and is_answer(answer) and type(answer["content"]) is list:
        texts = elements(value_at(raw, ["content"]) or b"[]")
        for block, text in zip(answer["content"], texts, strict=False):
            _read_input(block, text)


def _read_input(block: Any, text: bytes | None) -> None:
    if type(block) is dict and block.get("type") == "tool_use" and text is not None:
        found = member(text, "input")
        if found is not None and text[found.value : found.value + 1] != b'"':
            block["input"] = _input(text[found.value : found.end].decode())


def _input(text: str) -> Any:
    """Return the object that a text holds; the text if it holds anything else."""
    try:
        value = load_unique(text, repair=True)
    except JsonTextError:
        return text
    return value if type(value) is dict else text


def is_answer(answer: Any) -> bool:
    """Return True if the answer has a content list."""
    return type(answer) is dict and type(answer.get("content")) is list


def facts(answer: Any) -> AnswerFacts:
    """Return the facts of an answer of the Messages API. Never raises.

    The text is that of all text blocks. Any other block, citations or an unknown member set
    ``more_than_text``. Uses of tools that the usage does not state are counted by their blocks.

    Args:
        answer: the parsed answer. A value that is no object gives no facts.
    """
    if type(answer) is not dict:
        return AnswerFacts(more_than_text=answer is not None)
    blocks = answer.get("content")
    more = type(blocks) is not list
    found: list[str] = []
    content = False
    for block in blocks if type(blocks) is list else ():
        content = True
        if type(block) is dict and block.get("type") == "text":
            found.append(string(block.get("text")))
            if len(block) > 2:
                more = more or any(
                    value is not None for key, value in block.items() if key not in ("type", "text")
                )
        else:
            more = True
    if not more and len(answer) > len(_PLAIN):
        more = any(value is not None for key, value in answer.items() if key not in _PLAIN)
    usage = read_usage(answer.get("usage"), content=content, cache_apart=True, answer=answer)
    if more and usage is not None:
        usage = _with_tools(usage, blocks)
    reason, failure = ended_by(answer.get("stop_reason"))
    return AnswerFacts(
        text="".join(found),
        model=string(answer.get("model")),
        finish_reason=reason,
        request_id=string(answer.get("id")),
        usage=usage,
        more_than_text=more,
        failure=failure,
    )


def _with_tools(usage: Usage, blocks: Any) -> Usage | None:
    """Return the usage with uses of tools counted by their blocks; None if those are malformed.

    Counts that the usage states replace those of the blocks. A tool with an unreadable name counts
    as a search if the answer has results of searches, else the blocks are malformed. A result
    without its search counts as one. All code of an answer runs in one container.
    """
    listed = objects_in(blocks)
    if listed is None or not all(type(block.get("type")) is str for block in listed):
        return None
    names = [block.get("name") for block in listed if block.get("type") == "server_tool_use"]
    results = [block["type"].removesuffix("_tool_result") for block in listed]
    asked = sum(name == "web_search" or type(name) is not str for name in names)
    found = results.count("web_search")
    if not found and not usage.server_tool_uses and not all(type(name) is str for name in names):
        return None
    used = [*names, *results]
    runs_code = any(str(name).endswith("code_execution") for name in used)
    uses = {"web_search": max(asked, found), "code_execution": int(runs_code)}
    counted = {name: times for name, times in uses.items() if times}
    counted |= usage.server_tool_uses
    return replace(usage, server_tool_uses=counted) if counted else usage


class MessageSum(StreamSum):
    """The sum of a stream of the Messages API: its message, blocks and usage so far.

    The stream ends with a whole answer, or with ``message_stop`` unless an event was an error.
    """

    read_facts = staticmethod(facts)
    at_once: ClassVar[re.Pattern[bytes] | None] = re.compile(
        rb'error|\.failed|message|"content"|\\u00[2-7]'
    )

    __slots__ = ("_blocks", "_input", "_message", "_output_told", "_usage")

    def __init__(self) -> None:
        super().__init__()
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] | None = None
        self._output_told = False  # the count at the start is of what was made by then
        self._blocks: list[tuple[int, dict[str, Any]]] = []
        self._input: dict[int, Pieces] = {}  # Keyed by the block's place in _blocks.

    def _add(self, kind: str, event: dict[str, Any], data: bytes) -> None:
        if self._ended:
            return
        if (found := self.appended(event)) is not None:
            text, pieces = self.grown = found
            pieces.append(text)
            self.measure(text)
        elif kind == "content_block_delta":
            self._add_delta(event)
        elif kind == "content_block_start":
            if b'"tool_use"' in data:
                _read_input(event.get("content_block"), value_at(data, ["content_block"]))
            self._begin(event)
        elif kind == "message_start":
            message = event.get("message")
            if type(message) is dict:
                self._start(message)
        elif kind == "message_delta":
            self._end(event)
        elif kind == "message_stop":
            self._ended = self.error is None
            self.is_last = True
        elif kind == "error":
            self.error = event.get("error") or event
        elif kind == "message" or type(event.get("content")) is list:
            self._start(event)
            self._output_told = self._ended = self.is_last = self.is_whole = True

    def _start(self, message: dict[str, Any]) -> None:
        self._message.update(message)
        if type(usage := message.get("usage")) is dict:
            self._usage = continued(self._usage, usage, cache_apart=True)
        if type(blocks := message.get("content")) is list:
            for index, block in enumerate(blocks):
                self._begin({"index": index, "content_block": block})

    def _begin(self, event: dict[str, Any]) -> None:
        given = event.get("content_block")
        if type(given) is not dict:
            given = {}
        index = event.get("index")
        if type(index) is not int:
            index = len(self._blocks)
        self._place(index, dict(given))
        self.pieces += given.get("type") == "server_tool_use"
        for key in _CONTENT:
            if (text := given.get(key)) and type(text) is str:
                self.measure(text)
        if given.get("type") == "fallback":  # the model that goes on is the one that answered
            to = given.get("to")
            if type(to) is dict and type(to.get("model")) is str:
                self._message["model"] = to["model"]

    def _place(self, index: int, block: dict[str, Any]) -> None:
        if block.get("type") == "text" and type(text := block.get("text", "")) is str:
            block["text"] = Pieces((text,))
        self._blocks.append((index, block))

    def _add_delta(self, event: dict[str, Any]) -> None:
        delta, index = event.get("delta"), event.get("index")
        if type(delta) is not dict:
            return
        kind = delta.get("type")
        at = self._at(index, kind)
        block = self._blocks[at][1]
        rest = {key: value for key, value in delta.items() if key != "type"}
        if kind == _INPUT:
            piece = rest.pop("partial_json", None)
            if type(piece) is str:
                self._input.setdefault(at, Pieces()).append(piece)
                self.measure(piece)
        elif kind == "citations_delta":
            if "citation" in rest:
                citation = rest.pop("citation")
                have = block.get("citations")
                block["citations"] = [*(have if type(have) is list else ()), citation]
        elif kind == "signature_delta" and "signature" in rest:
            block["signature"] = rest.pop("signature")
        elif kind == "compaction_delta":
            for key, value in rest.items():
                block[key] = value
                if type(value) is str and key == "content":
                    self.measure(value)
            return
        elif kind != "text_delta" and kind != "thinking_delta":
            for value in rest.values():
                if type(value) is str:
                    self.measure(value)
        elif type(text := rest.get(_DELTAS[kind])) is str:
            self.measure(text)
        grow(block, rest)

    def place(self, index: Any) -> int | None:
        """Return the place of the last block with this index; None if there is none.

        An index that is no number means the last block.
        """
        for at in range(len(self._blocks) - 1, -1, -1):
            if self._blocks[at][0] == index or type(index) is not int:
                return at
        return None

    def _at(self, index: Any, kind: Any) -> int:
        """Return :meth:`place`; begin a block if there is none."""
        if (at := self.place(index)) is not None:
            return at
        block = _BLOCKS.get(kind) if type(kind) is str else None
        self._place(index if type(index) is int else 0, {"type": block} if block else {})
        return len(self._blocks) - 1

    def _end(self, event: dict[str, Any]) -> None:
        delta, usage = event.get("delta"), event.get("usage")
        message = self._message
        for part in (event, delta):
            if type(part) is dict:
                for key, value in part.items():
                    if part is event and key in ("type", "delta", "usage"):
                        continue
                    if value is not None or key not in message:
                        message[key] = value
        if type(usage) is dict:
            self._usage = continued(self._usage, usage, cache_apart=True)
            if usage.get("output_tokens") is not None:
                self._output_told = True

    def appended(self, value: Any) -> tuple[str, Pieces] | None:
        """Return the text of an event and the pieces it was appended to, or None, as
        :meth:`.StreamSum.appended`.
        """
        delta = value.get("delta") if type(value) is dict else None
        if type(delta) is not dict or value.get("type") != "content_block_delta" or self._ended:
            return None
        text, index = delta.get("text"), value.get("index")
        if delta.get("type") != "text_delta" or len(delta) != 2 or type(index) is not int:
            return None
        have = None if (at := self.place(index)) is None else self._blocks[at][1].get("text")
        return (text, have) if type(text) is str and type(have) is Pieces else None

    @property
    def count(self) -> int:
        """Number of blocks so far, in the order in which they began."""
        return len(self._blocks)

    def block(self, at: int) -> dict[str, Any]:
        """Return the block at a place; its texts may be :class:`Pieces`."""
        return self._blocks[at][1]

    def inputs(self, at: int) -> Pieces | str:
        """Return the pieces of the input of the tool call at a place."""
        return self._input.get(at, "")

    def whole(self, at: int) -> dict[str, Any]:
        """Return the block at a place with its texts joined and its input parsed."""
        whole: dict[str, Any] = settled(self._blocks[at][1])
        if pieces := "".join(self._input.get(at, ())):
            whole["input"] = _input(pieces)
        return whole

    @property
    def usage(self) -> Usage | None:
        """The usage reported so far; once ``ended``, that of the whole answer or None."""
        if self.ended:
            return self.facts().usage
        return read_usage(self._usage_so_far(), cache_apart=True)

    def _usage_so_far(self) -> dict[str, Any] | None:
        return None if self._usage is None else {"output_tokens": 0, **self._usage}

    @property
    @override
    def has_final_usage(self) -> bool:
        is_stopped = self._message.get("stop_reason") is not None
        return self.is_last or (is_stopped and self._output_told)

    def _told_usage(self) -> dict[str, Any] | None:
        """Return the usage, without the output tokens unless they were reported after the start."""
        if self._usage is None or self._output_told:
            return self._usage
        return {key: value for key, value in self._usage.items() if key != "output_tokens"}

    def answer(self) -> dict[str, Any]:
        """Return the answer so far, also after the stream broke off; empty if nothing came.

        Blocks are in the order of their indexes. A tool's input that is no JSON object is its text.
        ``usage`` has ``output_tokens`` only if they were reported after the message's start.
        ``error`` is a reported error.
        """
        places = sorted(range(len(self._blocks)), key=lambda at: self._blocks[at][0])
        content = [self.whole(at) for at in places]
        answer = dict(self._message)
        if answer or content:
            answer["content"] = content
        if self.error is not None:
            answer.setdefault("error", self.error)
        if (usage := self._told_usage()) is not None:
            answer["usage"] = usage
        return answer
