"""Answers of Gemini's ``generateContent``, whole and streamed."""

from __future__ import annotations

from types import NoneType
from typing import Any

from msgspec.structs import replace

from remit.kernel.json_text import dump
from remit.providers.wire.answer import (
    AnswerFacts,
    StreamSum,
    dicts_in,
    ended_by,
    stated_error,
    string,
)
from remit.providers.wire.body import camel_case, member_at
from remit.providers.wire.delta_sums import Pieces, settled
from remit.providers.wire.usage import Usage, continued, objects_in, read_usage

_OF_TEXT = frozenset({"text", "thought", "thoughtSignature"})


def is_answer(answer: Any) -> bool:
    """Return True if the answer has candidates, or says why the prompt was blocked."""
    return type(answer) is dict and (
        type(answer.get("candidates")) is list or type(answer.get("promptFeedback")) is dict
    )


def candidates_of(answer: Any) -> list[dict[str, Any]]:
    """Return the candidates of an answer or event that are objects."""
    return dicts_in(member_at(answer, "candidates"))


def parts_of(candidate: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of a candidate's content that are objects; there may be none."""
    return dicts_in(member_at(candidate, "content.parts"))


def facts(answer: Any) -> AnswerFacts:
    """Return the facts of an answer of ``generateContent``. Never raises.

    Text and finish reason are those of the first candidate; thoughts are no text. A blocked prompt,
    which has no candidates, ends with ``content_filter``. Other parts than text, and any number of
    candidates but one, set ``more_than_text``.

    Args:
        answer: the parsed answer. A value that is no object gives no facts.
    """
    if type(answer) is not dict:
        return AnswerFacts(more_than_text=answer is not None)
    candidates = candidates_of(answer)
    first = candidates[0] if candidates else {}
    parts = parts_of(first)
    word = first.get("finishReason")
    feedback = answer.get("promptFeedback")
    if not candidates and type(feedback) is dict and feedback.get("blockReason"):
        word = "safety"
    reason, failure = ended_by(word, calls=any("functionCall" in part for part in parts))
    return AnswerFacts(
        text="".join(string(part.get("text")) for part in parts if not part.get("thought")),
        model=string(answer.get("modelVersion")),
        finish_reason=reason,
        request_id=string(answer.get("responseId")),
        usage=_usage(answer, candidates),
        more_than_text=len(candidates) != 1 or any(part.keys() != {"text"} for part in parts),
        failure=failure,
    )


def _usage(answer: dict[str, Any], candidates: list[dict[str, Any]]) -> Usage | None:
    """Return the usage of an answer, with uses of Google's tools, which the usage leaves out.

    Returns None if either is unreadable.
    """
    usage = read_usage(
        answer.get("usageMetadata"), content=any(map(parts_of, candidates)), answer=answer
    )
    if usage is None or objects_in(answer.get("candidates")) is None:
        return None
    uses: dict[str, int] = {}
    for candidate in candidates:
        grounding = candidate.get("groundingMetadata") or candidate.get("grounding_metadata")
        if grounding is None:
            continue
        if type(grounding) is not dict:
            return None
        grounding = {camel_case(name): value for name, value in grounding.items()}
        queries, chunks = grounding.get("webSearchQueries"), grounding.get("groundingChunks")
        chunks = objects_in(chunks)
        if type(queries) not in (list, NoneType) or chunks is None:
            return None
        web, maps = (any(name in chunk for chunk in chunks) for name in ("web", "maps"))
        searches = max(len(queries or ()), web)
        for name, times in (("web_search", searches), ("google_maps", int(maps))):
            if times:
                uses[name] = uses.get(name, 0) + times
    return replace(usage, server_tool_uses=uses) if uses else usage


def _grounding(before: Any, after: Any) -> Any:
    """Return the sources of two events together; lists may repeat those of the first, or not."""
    if type(before) is not dict or type(after) is not dict:
        return after if type(before) is dict else before
    merged = {**before, **after}
    for name, old in before.items():
        new = after.get(name)
        if type(old) is list and type(new) is list:
            merged[name] = new if new[: len(old)] == old else old + new
        elif new is None:
            merged[name] = old
    return merged


class GenerateSum(StreamSum):
    """The sum of a stream of ``streamGenerateContent``: its candidates and usage so far.

    Gemini sends no mark of the end, so no event is the last: a candidate may end before another
    begins, and the usage may follow. The answer has ended once the body ends and all candidates so
    far have a ``finishReason``.
    """

    read_facts = staticmethod(facts)

    __slots__ = ("_answer", "_candidates", "_is_odd")

    def __init__(self) -> None:
        super().__init__()
        self._is_odd = False
        self._answer: dict[str, Any] = {}
        self._candidates: dict[int, dict[str, Any]] = {}

    @property
    def request_id(self) -> str:
        """The answer's id; empty without one."""
        return string(self._answer.get("responseId"))

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The parts of the first candidate so far, whose texts may be :class:`Pieces`."""
        found = member_at(self._candidates.get(0), "content.parts")
        return found if type(found) is list else []

    def _add(self, kind: str, event: dict[str, Any], data: bytes) -> None:
        if self.error is not None:
            return
        self.error = stated_error(event)
        for key, each in event.items():
            if key == "usageMetadata":
                self._answer[key] = continued(self._answer.get(key), each)
            elif key != "candidates" and (each is not None or key not in self._answer):
                self._answer[key] = each
        # What unreadable candidates used is unknown.
        self._is_odd = self._is_odd or objects_in(event.get("candidates")) is None
        for at, candidate in enumerate(candidates_of(event)):
            index = candidate.get("index")  # JSON of protocol buffers leaves a 0 out.
            have = self._candidates.setdefault(index if type(index) is int else at, {})
            self._add_candidate(have, candidate)
        self.is_whole = self.is_whole or is_answer(event)
        feedback = self._answer.get("promptFeedback")
        is_blocked = type(feedback) is dict and "blockReason" in feedback
        are_ended = all("finishReason" in one for one in self._candidates.values())
        self._ended = self.error is None and are_ended and (bool(self._candidates) or is_blocked)

    def _add_candidate(self, have: dict[str, Any], candidate: dict[str, Any]) -> None:
        for key, value in candidate.items():
            if key != "content" or type(value) is not dict:
                if value is not None:
                    grounds = camel_case(key) == "groundingMetadata" and key in have
                    have[key] = _grounding(have[key], value) if grounds else value
                continue
            content = have.get("content")
            if type(content) is not dict:
                content = have["content"] = {}
            parts = content.get("parts", [])
            content.update(value)
            if "parts" in value:
                content["parts"] = parts
            for part in parts_of(candidate):
                self._grow(parts, part)

    def _grow(self, parts: list[dict[str, Any]], part: dict[str, Any]) -> None:
        """Add a part: a text continues a text of its kind that has no signature yet."""
        text, last = part.get("text"), parts[-1] if parts else {}
        if type(text) is not str or not part.keys() <= _OF_TEXT:
            self.measure(dump(part).decode())
            parts.append(part)
            return
        self.measure(text)
        before = last.get("text")
        same = bool(last.get("thought")) == bool(part.get("thought"))
        if type(before) is Pieces and same and "thoughtSignature" not in last:
            before.append(text)
            last.update((key, value) for key, value in part.items() if key != "text")
        else:
            parts.append({**part, "text": Pieces((text,))})

    def answer(self) -> dict[str, Any]:
        """Return the answer so far, also after the stream broke off."""
        found = [self._candidates[index] for index in sorted(self._candidates)]
        answer: dict[str, Any] = {"candidates": settled(found)} if found else {}
        answer |= self._answer
        if self._is_odd:
            answer.pop("usageMetadata", None)
        if self.error is not None:
            answer.setdefault("error", self.error)
        return answer
