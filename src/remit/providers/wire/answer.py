"""The facts of an answer, the words for its end, and the interface of stream sums."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import orjson
from msgspec import Struct

from remit.kernel.json_text import JsonTextError, has_wide_number, load_exact
from remit.providers.wire.delta_sums import Pieces
from remit.providers.wire.usage import Usage

FAILED = "error"
"""The neutral reason of an answer that the provider broke off, or could not read itself."""

_WORDS = {
    "stop": (
        "stop", "end_turn", "stop_sequence", "eos", "eos_token", "complete", "completed",
    ),
    "length": (
        "length", "max_tokens", "max_output_tokens", "model_length", "token_limit",
        "model_context_window_exceeded", "error_limit", "incomplete", "pause_turn",
    ),
    "tool_use": ("tool_use", "tool_calls", "tool_call", "function_call"),
    "content_filter": (
        "content_filter", "content_filtered", "refusal", "guardrail_intervened", "sensitive",
        "safety", "recitation", "language", "blocklist", "prohibited_content", "spii",
        "model_armor", "image_safety", "image_prohibited_content", "image_recitation",
        "error_toxic",
    ),
    FAILED: (
        "error", "failed", "network_error", "insufficient_system_resource", "abort", "aborted",
        "cancel", "cancelled", "canceled", "user_cancel", "timeout", "time_limit", "other",
        "image_other", "no_image", "malformed_function_call", "malformed_response",
        "malformed_tool_use", "malformed_model_output", "unexpected_tool_call",
        "too_many_tool_calls", "missing_thought_signature",
    ),
}  # fmt: skip
_MAX_REASON_CHARS = 100
_NEUTRAL = {word: reason for reason, words in _WORDS.items() for word in words}
_NOTHING: Mapping[str, float] = MappingProxyType({})
_USAGE = re.compile(rb'"usage(?:Metadata)?"[ \t\n\r]*:[ \t\n\r]*(.)')
_NAME = re.compile(rb'"([^"\\]*)"[ \t\n\r]*:')
# Honest providers escape neither letters nor underscores of names.
_ESCAPED = re.compile(rb"\\u00[4-7]")
_OF_USAGE = re.compile("usage|[tT]oken|cache|server_tool|iterations|_requests|_queries|ephemeral")


def ended_by(word: Any, *, calls: bool | None = None) -> tuple[str, str]:
    """Return a provider's word for the end of an answer as a neutral reason, whatever its case.

    An unknown word is ``stop``.

    Args:
        word: as it came. Gemini puts the cause behind a colon, as in
            ``content_filter: PROHIBITED_CONTENT``.
        calls: whether the answer calls tools, None if the word says so. Some servers say ``stop``
            next to calls, or ``tool_calls`` without one.

    Returns:
        The reason; and the word itself if the reason is :data:`FAILED`, else an empty text.
    """
    reason = "stop"
    if type(word) is str:
        kind, _, cause = word.lower().partition(":")
        reason = _NEUTRAL.get(cause.strip()) or _NEUTRAL.get(kind.strip(), "stop")
        if reason == FAILED:
            return FAILED, word[:_MAX_REASON_CHARS]
    if calls is not None and reason in ("stop", "tool_use"):
        reason = "tool_use" if calls else "stop"
    return reason, ""


class AnswerFacts(Struct):
    """The facts that the gateway needs of an answer in any dialect.

    Attributes:
        text: text of the first choice, text blocks joined; empty without text.
        model: the provider's name of the model; empty if unreadable.
        finish_reason: ``stop``, ``length``, ``tool_use``, ``content_filter`` or ``error``.
        request_id: the answer's id; empty if unreadable.
        usage: None if unreported, unreadable, or not in tokens.
        units: other billed units: ``seconds`` of sound, ``search_units`` of a ranking.
        failure: the provider's word for the end of a failed answer; else empty.
        more_than_text: True if the answer contains more than its text: tool calls, thinking,
            citations, refusals, several choices, sound, log probabilities, or anything unknown.
    """

    text: str = ""
    model: str = ""
    finish_reason: str = "stop"
    request_id: str = ""
    usage: Usage | None = None
    more_than_text: bool = False
    units: Mapping[str, float] = _NOTHING
    failure: str = ""


class StreamSum:
    """The sum of a stream of server-sent events: the answer so far. No method raises.

    A whole answer in place of events, by a server that does not stream, counts as one event. The
    subclass of a dialect defines ``_add`` for events that are objects, and :meth:`answer`.

    Attributes:
        pieces: number of pieces of content so far: text, tool input, thinking, refusals,
            transcripts.
        size: their UTF-8 bytes.
        error: the error that an event reported; else None.
        is_last: True if the client needs nothing after the event just added.
        is_whole: True if an event was a whole answer.
        grown: the text of the event just added and the pieces that it was appended to, if that is
            all the event did (:meth:`appended`); else None.
        at_once: matches every event that may be the last or report an error; such events must be
            parsed as they come. None if all must be.
    """

    at_once: ClassVar[re.Pattern[bytes] | None] = None

    __slots__ = ("_ended", "error", "grown", "is_last", "is_whole", "pieces", "size")

    def __init__(self) -> None:
        self.pieces = 0
        self.size = 0
        self.error: Any = None
        self.grown: tuple[str, Pieces] | None = None
        self.is_last = False
        self.is_whole = False
        self._ended = False

    @property
    def ended(self) -> bool:
        """True if the dialect's end of the stream was seen, also after a failed answer."""
        return self._ended

    @property
    def text(self) -> str:
        """The text so far, as in :attr:`AnswerFacts.text`."""
        return self.facts().text

    @property
    def usage(self) -> Usage | None:
        """The usage reported so far; once ``ended``, that of the whole answer or None."""
        return self.facts().usage

    @property
    def has_final_usage(self) -> bool:
        """True if the usage reported so far is that of the whole answer, although the end of the
        stream may be missing.
        """
        return self.is_last

    @staticmethod
    def read_facts(answer: Any) -> AnswerFacts:
        """Return the facts of a whole answer; none unless a dialect replaces this reader."""
        return AnswerFacts()

    def facts(self) -> AnswerFacts:
        """Return the facts of the answer so far."""
        return self.read_facts(self.answer())

    def add(self, name: str, data: bytes, value: Any = None) -> Any:
        """Add one event, which may set ``error``. Most add nothing after the end of the stream.

        ``[DONE]`` is the last event, in the dialects that have it.

        Args:
            name: the event's name, for data without a type; empty without one.
            data: the event's data; may be empty if ``value`` is given.
            value: the parsed data; None to parse them.

        Returns:
            The parsed data; None for ``[DONE]`` and for data that is not JSON.
        """
        self.grown, self.is_last = None, False
        if data[:1] != b"{" and data.strip() == b"[DONE]":
            self._end_at_mark()
            return None
        event = read_event(data) if value is None else value
        if type(event) is dict:
            kind = event.get("type") or name
            self._add(kind if type(kind) is str else name, event, data)
        return event

    def _add(self, kind: str, event: dict[str, Any], data: bytes) -> None:
        raise NotImplementedError

    def _end_at_mark(self) -> None:
        """Note that ``[DONE]`` came; does nothing unless a dialect has this mark."""

    def appended(self, value: Any) -> tuple[str, Pieces] | None:
        """Return the text of an event and the pieces it was appended to.

        None unless every event that differs only in its text does nothing but append that text.

        Args:
            value: the parsed data of an event.
        """
        return None

    def answer(self) -> dict[str, Any]:
        """Return the answer so far, also after the stream broke off."""
        raise NotImplementedError

    def measure(self, text: str) -> None:
        """Count a piece of content, unless it is empty."""
        if text:
            self.pieces += 1
            self.size += len(text) if text.isascii() else bytes_of(text)


