"""Answers of the Responses API, whole and streamed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from types import NoneType
from typing import Any, ClassVar

from msgspec.structs import replace

from remit.providers.wire.answer import AnswerFacts, StreamSum, ended_by, stated_error, string
from remit.providers.wire.body import member_at
from remit.providers.wire.delta_sums import Pieces, grow, settled
from remit.providers.wire.usage import Usage, is_count, plus, read_usage

_ENDS = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled",
     "response.done"}
)  # fmt: skip
_STATES = frozenset({"response.created", "response.in_progress", "response.queued"})
_CALLS = frozenset({"function_call", "custom_tool_call"})
_GROWING = ("message", "reasoning", *_CALLS)
"""Types of items whose content comes in deltas; any other item may be a tool of the provider."""

_HOSTED = {
    "web_search_call": "web_search",
    "file_search_call": "file_search",
    "code_interpreter_call": "code_interpreter",
    "shell_call": "shell",
    "image_generation_call": "image_generation",
    "mcp_call": "mcp",
}
_USE = re.compile(rf"response\.({'|'.join(_HOSTED)})(?:[._][a-z_.]+)?")
"""Types of events that report the progress, input or output of a tool's use."""

_FREE_ACTIONS = ("open_page", "find_in_page", "find")
"""Actions of a web search that are not billed: they read a page that a search found."""

_FIELDS = {
    "response.function_call_arguments": ("function_call", "arguments"),
    "response.mcp_call_arguments": ("mcp_call", "arguments"),
    "response.custom_tool_call_input": ("custom_tool_call", "input"),
    "response.code_interpreter_call_code": ("code_interpreter_call", "code"),
}
"""The type of an output item, in case a server did not begin it, and the member that ``….delta``
events add to and ``….done`` events state."""

PARTS = {
    "response.output_text": ("message", "content", "content_index", "output_text", "text"),
    "response.refusal": ("message", "content", "content_index", "refusal", "refusal"),
    "response.reasoning_text": (
        "reasoning", "content", "content_index", "reasoning_text", "text",
    ),
    "response.reasoning_summary_text": (
        "reasoning", "summary", "summary_index", "summary_text", "text",
    ),
}  # fmt: skip
"""The same for a part of an item: the item's type, its list, the index in it, the part's type, its
member."""


def is_reference(item: Any) -> bool:
    """Return True if an input item refers to an item that the provider stored.

    The item's type may be missing.
    """
    if type(item) is not dict:
        return False
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and "role" not in item and "id" in item)


def is_answer(answer: Any) -> bool:
    """Return True if the answer has an output list, which may be empty unless it failed."""
    if type(answer) is not dict or type(answer.get("output")) is not list:
        return False
    return bool(answer["output"]) or answer.get("status") != "failed"


def is_compaction(answer: Any) -> bool:
    """Return True if an answer contains a compacted conversation."""
    return type(answer) is dict and type(answer.get("output")) is list and bool(answer["output"])


def facts(answer: Any) -> AnswerFacts:
    """Return the facts of an answer of the Responses API. Never raises.

    The text is that of all messages. Any other item or part, annotations, or an answer without
    items set ``more_than_text``. Uses of the provider's tools are counted in the usage.

    Args:
        answer: the parsed answer. A value that is no object gives no facts.
    """
    if type(answer) is not dict:
        return AnswerFacts(more_than_text=answer is not None)
    output = answer.get("output")
    items = output if type(output) is list else []
    more = not items
    found: list[str] = []
    calls = False
    for item in items:
        kind = item.get("type") if type(item) is dict else None
        if kind == "message":
            more = _read_message(item, found) or more
        else:
            more = True
            calls = calls or (type(kind) is str and kind in _CALLS)
    finish, failure = _ended(answer, calls=calls)
    return AnswerFacts(
        text="".join(found),
        model=string(answer.get("model")),
        finish_reason=finish,
        request_id=string(answer.get("id")),
        usage=_usage_in(answer, items),
        more_than_text=more,
        failure=failure,
    )


