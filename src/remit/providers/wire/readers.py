"""The readers of answers, chosen by endpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remit.providers.wire import chat, converse, gemini, messages, responses, simple
from remit.providers.wire.answer import AnswerFacts, StreamSum

_Readers = tuple[Callable[[Any], AnswerFacts], Callable[[Any], bool], Callable[[], StreamSum]]

_READERS: dict[str, _Readers] = {
    "openai.chat": (chat.facts, chat.is_answer, chat.ChatSum),
    "openai.completions": (chat.facts, chat.is_answer, lambda: chat.ChatSum("text_completion")),
    "openai.responses": (responses.facts, responses.is_answer, responses.ResponseSum),
    "anthropic.messages": (messages.facts, messages.is_answer, messages.MessageSum),
    "anthropic.count_tokens": (simple.count_facts, simple.is_token_count, simple.EventSum),
    "gemini.generate": (gemini.facts, gemini.is_answer, gemini.GenerateSum),
    "gemini.count_tokens": (simple.count_facts, simple.is_token_count, simple.EventSum),
    "bedrock.converse": (converse.facts, converse.is_answer, converse.ConverseSum),
    "openai.input_tokens": (simple.count_facts, simple.is_token_count, simple.EventSum),
    "openai.compact": (responses.facts, responses.is_compaction, simple.EventSum),
    "openai.embeddings": (simple.facts, simple.is_listing, simple.EventSum),
    "openai.moderations": (simple.facts, simple.is_listing, simple.EventSum),
    "openai.images": (simple.facts, simple.is_listing, simple.EventSum),
    "openai.rerank": (simple.rerank_facts, simple.is_listing, simple.EventSum),
    "openai.transcriptions": (simple.facts, simple.is_sound_or_text, simple.EventSum),
    "openai.translations": (simple.facts, simple.is_sound_or_text, simple.EventSum),
    "openai.speech": (simple.facts, simple.is_sound_or_text, simple.EventSum),
}
_OTHER: _Readers = (simple.facts, simple.is_any, simple.EventSum)


def answer_facts(endpoint: str, answer: Any) -> AnswerFacts:
    """Return the facts of an answer. Never raises.

    Args:
        endpoint: its name, such as ``openai.chat``.
        answer: a JSON value, a text for a plain-text answer, or None for one that is not JSON.
    """
    read_facts, _, _ = _READERS.get(endpoint, _OTHER)
    return read_facts(answer)


def is_other_form(endpoint: str, answer: Any) -> bool:
    """Return True if an answer with status 200 does not have the form of this endpoint."""
    _, is_answer, _ = _READERS.get(endpoint, _OTHER)
    return not is_answer(answer)


def stream_sum(endpoint: str) -> StreamSum:
    """Return a new sum for a stream of this endpoint.

    Args:
        endpoint: its name, such as ``openai.chat``.
    """
    _, _, new_sum = _READERS.get(endpoint, _OTHER)
    return new_sum()
