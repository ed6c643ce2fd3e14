"""Finish reasons: the words of all providers, mapped to neutral ones."""

from __future__ import annotations

from typing import Any

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


def ended_by(word: Any, *, calls: bool = False) -> tuple[str, str]:
    """Return a provider's word for the end of an answer as a neutral reason, whatever its case.

    An unknown word is ``stop``.

    Args:
        word: as it came. Gemini puts the cause behind a colon, as in
            ``content_filter: PROHIBITED_CONTENT``.
        calls: whether the answer calls tools; some servers then say ``stop`` all the same.

    Returns:
        The reason; and the word itself if the reason is :data:`FAILED`, else an empty text.
    """
    reason = "stop"
    if type(word) is str:
        kind, _, cause = word.lower().partition(":")
        reason = _NEUTRAL.get(cause.strip()) or _NEUTRAL.get(kind.strip(), "stop")
        if reason == FAILED:
            return FAILED, word[:_MAX_REASON_CHARS]
    return ("tool_use" if calls and reason == "stop" else reason), ""