def _ended(answer: Mapping[str, Any], *, calls: bool) -> tuple[str, str]:
    """Return why a ``response`` ended, as :func:`~remit.providers.wire.answer.ended_by` does."""
    if (status := answer.get("status")) != "incomplete":
        return ended_by(status, calls=calls)
    reason, failure = ended_by(member_at(answer, "incomplete_details.reason"))
    return "length" if reason == "stop" else reason, failure


def _read_message(item: dict[str, Any], found: list[str]) -> bool:
    """Append the message's text to ``found``; return True if it has other parts."""
    content = item.get("content")
    if type(content) is not list:
        return True
    more = False
    for part in content:
        if type(part) is dict and part.get("type") == "output_text":
            found.append(string(part.get("text")))
            more = more or any(value for key, value in part.items() if key not in ("type", "text"))
        else:
            more = True
    return more


def _usage_in(answer: dict[str, Any], items: list[Any]) -> Usage | None:
    content = any(type(item) is dict for item in items)
    usage = read_usage(answer.get("usage"), content=content, answer=answer)
    if usage is None or type(answer.get("output")) not in (list, NoneType):
        return None
    uses = _tool_uses(answer, items, usage.server_tool_uses)
    if uses is None:
        return None
    if uses:
        usage = replace(usage, server_tool_uses=uses)
    return _with_images(usage, answer)


def _tool_uses(
    answer: dict[str, Any], items: list[Any], counted: Mapping[str, int]
) -> Mapping[str, int] | None:
    """Return how often each tool of the provider is billed; None if an item or count is malformed.

    A container is billed once, however often it ran, and so is each use without a named container.
    """
    uses: dict[str, int] = {}
    containers: list[str] = []
    for item in items:
        kind = (item.get("type") or item.get("role")) if type(item) is dict else None
        if type(kind) is not str or not kind:
            return None
        name = _HOSTED.get(kind)
        place = item.get("environment") if name == "shell" else item
        container = place.get("container_id") if name and type(place) is dict else None
        if (name == "shell" and member_at(place, "type") == "local") or container in containers:
            continue  # The client ran it, or it is one more use of a container.
        if type(container) is str:
            containers.append(container)
        if name == "web_search" and str(member_at(item, "action.type")) in _FREE_ACTIONS:
            continue
        if name:
            uses[name] = uses.get(name, 0) + 1
    uses |= counted  # not a sum: these are the same uses
    searches: Any = answer
    for member in ("tool_usage", "web_search", "num_requests"):
        if type(searches) is dict:
            searches = searches.get(member)
        elif searches is not None:
            return None
    if is_count(searches):
        uses["web_search"] = searches
    elif searches is not None:
        return None
    return {name: times for name, times in uses.items() if times}


def _with_images(usage: Usage, answer: dict[str, Any]) -> Usage | None:
    """Return the usage with the tokens of generated pictures; None if those are unreadable."""
    images = member_at(answer, "tool_usage.image_gen")
    if not images:
        return usage
    made = read_usage(images, generates=False)
    if made is None or not (made.input_tokens or made.output_tokens):
        return usage if made is not None else None
    usage = replace(
        usage, image_input_tokens=made.input_tokens, image_output_tokens=made.output_tokens
    )
    return plus(usage, made)


def _list_in(holder: dict[str, Any], name: str) -> list[Any]:
    """Return the list that a member holds; put an empty one there if it holds anything else."""
    if type(held := holder.get(name)) is not list:
        held = holder[name] = []
    return held


def _copied(value: dict[str, Any], depth: int = 0) -> dict[str, Any]:
    """Return a copy of an item or part whose lists can be appended to."""
    return {
        key: [
            _copied(part, depth + 1) if type(part) is dict and depth < 1 else part for part in each
        ]
        if type(each) is list
        else each
        for key, each in value.items()
    }


