"""What is read from an answer, and a stream that adds up to one: the shapes, for all dialects."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import orjson
from msgspec import Struct

from remit.kernel.json_text import JsonTextError, load_exact
from remit.providers.wire.delta import Pieces
from remit.providers.wire.usage import Usage

_NOTHING: Mapping[str, float] = MappingProxyType({})
_USAGE = re.compile(rb'"usage"[ \t\n\r]*:[ \t\n\r]*(.)')
_NAME = re.compile(rb'"([^"\\]*)"[ \t\n\r]*:')
_ESCAPED = re.compile(rb"\\u00[67]")  # a letter of a name, never escaped by an honest provider
_OF_USAGE = re.compile("usage|token|cache|server_tool|iterations|_requests|_queries|ephemeral")


class _TwiceError(Exception):
    """A member stands twice."""


class AnswerFacts(Struct):
    """What the gateway needs of an answer, whatever its dialect.

    Attributes:
        text: of the first choice; text blocks joined; empty where there is none.
        model: as the provider names it; empty where unreadable.
        finish_reason: ``stop``, ``length``, ``tool_use``, ``content_filter`` or ``error``.
        request_id: the answer's own id; empty where unreadable.
        usage: ``None`` where unreported or unreadable, or not in tokens.
        units: what else is billed: ``seconds`` of sound, ``search_units`` of a ranking.
        failure: the provider's own word for the end of an answer that failed; else empty.
        more_than_text: tool calls, thinking, citations, refusals, several choices, sound, log
            probabilities, or anything unknown: the text alone is not the answer.
    """

    text: str = ""
    model: str = ""
    finish_reason: str = "stop"
    request_id: str = ""
    usage: Usage | None = None
    more_than_text: bool = False
    units: Mapping[str, float] = _NOTHING
    failure: str = ""


class StreamSum(Protocol):
    """A stream of server-sent events that adds up to an answer. Nothing of it raises.

    Attributes:
        pieces: pieces of content so far: text, tool input, thinking, refusals, transcripts.
        size: their UTF-8 bytes.
        error: what an event said went wrong; ``None`` where none did.
        is_last: whether the client needs nothing behind the event just added.
        at_once: finds every event that may be the last, or tell of an error: such have to be
            read as they come. ``None``: all have to be.
    """

    at_once: ClassVar[re.Pattern[bytes] | None]

    pieces: int
    size: int
    error: Any
    is_last: bool

    @property
    def ended(self) -> bool:
        """Whether the dialect's own end was seen, be it that of an answer that failed."""

    @property
    def first(self) -> bool:
        """Whether content has begun."""

    @property
    def text(self) -> str:
        """The text so far, as :attr:`AnswerFacts.text` has it."""

    @property
    def usage(self) -> Usage | None:
        """Usage as far as it is reported; once ``ended``, of the whole answer or ``None``."""

    def add(self, name: str, data: bytes) -> Any:
        """Take one event.

        Args:
            name: the event's; empty where it has none.
            data: its data.

        Returns:
            The data, read; ``None`` for ``[DONE]`` and for what is not JSON.
        """

    def appended(self, value: Any) -> tuple[str, Pieces] | None:
        """The text of an event, and what it goes to, where any event that has another text and
        differs in nothing else does nothing but append it; else ``None``.

        Args:
            value: of the event added last, or of one that has another text.
        """

    def answer(self) -> dict[str, Any]:
        """The answer as the stream adds up, also when it broke off."""


def read_event(data: bytes) -> Any:
    """An event's data, as :func:`counted_once` has it; ``None`` where it is not JSON."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            value = load_exact(data)
        except JsonTextError:
            return None
    return counted_once(data, value)


def counted_once(data: bytes, value: Any) -> Any:
    """The value of an answer or event, where no count of its usage can be taken for another.

    A member of usage that stands twice, or usage itself, has a text in its place: of two counts
    readers may take either.

    Args:
        data: the JSON text.
        value: what it holds.
    """
    if b"\\u00" not in data or _ESCAPED.search(data) is None:
        found = _USAGE.search(data)
        if found is None:
            return value
        if data.find(b'"usage"', found.end()) < 0:
            text = data[found.start(1) :]
            names = _NAME.findall(text)
            try:
                # Repeated names are usually names of nested objects, which are legal.
                if found[1] == b"{" and len(set(names)) < len(names):
                    _decoder.raw_decode(text.decode())
                return value
            except (_TwiceError, ValueError, RecursionError):
                pass
    try:
        return json.loads(data, object_pairs_hook=_marked)
    except (ValueError, RecursionError):
        return None


def _marked(members: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(members)
    if len(value) < len(members):
        counted = Counter(name for name, _ in members)
        value |= {name: "twice" for name, times in counted.items()
                  if times > 1 and _OF_USAGE.search(name)}  # fmt: skip
    return value


def _once(members: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in members}) < len(members):
        raise _TwiceError


def string(value: Any) -> str:
    """A text, or an empty one for anything else."""
    return value if type(value) is str else ""


def texts(blocks: Any, key: str = "text") -> str:
    """The texts of a list of blocks, joined; a text is itself."""
    if type(blocks) is str:
        return blocks
    if type(blocks) is not list:
        return ""
    return "".join(string(block.get(key)) for block in blocks if type(block) is dict)


def bytes_of(text: str) -> int:
    """How many bytes a text has in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


_decoder = json.JSONDecoder(object_pairs_hook=_once)
