"""Answers of Chat Completions and of the older Completions, whole and streamed."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from typing_extensions import override

from remit.providers.wire.answer import (
    AnswerFacts,
    StreamSum,
    dicts_in,
    ended_by,
    stated_error,
    string,
    texts,
)
from remit.providers.wire.body import member_at
from remit.providers.wire.delta_sums import Pieces, grow, grow_calls, settled
from remit.providers.wire.usage import Usage, continued, read_usage

_PLAIN = frozenset(
    {"role", "content", "text", "index", "finish_reason", "logprobs", "content_filter_results"}
)
_PLAIN_CHOICE = frozenset(
    {"index", "message", "text", "finish_reason", "content_filter_results", "logprobs"}
)
_PLAIN_ANSWER = frozenset(
    {"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier",
     "prompt_filter_results", "x_groq", "timings", "provider"}
)  # fmt: skip
_NOT_IN_HEAD = frozenset({"choices", "object", "obfuscation", "usage"})

# Strings of a delta that are no content, or the same content again.
_UNCOUNTED = frozenset(
    {"id", "type", "role", "name", "format", "object", "status", "call_id", "data", "signature",
     "encrypted_content", "annotations", "obfuscation"}
)  # fmt: skip
_EMPTY: tuple[Any, ...] = (None, [], "")
_REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_details")


def is_answer(answer: Any) -> bool:
    """Return True if the answer is no error and has a choice."""
    return not stated_error(answer) and bool(dicts_in(member_at(answer, "choices")))


def facts(answer: Any) -> AnswerFacts:
    """Return the facts of an answer of Chat Completions or Completions. Never raises.

    Text and finish reason are those of the first choice, a failure is that of any. Several choices,
    none, tool calls, log probabilities or unknown members set ``more_than_text``.

    Args:
        answer: the parsed answer. A value that is no object gives no facts.
    """
    if type(answer) is not dict:
        return AnswerFacts(more_than_text=answer is not None)
    choices = answer.get("choices")
    choice = choices[0] if type(choices) is list and choices else None
    if type(choice) is not dict:
        return AnswerFacts(
            model=string(answer.get("model")),
            request_id=string(answer.get("id")),
            usage=_usage_in(answer, bool(choices)),
            more_than_text=True,
        )
    message = choice.get("message")
    if type(message) is not dict:
        message = choice
    said = message.get("content", message.get("text"))
    text = said if type(said) is str else texts(said)
    calls = bool(message.get("tool_calls") or message.get("function_call"))
    reason, failure = ended_by(choice.get("finish_reason"), calls=calls)
    more = _says_more(message)
    content = bool(text) or more
    if len(choices) > 1:  # type: ignore[arg-type]
        content = content or any(map(_says, choices))  # type: ignore[arg-type]
        more = True
        for other in dicts_in(choices):
            failure = failure or ended_by(other.get("finish_reason"))[1]
    model, own_id = answer.get("model"), answer.get("id")
    more = more or choice.get("logprobs") not in (None, [])
    if not answer.keys() <= _PLAIN_ANSWER:
        more = more or _has_more(answer, _PLAIN_ANSWER)
    if not choice.keys() <= _PLAIN_CHOICE:
        more = more or _has_more(choice, _PLAIN_CHOICE)
    return AnswerFacts(
        text,
        model if type(model) is str else "",
        reason,
        own_id if type(own_id) is str else "",
        _usage_in(answer, content),
        more,
        failure=failure,
    )


def _says(choice: Any) -> bool:
    """Return True if a choice contains anything that a model wrote."""
    if type(choice) is not dict:
        return False
    message = choice.get("message")
    message = message if type(message) is dict else choice
    return bool(message.get("content") or message.get("text")) or _says_more(message)


def _says_more(message: dict[str, Any]) -> bool:
    """Return True if a message contains more than plain text."""
    content = message.get("content")
    if content is not None and type(content) is not str:
        return True
    others = list(map(message.get, message.keys() - _PLAIN))  # In line: every call comes here.
    return sum(map(_EMPTY.count, others)) < len(others)


def _has_more(holder: dict[str, Any], plain: frozenset[str]) -> bool:
    """Return True if an object has members with values other than ``plain``, such as citations."""
    others = list(map(holder.get, holder.keys() - plain))
    return sum(map(_EMPTY.count, others)) < len(others)


def _usage_in(answer: dict[str, Any], content: bool) -> Usage | None:
    usage = answer.get("usage")
    if usage is None:  # Groq's and Moonshot's places for it, in streams not asked for it
        choices = answer.get("choices")
        for place in (
            answer.get("x_groq"),
            choices[-1] if type(choices) is list and choices else 0,
        ):
            if type(place) is dict and place.get("usage") is not None:
                usage = place["usage"]
    return read_usage(usage, content=content, answer=answer)


class _Choice:
    """The state of one choice of a stream."""

    __slots__ = ("fields", "message", "whole")

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.message: dict[str, Any] = {}
        self.whole: dict[str, Any] | None = None  # a choice that came in one piece

    @property
    def is_cut(self) -> bool:
        """True if arguments of a tool call do not end as an object, and no reason is given."""
        if self.fields.get("finish_reason"):
            return False
        calls = self.message.get("tool_calls")
        called = [
            call.get("function")
            for call in (calls if type(calls) is list else ())
            if type(call) is dict
        ]
        texts = (
            settled(function.get("arguments"))
            for function in (*called, self.message.get("function_call"))
            if type(function) is dict
        )
        return any(type(text) is str and text.strip()[-1:] not in ("", "}") for text in texts)


class ChatSum(StreamSum):
    """The sum of a stream of Chat Completions or Completions: its choices and usage so far.

    The stream has ended once every begun choice has ended or ``[DONE]`` came, unless an event was
    an error, or ``[DONE]`` came first or in the middle of a tool call. After ``[DONE]`` nothing is
    added.

    Args:
        kind: the ``object`` of the answer: ``chat.completion``, whose choices have a ``message``,
            or ``text_completion``, whose choices have a ``text``.
    """

    read_facts = staticmethod(facts)
    at_once: ClassVar[re.Pattern[bytes] | None] = re.compile(
        rb'error|base_resp|"success"|"message"|\.failed|\[DONE\]|\\u00[2-7]'
    )

    __slots__ = ("_choices", "_done", "_head", "_usage", "kind")

    def __init__(self, kind: str = "chat.completion") -> None:
        super().__init__()
        self.kind = kind
        self._head: dict[str, Any] = {"object": kind}
        self._usage: Any = None
        self._choices: dict[int, _Choice] = {}
        self._done = False

    @override
    def _end_at_mark(self) -> None:
        self._done = self.is_last = True

    def _add(self, kind: str, chunk: dict[str, Any], data: bytes) -> None:
        if self._done:
            return
        head = self._head
        for key, value in chunk.items():
            # What is empty replaces nothing: some chunks have an id and a model of "".
            if key not in _NOT_IN_HEAD and (value or key not in head):
                head[key] = value
        if "error" in chunk and (error := stated_error(chunk)):
            self.error = error
        elif kind == "error":
            self.error = chunk
        elif (usage := chunk.get("usage")) is not None:
            self._usage = continued(self._usage, usage)
        choices = chunk.get("choices")
        if (found := self.appended(chunk)) is not None:
            text, pieces = self.grown = found
            pieces.append(text)
            self.measure(text)
        elif type(choices) is list:
            for position, choice in enumerate(choices):
                if type(choice) is dict:
                    self._add_choice(choice, position)

    def _add_choice(self, choice: dict[str, Any], position: int) -> None:
        index = choice.get("index")
        if type(index) is not int:
            index = position
        state = self._choices.get(index)
        if state is None:
            state = self._choices[index] = _Choice()
            state.fields["index"] = index
        delta = choice.get("delta")
        if type(delta) is dict:
            self._add_delta(state, delta)
        elif type(choice.get("message")) is dict:
            state.whole, state.message = choice, choice["message"]
            # A last event may repeat the message that came before.
            self.is_whole = self.is_whole or not self.pieces
            self._count(choice["message"])
        elif type(text := choice.get("text")) is str:
            grow(state.message, {"text": text})
            self._count({"text": text})
        fields = state.fields
        for key, value in choice.items():
            if value is None:
                fields.setdefault(key, None)
            elif key == "finish_reason":
                fields[key] = value or fields.get(key)
            elif key == "logprobs" or type(value) is list:
                fields[key] = _continued(fields.get(key), value)
            elif key not in ("index", "delta", "message", "text"):
                fields[key] = value

    def _add_delta(self, state: _Choice, delta: dict[str, Any]) -> None:
        message = state.message
        calls = delta.get("tool_calls")
        if type(calls) is list:
            rest = {key: value for key, value in delta.items() if key != "tool_calls"}
            grow(message, rest)
            if type(have := message.get("tool_calls")) is not list:
                have = message["tool_calls"] = []
            grow_calls(have, calls)
        else:
            grow(message, delta)
        self._count(delta)

    def _count(self, value: Any, depth: int = 0) -> None:
        if type(value) is str:
            self.measure(value)
        elif depth > 8:
            return
        elif type(value) is list:
            for each in value:
                self._count(each, depth + 1)
        elif type(value) is dict:
            thoughts = False
            for key in _REASONING_KEYS:
                if value.get(key) and not thoughts:
                    thoughts = True
                    self._count(value[key], depth + 1)
            for key, each in value.items():
                if key not in _UNCOUNTED and key not in _REASONING_KEYS:
                    self._count(each, depth + 1)

    def appended(self, value: Any) -> tuple[str, Pieces] | None:
        """Return the text of an event and the pieces it was appended to.

        None unless every event that differs only in its text does nothing but append that text,
        and state its head: the event has one choice, begun before, with content and nothing else
        that is new, and no usage.

        Args:
            value: the parsed data of an event.
        """
        choices = value["choices"] if type(value) is dict and "choices" in value else None
        if type(choices) is not list or len(choices) != 1 or self._done:
            return None
        choice = choices[0]
        if type(choice) is not dict or type(choice.get("index")) is not int:
            return None
        state, delta = self._choices.get(choice["index"]), choice.get("delta")
        if state is None or type(delta) is not dict or value.get("usage"):
            return None
        known, text = state.fields, None
        for key, each in choice.items():
            if key in ("index", "delta") or (each is None and key in known):
                continue
            if key == "logprobs" or type(each) is list or key not in known or known[key] != each:
                return None
        for key, each in delta.items():
            if key == "content":
                text = each
            elif key != "role" or each != state.message.get("role"):
                return None
        have = state.message.get("content")
        return (text, have) if type(text) is str and type(have) is Pieces else None

    @property
    def first_choice(self) -> _Choice | None:
        """The first choice; None before any."""
        return next(iter(self._in_order()), None)

    def _in_order(self) -> list[_Choice]:
        """Return the choices by index; those of a whole answer as they stand there."""
        places = self._choices if self.is_whole else sorted(self._choices)
        return [self._choices[place] for place in places]

    @property
    def request_id(self) -> str:
        """The answer's id; empty without one."""
        return string(self._head.get("id"))

    @property
    def ended(self) -> bool:
        """True if the dialect's end of the stream was seen, also after a failed answer."""
        if self.error is not None:
            return False
        if self._done:
            has_event = self._choices or self._usage is not None or len(self._head) > 1
            return bool(has_event) and not any(state.is_cut for state in self._choices.values())
        return bool(self._choices) and all(
            state.whole is not None or state.fields.get("finish_reason")
            for state in self._choices.values()
        )

    def answer(self) -> dict[str, Any]:
        """Return the answer so far, also after the stream broke off."""
        answer = dict(self._head)
        if self._choices:
            answer["choices"] = [self._settled(choice) for choice in self._in_order()]
        elif not stated_error(answer):
            answer["choices"] = []
        if self._usage is not None:
            answer["usage"] = self._usage
        return answer

    def _settled(self, state: _Choice) -> dict[str, Any]:
        if state.whole is not None:
            return state.whole
        fields = {**state.fields}
        if self.kind != "chat.completion":
            return {"text": "", **settled(state.message), **fields}
        message = {"role": "assistant", "content": None, **settled(state.message)}
        if type(calls := message.get("tool_calls")) is list:
            calls.sort(key=_index_of)
            for call in calls:
                call.pop("index", None)
        return {**fields, "message": message}


def _index_of(call: dict[str, Any]) -> int:
    index = call.get("index")
    return index if type(index) is int else 0


def _continued(have: Any, more: Any, depth: int = 0) -> Any:
    """Return ``have`` with the lists in ``more`` appended; other values are replaced.

    ``have`` may be changed, ``more`` is not.
    """
    if type(more) is list:
        if type(have) is not list:
            return list(more)
        have.extend(more)
        return have
    if type(more) is not dict or depth > 2:
        return more
    into = have if type(have) is dict else {}
    for key, value in more.items():
        before = into.get(key)
        if type(before) is list and type(value) is list:
            before.extend(value)
        elif value is not None or key not in into:
            into[key] = _continued(before, value, depth + 1)
    return into
