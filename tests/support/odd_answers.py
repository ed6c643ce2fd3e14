"""Odd answers of models, as each provider's API would send them, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.wire import Raw, completion, completion_stream, message

HALF = "\ud83d"
_MARK = "the-arguments-stand-here"
_STOPS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}
_FAILED = ("error", "network_error", "insufficient_system_resource")


@dataclass(frozen=True)
class Call:
    """A tool call.

    Attributes:
        arguments: the text that the model wrote; other values are sent as they are.
    """

    name: str
    arguments: Any
    call_id: str = "c1"


@dataclass(frozen=True)
class Odd:
    """An odd answer.

    Attributes:
        name: of its row in the table.
        stop: why it ended, in the words of Chat Completions.
    """

    name: str
    text: str = ""
    calls: tuple[Call, ...] = ()
    refusal: str = ""
    stop: str = "stop"


def chat(odd: Odd) -> dict[str, Any]:
    calls = [
        {"id": call.call_id, "type": "function",
         "function": {"name": call.name, "arguments": call.arguments}}
        for call in odd.calls
    ]  # fmt: skip
    body = completion(odd.text, calls)
    choice = body["choices"][0]
    choice["message"] |= {"content": odd.text or None, "refusal": odd.refusal or None}
    choice["finish_reason"] = "tool_calls" if calls and odd.stop == "stop" else odd.stop
    return body


def chat_stream(odd: Odd) -> Raw:
    """Return the stream of Chat Completions: the arguments come in pieces if they are a text."""
    calls = tuple(
        call if isinstance(call.arguments, str) else Call(call.name, "", call.call_id)
        for call in odd.calls
    )
    stream = completion_stream(chat(Odd(odd.name, odd.text, calls, odd.refusal, odd.stop)))
    if odd.refusal:
        head = {"id": "c", "object": "chat.completion.chunk", "model": "m"}
        chunks = [{**head, "choices": [{"index": 0, "delta": {"refusal": piece}}]}
                  for piece in _pieces(odd.refusal)]  # fmt: skip
        stream.chunks[-3:-3] = [f"data: {json.dumps(each)}\n\n".encode() for each in chunks]
    return stream


def messages(odd: Odd) -> Raw:
    """Return the answer of the Messages API: ``input`` is what the model wrote, if it is JSON."""
    blocks = [{"type": "text", "text": odd.text}] if odd.text else []
    body = message(*blocks, *(_tool_use(call, _MARK) for call in odd.calls), stop=_stop(odd))
    text = json.dumps(body)
    for call in odd.calls:
        text = text.replace(json.dumps(_MARK), _written(call.arguments), 1)
    return Raw(text.encode("utf-8", "backslashreplace"))


def messages_stream(odd: Odd, *, whole_input: bool = False) -> Raw:
    """Return the stream of the Messages API.

    Args:
        whole_input: whether a call's input stands in the event that begins its block.
    """
    start = message(stop=_stop(odd))
    events: list[Any] = [{"type": "message_start", "message": {**start, "stop_reason": None}}]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if odd.text:
        pieces = [{"type": "text_delta", "text": piece} for piece in _pieces(odd.text)]
        blocks.append(({"type": "text", "text": ""}, pieces))
    for call in odd.calls:
        if whole_input or not isinstance(call.arguments, str):
            blocks.append((_tool_use(call, _MARK), []))
            continue
        pieces = [{"type": "input_json_delta", "partial_json": piece}
                  for piece in _pieces(call.arguments)]  # fmt: skip
        blocks.append((_tool_use(call, {}), pieces))
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta}
                   for delta in deltas]  # fmt: skip
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": start["stop_reason"]},
                   "usage": {"output_tokens": 7}})  # fmt: skip
    events.append({"type": "message_stop"})
    text = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
    for call in odd.calls:
        text = text.replace(json.dumps(_MARK), _written(call.arguments), 1)
    return Raw(text.encode("utf-8", "backslashreplace"), content_type="text/event-stream")


def responses(odd: Odd) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    if odd.text:
        parts.append({"type": "output_text", "text": odd.text, "annotations": []})
    if odd.refusal:
        parts.append({"type": "refusal", "refusal": odd.refusal})
    output: list[dict[str, Any]] = []
    if parts:
        output.append({"type": "message", "id": "m1", "role": "assistant", "status": "completed",
                       "content": parts})  # fmt: skip
    output += [
        {"type": "function_call", "id": f"f{n}", "call_id": call.call_id, "name": call.name,
         "arguments": call.arguments, "status": "completed"}
        for n, call in enumerate(odd.calls)
    ]  # fmt: skip
    ended: dict[str, Any] = {"status": "completed"}
    if odd.stop in _FAILED:
        ended["status"] = "failed"
    elif odd.stop != "stop":
        reason = "max_output_tokens" if odd.stop == "length" else odd.stop
        ended = {"status": "incomplete", "incomplete_details": {"reason": reason}}
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    return {"id": "r1", "object": "response", "model": "m", "output": output, "usage": usage,
            "error": None, **ended}  # fmt: skip


def responses_events(odd: Odd) -> Iterator[dict[str, Any]]:
    whole = responses(odd)
    start = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": start}
    for index, item in enumerate(whole["output"]):
        at = {"output_index": index, "item_id": item["id"]}
        empty = {"content": []} if item["type"] == "message" else {"arguments": ""}
        yield {"type": "response.output_item.added", **at, "item": {**item, **empty}}
        if item["type"] == "function_call" and isinstance(item["arguments"], str):
            for piece in _pieces(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **at, "delta": piece}
        for number, part in enumerate(item.get("content", ())):
            kind = "refusal" if part["type"] == "refusal" else "output_text"
            key = "refusal" if kind == "refusal" else "text"
            here = {**at, "content_index": number}
            yield {"type": "response.content_part.added", **here, "part": {**part, key: ""}}
            for piece in _pieces(part[key]):
                yield {"type": f"response.{kind}.delta", **here, "delta": piece}
            yield {"type": "response.content_part.done", **here, "part": part}
        yield {"type": "response.output_item.done", **at, "item": item}
    yield {"type": f"response.{whole['status']}", "response": whole}


def _tool_use(call: Call, given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.call_id, "name": call.name, "input": given}


def _stop(odd: Odd) -> str:
    if odd.refusal:
        return "refusal"
    return "tool_use" if odd.calls and odd.stop == "stop" else _STOPS.get(odd.stop, odd.stop)


def _written(arguments: Any) -> str:
    """Return the JSON text of arguments: as the model wrote them, if that is JSON."""
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments, parse_int=float)
        except ValueError:
            return json.dumps(arguments)
        is_plain = "NaN" not in arguments and "Infinity" not in arguments
        if is_plain and not isinstance(value, str):  # the API's own text is the arguments' text
            return arguments.replace("\n", " ")  # an event's data is one line
    return json.dumps(arguments)


def _pieces(text: str) -> list[str]:
    """Return a text in pieces of five characters, some of which end within an emoji."""
    return [text[at : at + 5] for at in range(0, len(text), 5)]
