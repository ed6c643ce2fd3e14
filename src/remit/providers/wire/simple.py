"""Answers of small endpoints, such as embeddings and rankings, and streams of other protocols."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from remit.providers.wire.answer import AnswerFacts, StreamSum, stated_error, string
from remit.providers.wire.usage import (
    Usage,
    is_count,
    plus,
    read_usage,
    rerank_usage,
    units_of,
)

_NOT_IN_ANSWER = frozenset({"type", "sequence_number", "obfuscation"})


def is_listing(answer: Any) -> bool:
    """Return True if the answer has a list of results."""
    return type(answer) is dict and any(
        type(answer.get(name)) is list for name in ("data", "results")
    )


def is_sound_or_text(answer: Any) -> bool:
    """Return True if the answer is a transcript, as text or object, or is not JSON."""
    return type(answer) is not dict or type(answer.get("text")) is str or "audio" in answer


def is_token_count(answer: Any) -> bool:
    """Return True if the answer is a token count."""
    return type(answer) is dict and any(
        is_count(answer.get(name)) for name in ("input_tokens", "totalTokens")
    )


def is_any(answer: Any) -> bool:
    """Return True if the answer is more than an error."""
    return not (type(answer) is dict and answer.get("error") and len(answer) <= 2)


def facts(answer: Any) -> AnswerFacts:
    """Return the facts of any answer: its text, and its usage in OpenAI's words."""
    if type(answer) is not dict:
        text = string(answer)
        return AnswerFacts(text=text, more_than_text=answer is not None and answer != text)
    usage = read_usage(answer.get("usage"), generates=False, content=True, answer=answer)
    if answer.get("svg_usage") is not None:  # A second model wrote an SVG.
        usage = plus(usage, read_usage(answer["svg_usage"], generates=False))
    return _facts(answer, usage)


def rerank_facts(answer: Any) -> AnswerFacts:
    """Return the facts of a ranking."""
    return _facts(answer, rerank_usage(answer)) if type(answer) is dict else facts(answer)


def count_facts(answer: Any) -> AnswerFacts:
    """Return the facts of a token count, which costs nothing."""
    return _facts(answer, Usage(0, 0)) if is_token_count(answer) else facts(None)


def _facts(answer: dict[str, Any], usage: Usage | None) -> AnswerFacts:
    text = answer.get("text")
    return AnswerFacts(
        text=string(text),
        model=string(answer.get("model")),
        request_id=string(answer.get("id")),
        usage=usage,
        more_than_text=any(
            key not in ("text", "usage") and value is not None for key, value in answer.items()
        ),
        units=units_of(answer),
    )


class EventSum(StreamSum):
    """The sum of a stream of images or sound; see :class:`~remit.providers.wire.answer.StreamSum`.

    Pictures are gathered under ``data``, sound under ``audio``, a transcript under ``text``, and
    usages are added. Other members of final events are added as they are. Later events are added
    even after the end. A type that ends with ``.done`` or ``.completed`` ends the stream. Data
    without a type that are no such event are a whole answer. An event of an error only sets
    ``error``.
    """

    read_facts = staticmethod(facts)

    __slots__ = ("_answer", "_text")

    def __init__(self) -> None:
        super().__init__()
        self._answer: dict[str, Any] = {}
        self._text: list[str] = []

    @override
    def _end_at_mark(self) -> None:
        self.is_last = True

    def _add(self, kind: str, event: dict[str, Any], data: bytes) -> None:
        if kind == "error" or stated_error(event):
            self.error = event.get("error") or event
        elif kind.endswith(".delta"):
            self._add_delta(event)
        elif kind.endswith((".done", ".completed")):
            self._end(event)
        elif "b64_json" in event:  # a picture of which only a part is finished
            self.pieces += 1
        elif "type" not in event:  # the whole, by a server that does not stream
            self._answer = event
            self._ended = self.is_last = True

    def _add_delta(self, event: dict[str, Any]) -> None:
        if type(sound := event.get("audio")) is str:
            self._answer.setdefault("audio", []).append(sound)
            self.pieces += 1
        elif type(text := event.get("delta")) is str and text:
            self._text.append(text)
            self.measure(text)

    def _end(self, event: dict[str, Any]) -> None:
        self._ended = self.is_last = True
        answer = self._answer
        for key, value in event.items():
            if key == "b64_json":
                answer.setdefault("data", []).append({"b64_json": value})
                self.pieces += 1
            elif key == "usage" and "usage" in answer:  # Each picture reports its own usage.
                answer["usage"] = _added(answer["usage"], value)
            elif key == "created_at":
                answer["created"] = value
            elif key not in _NOT_IN_ANSWER:
                answer[key] = value

    def answer(self) -> dict[str, Any]:
        """Return the answer so far, also after the stream broke off."""
        answer = dict(self._answer)
        if self._text:
            answer.setdefault("text", "".join(self._text))
        if self.error is not None:
            answer.setdefault("error", self.error)
        return answer


def _added(one: Any, other: Any, depth: int = 0) -> Any:
    """Return the sum of two usages, count by count."""
    if type(one) is dict and type(other) is dict and depth < 2:
        names = {**one, **other}
        return {name: _added(one.get(name), other.get(name), depth + 1) for name in names}
    if is_count(one) and is_count(other):
        return one + other
    return one if other is None else other


class Passed(StreamSum):
    """A sum that collects the received bytes and parses nothing: no text, usage or error is known.

    Only the end of the connection ends the stream.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    @property
    def raw(self) -> bytes:
        """The received bytes."""
        return b"".join(self._parts)

    @override
    def add(self, name: str, data: bytes, value: Any = None) -> Any:
        """Append received bytes; return None."""
        self._parts.append(data)
        self.pieces += 1
        self.size += len(data)
        return None

    def answer(self) -> dict[str, Any]:
        """Return the received bytes as a text under ``stream``."""
        return {"stream": self.raw.decode("utf-8", "replace")}
