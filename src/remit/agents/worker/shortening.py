"""Keeps the conversation of an order short: the oldest results of its tools are left out first."""

from __future__ import annotations

from collections.abc import Sequence

from remit.kernel.exchange import Message
from remit.kernel.json_text import dump

_NOTE = "(This result was left out here to keep the conversation short. The tool has run.)"
_BYTES_PER_TOKEN = 4  # the usual rule of thumb; what is sent is counted exactly by the budget


def shortened(messages: Sequence[Message], most_tokens: int) -> list[Message]:
    """The messages, where they are too long with the oldest results of tools replaced by a note.

    A call is never separated from its result, and the last message, which the model has not seen
    yet, stays whole. It is cut down to half at once: in between, the conversation only grows at
    its end, which providers' prompt caches reward.
    """
    kept = list(messages)
    size = len(dump(kept))
    if size <= most_tokens * _BYTES_PER_TOKEN:
        return kept
    for index, message in enumerate(kept[:-1]):
        blocks = message["content"]
        if not isinstance(blocks, list) or not any(map(_is_result, blocks)):
            continue
        if size <= most_tokens * _BYTES_PER_TOKEN // 2:
            break
        kept[index] = {
            **message,
            "content": [{**one, "content": _NOTE} if _is_result(one) else one for one in blocks],
        }
        size += len(dump(kept[index])) - len(dump(message))
    return kept


def left_out(messages: Sequence[Message]) -> int:
    """How many results of tools are left out of messages: so many of the oldest ones."""
    return sum(
        _is_result(block) and block["content"] == _NOTE
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
    )


def _is_result(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"
