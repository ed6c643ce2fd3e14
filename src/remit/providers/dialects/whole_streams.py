"""A whole answer as a stream of its own API, with every member that the answer has.

A client that asked for a stream reads no event in a whole answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remit.kernel.json_text import load_exact
from remit.providers.dialects.streaming import event_bytes, sse
from remit.providers.dialects.tool_calls import json_text
from remit.providers.wire.answer import dicts_in
from remit.providers.wire.body import member_at

_Events = Iterator[tuple[str, dict[str, Any]]]


def own_events(endpoint: str, answer: bytes, *, with_usage: bool) -> list[bytes]:
    """Return the events of an answer, each with its blank line.

    The answer of an API without events for the parts of an answer is one event.

    Args:
        endpoint: the endpoint of the answer, such as ``openai.chat``.
        answer: the answer, a JSON object.
        with_usage: True if the client of Chat Completions or Completions asked for the usage.

    Raises:
        JsonTextError: the answer is not JSON.
    """
    value = load_exact(answer)
    if endpoint in ("openai.chat", "openai.completions"):
        wire = [event_bytes(chunk) for chunk in _chunks(value, with_usage=with_usage)]
        return [*wire, b"data: [DONE]\n\n"]
    if endpoint == "anthropic.messages":
        return [sse(name, data) for name, data in _message_events(value)]
    if endpoint == "bedrock.converse":
        return [event_bytes(data, name) for name, data in _converse_events(value)]
    return [event_bytes(value)]


def _chunks(answer: dict[str, Any], *, with_usage: bool) -> Iterator[dict[str, Any]]:
    head = {name: value for name, value in answer.items() if name not in ("choices", "usage")}
    choices = []
    for choice in dicts_in(answer.get("choices")):
        if type(message := choice.get("message")) is dict:
            head["object"] = "chat.completion.chunk"
            delta = {**message}
            if type(calls := message.get("tool_calls")) is list:
                delta["tool_calls"] = [
                    {"index": index, **call} for index, call in enumerate(dicts_in(calls))
                ]
            choice = {name: value for name, value in choice.items() if name != "message"}
            choice["delta"] = delta
        choices.append(choice)
    yield {**head, "choices": choices}
    if with_usage and (usage := answer.get("usage")) is not None:
        yield {**head, "choices": [], "usage": usage}


def _message_events(answer: dict[str, Any]) -> _Events:
    ends = {"stop_reason": None, "stop_sequence": None}
    if type(answer.get("usage")) is not dict:  # Clients add up its counts.
        answer = {**answer, "usage": {"input_tokens": 0, "output_tokens": 0}}
    yield "message_start", {"message": {**answer, "content": [], **ends}}
    for index, block in enumerate(dicts_in(answer.get("content"))):
        begun, deltas = {**block}, []
        for member, empty, kind, name in _GROWING:
            if block.get(member) is None or (member == "input" and type(block[member]) is not dict):
                continue
            begun[member] = empty
            pieces = block[member] if type(block[member]) is list else [block[member]]
            if member == "input":
                pieces = [json_text(block[member])]
            deltas += [{"type": kind, name: piece} for piece in pieces if piece]
        yield "content_block_start", {"index": index, "content_block": begun}
        for delta in deltas:
            yield "content_block_delta", {"index": index, "delta": delta}
        yield "content_block_stop", {"index": index}
    end = {name: answer.get(name) for name in ends}
    yield "message_delta", {"delta": end, "usage": answer.get("usage")}
    yield "message_stop", {}


_GROWING: tuple[tuple[str, Any, str, str], ...] = (
    ("text", "", "text_delta", "text"),
    ("citations", [], "citations_delta", "citation"),
    ("thinking", "", "thinking_delta", "thinking"),
    ("signature", "", "signature_delta", "signature"),
    ("input", {}, "input_json_delta", "partial_json"),
)
"""Members of blocks of the Messages API that grow: the value at the start, the type of the delta
and the delta's member."""


def _converse_events(answer: dict[str, Any]) -> _Events:
    message = member_at(answer, "output.message")
    yield "messageStart", {"role": member_at(message, "role")}
    for index, block in enumerate(dicts_in(member_at(message, "content"))):
        at = {"contentBlockIndex": index}
        deltas: list[dict[str, Any]] = [block]
        if type(call := block.get("toolUse")) is dict:
            begun = {name: value for name, value in call.items() if name != "input"}
            yield "contentBlockStart", {"start": {"toolUse": begun}, **at}
            deltas = [{"toolUse": {"input": json_text(call.get("input"))}}]
        elif type(thought := member_at(block, "reasoningContent.reasoningText")) is dict:
            deltas = [{"reasoningContent": {name: said}} for name, said in thought.items()]
        elif type(cited := block.get("citationsContent")) is dict:
            deltas = dicts_in(cited.get("content"))
            deltas += [{"citation": one} for one in dicts_in(cited.get("citations"))]
        for delta in deltas:
            yield "contentBlockDelta", {"delta": delta, **at}
        yield "contentBlockStop", at
    ends = ("stopReason", "additionalModelResponseFields")
    yield "messageStop", {name: answer[name] for name in ends if name in answer}
    yield "metadata", {name: value for name, value in answer.items()
                       if name not in (*ends, "output")}  # fmt: skip
