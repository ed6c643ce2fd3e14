"""Provider-neutral conversation messages (SPEC 4.1).

A message is ``{"role": "system" | "user" | "assistant", "content": str | [block, …]}``.
A block is one of::

    {"type": "text", "text": str}
    {"type": "image", "source": {"type": "base64", "media_type": str, "data": str}}
    {"type": "image", "source": {"type": "url", "url": str}}
    {"type": "tool_use", "id": str, "name": str, "input": object}
    {"type": "tool_result", "tool_use_id": str, "content": str | [block, …], "is_error": bool}

Blocks of other types are carried as they are, for the provider to accept or refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Message", "check_messages", "text_of"]

Message = dict[str, Any]

_ROLES = ("system", "user", "assistant")
_REQUIRED: dict[str, dict[str, type | tuple[type, ...]]] = {
    "text": {"text": str},
    "image": {"source": dict},
    "tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"tool_use_id": str, "content": (str, list)},
}


def check_messages(messages: Sequence[Any]) -> str:
    """The first thing wrong with ``messages``, in words that quote no content; else ``""``."""
    if not messages:
        return "messages is empty"
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, dict):
            return f"{where} is a {type(message).__name__}, not an object"
        if message.get("role") not in _ROLES:
            return f"{where}.role is not one of {', '.join(_ROLES)}"
        content = message.get("content")
        if isinstance(content, str):
            continue
        if not isinstance(content, (list, tuple)):
            return f"{where}.content is neither a text nor a list of blocks"
        for number, block in enumerate(content):
            problem = _check_block(block)
            if problem:
                return f"{where}.content[{number}] {problem}"
    return ""


def text_of(content: Any) -> str:
    """The plain text of a message's content: a string as it is, text blocks joined."""
    if isinstance(content, str):
        return content
    if not isinstance(content, (list, tuple)):
        return ""
    return "".join(
        str(block.get("text", ""))
        for block in content
        if isinstance(block, dict) and block.get("type") == "text"
    )


def _check_block(block: Any) -> str:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return "is not an object with a type"
    for key, kind in _REQUIRED.get(block["type"], {}).items():
        if not isinstance(block.get(key), kind):
            return f"is a {block['type']} block without a usable {key!r}"
    return ""
