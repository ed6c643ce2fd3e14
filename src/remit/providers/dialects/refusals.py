"""Refusals of requests that a target cannot express, by the client's own field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.providers.dialects.dialect_error import DialectError
from remit.providers.dialects.model_call import ModelCall

__all__ = ["cannot", "refuse_promises", "words_of"]

_NEXT_STEP = "Leave out the field, or use a model whose provider supports this API."
_PROMISES: dict[str, dict[str, str]] = {
    "openai.chat": {
        "logprobs": "log probabilities",
        "top_logprobs": "log probabilities",
        "audio": "audio",
        "logit_bias": "a token bias",
        "moderation": "moderation results",
    },
    "openai.responses": {
        "top_logprobs": "log probabilities",
        "moderation": "moderation results",
        "prompt": "a prompt stored by the provider",
        "previous_response_id": "a response stored by another provider",
        "conversation": "a conversation stored by another provider",
    },
    "anthropic.messages": {
        "mcp_servers": "MCP servers run by the provider",
        "container": "a container run by the provider",
        "inference_geo": "an inference region",
    },
}
"""What a client would miss unawares, where it asks for it at all."""


def cannot(param: str, what: str) -> DialectError:
    """Return the error for a field that asks for ``what``."""
    return DialectError(
        f"{param} requests {what}, which this model's provider does not support; leave this out, "
        "or use another model.",
        param=param,
        next_step=_NEXT_STEP,
    )


def words_of(block: Mapping[str, Any]) -> str | None:
    """Return in words a part that only its own API has; None if words cannot say it.

    Only tool references have words: Claude Code searches its tools itself, and answers with
    references to the found tools.

    Args:
        block: a block of the type ``other``.
    """
    value = block.get("value")
    if type(value) is not dict or value.get("type") != "tool_reference":
        return None
    return f"The tool {value.get('tool_name')} is available."


def refuse_promises(call: ModelCall) -> None:
    """Check that a call has no fields that only its own dialect can honour.

    Such fields ask for log probabilities, several answers, audio and the like.

    Raises:
        DialectError: the call has such a field; ``param`` names it.
    """
    other = call.other
    for key, what in _PROMISES.get(call.endpoint, {}).items():
        if other.get(key):
            raise cannot(key, what)
    if call.endpoint == "openai.chat":
        _refuse_choices(other)
    elif call.endpoint == "openai.responses":
        include = other.get("include")
        if isinstance(include, list) and "message.output_text.logprobs" in include:
            raise cannot("include", "log probabilities")


def _refuse_choices(other: Mapping[str, Any]) -> None:
    count = other.get("n")
    if count is not None and count != 1:
        raise cannot("n", "more than one answer")
    modalities = other.get("modalities")
    if modalities and modalities != ["text"]:
        raise cannot("modalities", "an answer that is not only text")