def read_event(data: bytes) -> Any:
    """Return an event's parsed data after :func:`counted_once`; None if it is not JSON.

    Integers above 64 bits are exact in events with a member whose name begins with ``arg``, such as
    the arguments of a tool's call.
    """
    try:
        if b'"arg' not in data or not has_wide_number(data):
            return counted_once(data, orjson.loads(data))
    except orjson.JSONDecodeError:
        pass
    try:
        return counted_once(data, load_exact(data))
    except JsonTextError:
        return None


def counted_once(data: bytes, value: Any) -> Any:
    """Return the value of an answer or event without ambiguous counts of its usage.

    If a member of usage, or usage itself, occurs twice, its value is replaced by a text, because
    readers differ which of the two counts. Otherwise the value itself is returned. None means that
    a text which must be read again for this cannot be read.

    Args:
        data: the JSON text.
        value: its parsed value.
    """
    if b"\\" not in data or _ESCAPED.search(data) is None:
        found = _USAGE.search(data)
        if found is None:
            return value
        if _USAGE.search(data, found.end()) is None:
            text = data[found.start(1) :]
            names = _NAME.findall(text)
            try:
                # Repeated names are usually names of nested objects, which are legal.
                if found[1] == b"{" and len(set(names)) < len(names):
                    _decoder.raw_decode(text.decode())
                return value
            except (ValueError, RecursionError):
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
        raise ValueError("a name is repeated")


def stated_error(value: Any) -> Any:
    """Return the member ``error`` of an object; None if it says nothing.

    Some servers put an error without a value, such as ``{"code": 0, "message": ""}``, next to a
    good answer.
    """
    error = value.get("error") if type(value) is dict else None
    return error if error and (type(error) is not dict or any(error.values())) else None


def string(value: Any) -> str:
    """Return the value if it is a text, else an empty text."""
    return value if type(value) is str else ""


def dicts_in(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, whatever else is in it; empty for any other value."""
    return [one for one in value if type(one) is dict] if type(value) is list else []


def texts(blocks: Any) -> str:
    """Return the joined texts of a list of blocks, or a text itself; empty for any other value."""
    if type(blocks) is str:
        return blocks
    return "".join(string(block.get("text")) for block in dicts_in(blocks))


def bytes_of(text: str) -> int:
    """Return the number of bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


_decoder = json.JSONDecoder(object_pairs_hook=_once)
