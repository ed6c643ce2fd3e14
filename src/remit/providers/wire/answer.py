"""What is read from an answer, and a stream that adds up to one: the shapes, for all dialects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import orjson
from msgspec import Struct

from remit.kernel.json_text import JsonTextError, load
from remit.providers.wire.delta import Pieces
from remit.providers.wire.usage import Usage

_NOTHING: Mapping[str, float] = MappingProxyType({})


class AnswerFacts(Struct):
    """What the gateway needs of an answer, whatever its dialect.

    Attributes:
        text: of the first choice; text blocks joined; empty where there is none.
        model: as the provider names it; empty where unreadable.
        finish_reason: ``stop``, ``length``, ``tool_use`` or ``content_filter``.
        request_id: the answer's own id; empty where unreadable.
        usage: ``None`` where unreported or unreadable, or not in tokens.
        units: what else is billed: ``seconds`` of sound, ``search_units`` of a ranking.
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


def read(data: bytes) -> Any:
    """An event's data; ``None`` where it is not JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return load(data)
    except JsonTextError:
        return None


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