class ResponseSum(StreamSum):
    """The sum of a stream of the Responses API: its response and output items so far.

    The last event contains the whole answer. Earlier events count only if it is missing or has no
    output, or leaves out uses of the provider's tools, which are put before its output.
    """

    read_facts = staticmethod(facts)
    at_once: ClassVar[re.Pattern[bytes] | None] = re.compile(
        rb'error|"object"|"output"|response\.done|\.(?:failed|completed|incomplete|cancelled)|\\u00[2-7]'
    )

    __slots__ = ("_items", "_response", "_unreadable")

    def __init__(self) -> None:
        super().__init__()
        self._response: dict[str, Any] = {}
        self._items: dict[int, dict[str, Any]] = {}
        self._unreadable: list[Any] = []

    def _add(self, kind: str, event: dict[str, Any], data: bytes) -> None:
        if self._ended:
            return
        if kind.endswith(".delta"):
            self._add_delta(kind[:-6], event)
        elif kind.endswith(".done") and kind not in _ENDS:
            self._state(kind[:-5], event, done=True)
        elif kind.endswith(".added"):
            self._state(kind[:-6], event, done=False)
        elif kind in _ENDS:
            self._end(kind, event.get("response"))
        elif kind in _STATES:
            if type(response := event.get("response")) is dict:
                self._response = response
        elif kind == "error":
            self.error = event.get("error") or event
        elif event.get("object") == "response" or type(event.get("output")) is list:
            self.is_whole = True
            self._end("", event)
        elif error := stated_error(event):
            self.error = error
        else:
            self._add_use(kind, event)

    def _end(self, kind: str, response: Any) -> None:
        self._ended = self.is_last = True
        if type(response) is dict:
            output = response.get("output")
            if not output and (self._items or self._unreadable):
                # Some servers leave out what they said before.
                response = {**response, "output": self._output()}
            elif type(output) is list and (unlisted := self._unlisted(output)):
                response = {**response, "output": [*unlisted, *output]}
            self._response = response
            self._items = {}
            if not self.pieces:
                for item in output if type(output) is list else [output] if output else ():
                    self._count_item(item)
        if kind == "response.failed":
            error = self._response.get("error")
            self.error = error or self.error or {"message": "the response failed"}

    def _unlisted(self, output: list[Any]) -> list[Any]:
        """Return streamed uses of the provider's tools that the final output leaves out."""
        streamed = [self._items[index] for index in sorted(self._items)]
        uses = [item for item in streamed if str(item.get("type")) in _HOSTED]
        if not uses:
            return []
        listed = [item for item in output if type(item) is dict]
        ids = {str(item.get("id")) for item in listed}
        excess = Counter(str(item["type"]) for item in uses)
        excess.subtract(str(item.get("type")) for item in listed)
        return [
            settled(item)
            for item in uses
            if excess[item["type"]] > 0 and (not item.get("id") or str(item["id"]) not in ids)
        ]

    def item(self, index: int) -> dict[str, Any] | None:
        """Return the output item with an index; its texts may be :class:`Pieces`. None if it has
        not begun, and after the last event.
        """
        return self._items.get(index)

    def _item(self, event: dict[str, Any], kind: str) -> dict[str, Any]:
        """Return the output item that an event belongs to; begin it if it has not begun."""
        index = event.get("output_index")
        if type(index) is not int:
            index = max(self._items, default=0)
        item = self._items.get(index)
        if item is None:
            item = self._items[index] = {"type": kind} if kind else {}
            if type(name := event.get("item_id")) is str:
                item["id"] = name
        return item

    def _add_use(self, event_kind: str, event: dict[str, Any]) -> None:
        """Begin the item of a tool's use that an event reports, unless the stream has begun it."""
        if (use := _USE.fullmatch(event_kind)) is None:
            return
        kind = use[1]
        index, name = event.get("output_index"), event.get("item_id")
        for at, item in self._items.items():
            if item.get("type") == kind and (at == index or item.get("id") in (None, name)):
                return
        if type(index) is not int or index in self._items:
            index = max(self._items, default=-1) + 1
        self._items[index] = {"type": kind} if name is None else {"type": kind, "id": name}
        self.pieces += 1  # The provider may have run the tool.

    def _part(self, stem: str, event: dict[str, Any]) -> dict[str, Any]:
        """The part of an item that an event speaks of."""
        of, list_name, index_name, kind, _ = PARTS[stem]
        item = self._item(event, of)
        index = event.get(index_name)
        parts = _list_in(item, list_name)
        if type(index) is not int or not 0 <= index < len(parts):
            # Parts come one after the other: whatever the number, it is the next.
            if (type(index) is int and index >= len(parts)) or not parts:
                parts.append({"type": kind})
            index = len(parts) - 1
        if type(part := parts[index]) is not dict:
            part = parts[index] = {"type": kind}
        return part

    def _add_delta(self, stem: str, event: dict[str, Any]) -> None:
        delta = event.get("delta")
        if type(delta) is str and not stem.endswith("audio"):
            self.measure(delta)
        if stem in PARTS:
            part, member = self._part(stem, event), PARTS[stem][-1]
            if type(logprobs := event.get("logprobs")) is list and logprobs:
                _list_in(part, "logprobs").extend(logprobs)
        elif stem in _FIELDS:
            kind, member = _FIELDS[stem]
            part = self._item(event, kind)
        else:
            self._add_use(stem, event)
            return
        have = part.get(member)
        if type(have) is Pieces and type(delta) is str:
            have.append(delta)
        else:
            grow(part, {member: delta})

    def _state(self, stem: str, event: dict[str, Any], *, done: bool) -> None:
        """Apply a state event: ``….added`` begins an item or part, and ``….done`` replaces the sum
        of its deltas by the final text.
        """
        if stem == "response.output_item":
            item, index = event.get("item"), event.get("output_index")
            if type(item) is dict:
                if type(index) is not int:
                    index = max(self._items, default=0 if done else -1) + (not done)
                if index not in self._items and (done or item.get("type") not in _GROWING):
                    self._count_item(item)
                self._items[index] = _copied(item)
            else:
                self.pieces += 1  # The provider may have run a tool.
                self._unreadable.append(item)
        elif stem in ("response.content_part", "response.reasoning_summary_part"):
            self._set_part(stem, event)
        elif stem == "response.output_text.annotation":
            part = self._part("response.output_text", event)
            _list_in(part, "annotations").append(event.get("annotation"))
        elif stem in PARTS:
            member = PARTS[stem][-1]
            part = self._part(stem, event)
            for key in (member, "logprobs"):
                if value := event.get(key):
                    part[key] = list(value) if type(value) is list else value
        elif stem in _FIELDS:
            kind, member = _FIELDS[stem]
            if event.get(member):
                self._item(event, kind)[member] = event[member]
        else:
            self._add_use(stem, event)

    def _set_part(self, stem: str, event: dict[str, Any]) -> None:
        given = event.get("part")
        if type(given) is dict:
            summary = stem == "response.reasoning_summary_part"
            kind = "response.reasoning_summary_text" if summary else "response.output_text"
            if given.get("type") == "reasoning_text":
                kind = "response.reasoning_text"
            part = self._part(kind, event)
            part.clear()
            part.update(_copied(given, 1))

    def _count_item(self, item: Any) -> None:
        """Count the content of an item whose deltas never came, and the item of a tool."""
        if type(item) is not dict or item.get("type") not in _GROWING:
            self.pieces += 1  # The provider may have run a tool.
        if type(item) is not dict:
            return
        parts = [item]
        for key in ("content", "summary"):
            if type(more := item.get(key)) is list:
                parts += [part for part in more if type(part) is dict]
        for part in parts:
            for key in ("text", "refusal", "arguments", "input", "code"):
                if type(text := part.get(key)) is str:
                    self.measure(text)

    def _output(self) -> list[Any]:
        # An unreadable item stays in the output, so that the usage is unreadable too.
        found = [settled(self._items[index]) for index in sorted(self._items)]
        return found + self._unreadable

    def answer(self) -> dict[str, Any]:
        """Return the answer so far, also after the stream broke off."""
        if self.ended:
            return self._response
        answer = dict(self._response)
        if self._items:
            answer["output"] = self._output()
        if self.error is not None and not answer.get("error"):
            answer["error"] = self.error
        return answer
