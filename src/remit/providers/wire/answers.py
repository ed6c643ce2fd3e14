"""The readers of answers, chosen by endpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from remit.providers.wire import chat, messages, responses, simple
from remit.providers.wire.answer import AnswerFacts, StreamSum


class _Reading(NamedTuple):
    """The readers for the answers of one endpoint."""

    facts: Callable[[Any], AnswerFacts]
    is_answer: Callable[[Any], bool]
    stream: Callable[[], StreamSum]


_READINGS = {
    "openai.chat": _Reading(chat.facts, chat.is_answer, chat.ChatSum),
    "openai.completions": _Reading(
        chat.facts, chat.is_answer, lambda: chat.ChatSum("text_completion")
    ),
    "openai.responses": _Reading(responses.facts, responses.is_answer, responses.ResponseSum),
    "anthropic.messages": _Reading(messages.facts, messages.is_answer, messages.MessageSum),
    "anthropic.count_tokens": _Reading(simple.count_facts, simple.is_token_count, simple.EventSum),
    "openai.input_tokens": _Reading(simple.count_facts, simple.is_token_count, simple.EventSum),
    "openai.compact": _Reading(responses.facts, responses.is_compaction, simple.EventSum),
    "openai.embeddings": _Reading(simple.facts, simple.is_listing, simple.EventSum),
    "openai.moderations": _Reading(simple.facts, simple.is_listing, simple.EventSum),
    "openai.images": _Reading(simple.facts, simple.is_listing, simple.EventSum),
    "openai.rerank": _Reading(simple.rerank_facts, simple.is_listing, simple.EventSum),
    "openai.transcriptions": _Reading(simple.facts, simple.is_sound_or_text, simple.EventSum),
    "openai.translations": _Reading(simple.facts, simple.is_sound_or_text, simple.EventSum),
    "openai.speech": _Reading(simple.facts, simple.is_sound_or_text, simple.EventSum),
}
_OTHER = _Reading(simple.facts, simple.is_any, simple.EventSum)


def answer_facts(endpoint: str, answer: Any) -> AnswerFacts:
    """Return the facts of an answer. Never raises.

    Args:
        endpoint: its name, such as ``openai.chat``.
        answer: a JSON value, a text for a plain-text answer, or None for one that is not JSON.
    """
    return _READINGS.get(endpoint, _OTHER).facts(answer)


def error_in(endpoint: str, answer: Any) -> bool:
    """Return True if an answer with status 200 does not belong to this endpoint."""
    return not _READINGS.get(endpoint, _OTHER).is_answer(answer)


def stream_sum(endpoint: str) -> StreamSum:
    """Return a new sum for a stream of this endpoint."""
    return _READINGS.get(endpoint, _OTHER).stream()
