"""Rounds of tool calls in the order that every provider accepts.

Each provider refuses a conversation in which a call has no result directly after it, a result has
no call, or two calls share an id. Clients send such conversations after an interruption, or after
another provider that repeats ids.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

from remit.kernel.exchange import Message

_UNANSWERED = "(This call was not answered.)"
_ORPHAN = "The result of a tool call that is not in this conversation:"


def in_rounds(messages: list[Message]) -> list[Message]:
    """Return messages in which the results of each assistant message directly follow it, in the
    client's order.

    A call without a result gets one that says so. A result without a call becomes text. A repeated
    id gets a number. The list itself is returned if its order is right.

    Args:
        messages: messages in neutral form, which are not changed.
    """
    results: dict[str, deque[tuple[int, dict[str, Any]]]] = {}
    called = False
    count = 0
    for message in messages:
        for block in _blocks(message):
            if block["type"] == "tool_result":
                count += 1
                results.setdefault(block["tool_use_id"], deque()).append((count, block))
            elif block["type"] == "tool_use":
                called = True
    if not called and not results:
        return messages
    placed: set[int] = set()
    times: dict[str, int] = {}
    ordered: list[Message] = []
    for message in messages:
        if message["role"] != "assistant":
            if rest := _without_results(message, placed):
                ordered.append(rest)
            continue
        said, given = _round(message, results, placed, times)
        ordered.append(said)
        if given:
            ordered.append({"role": "user", "content": given})
    return ordered


def _blocks(message: Message) -> list[dict[str, Any]]:
    content = message["content"]
    return [] if isinstance(content, str) else content


def _round(
    message: Message,
    results: dict[str, deque[tuple[int, dict[str, Any]]]],
    placed: set[int],
    times: dict[str, int],
) -> tuple[Message, list[dict[str, Any]]]:
    """Return an assistant message with unique call ids, and the results of its calls."""
    given: list[tuple[int, dict[str, Any]]] = []
    said: list[dict[str, Any]] = []
    for block in _blocks(message):
        if block["type"] == "tool_use":
            identity = block["id"]
            times[identity] = number = times.get(identity, 0) + 1
            unique = identity if number == 1 else f"{identity}_{number}"
            if known := results.get(identity):
                place, result = known.popleft()
                placed.add(id(result))
            else:
                place = sys.maxsize
                result = {"type": "tool_result", "content": _UNANSWERED, "is_error": True}
            given.append((place, {**result, "tool_use_id": unique}))
            if unique != identity:
                block = {**block, "id": unique}
        said.append(block)
    given.sort(key=lambda one: one[0])
    return ({**message, "content": said} if given else message), [result for _, result in given]


def _without_results(message: Message, placed: set[int]) -> Message | None:
    """Return a message without the placed results, or None if nothing else is in it."""
    blocks = _blocks(message)
    if not any(block["type"] == "tool_result" for block in blocks):
        return message
    rest: list[dict[str, Any]] = []
    for block in blocks:
        if block["type"] != "tool_result":
            rest.append(block)
        elif id(block) not in placed:
            content = block["content"]
            rest.append({"type": "text", "text": _ORPHAN})
            rest += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**message, "content": rest} if rest else None
