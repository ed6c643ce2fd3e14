"""Whole answers cut into the streams that a provider could have sent instead."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from remit.providers.wire import StreamSum


def added(total: StreamSum, events: Iterable[bytes | tuple[str, bytes]]) -> dict[str, Any]:
    for event in events:
        name, data = event if isinstance(event, tuple) else ("", event)
        total.add(name, data)
    return total.answer()


def without_nulls(value: Any) -> Any:
    """Return a JSON value without the members of its objects that are null."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def cut(text: str, width: int) -> list[str]:
    """A text in pieces of so many characters; an empty one is one piece."""
    return [text[at : at + width] for at in range(0, len(text), width)] or [""]


def chat_chunks(whole: dict[str, Any], width: int, random: Random | None = None) -> list[bytes]:
    """Chunks of Chat Completions; with ``random``, several choices come mixed."""
    head = {key: value for key, value in whole.items() if key not in ("choices", "usage")}
    head["object"] = "chat.completion.chunk"
    streams = [list(_choice_chunks(choice, width)) for choice in whole["choices"]]
    chunks: list[dict[str, Any]] = []
    while any(streams):
        waiting = [stream for stream in streams if stream]
        if len(chunks) < len(streams):  # OpenAI's client wants the choices begun in order
            stream = streams[len(chunks)]
        else:
            stream = random.choice(waiting) if random else waiting[0]
        chunks.append({**head, "choices": [stream.pop(0)], "usage": None, "obfuscation": "x"})
    chunks.append({**head, "choices": [], "usage": whole["usage"]})
    return [*(json.dumps(chunk).encode() for chunk in chunks), b"[DONE]"]


def _choice_chunks(choice: dict[str, Any], width: int) -> Iterator[dict[str, Any]]:
    message = choice["message"]
    start = {"role": message["role"], "content": None if message["content"] is None else ""}
    start["refusal"] = None
    yield _choice(choice, start)
    logprobs = choice["logprobs"] or {}
    for kind, tokens in logprobs.items():
        for token in tokens or ():
            other = "refusal" if kind == "content" else "content"
            yield {**_choice(choice, {}), "logprobs": {kind: [token], other: None}}
    for key, value in message.items():
        if key in ("role",) or value is None:
            continue
        if key == "tool_calls":
            for index, call in enumerate(value):
                yield from (_choice(choice, {key: [each]}) for each in _call(call, index, width))
        elif key == "audio":
            yield _choice(choice, {key: {"id": value["id"]}})
            for part in ("data", "transcript"):
                for piece in cut(value[part], width):
                    yield _choice(choice, {key: {part: piece}})
            yield _choice(choice, {key: {"expires_at": value["expires_at"]}})
        elif key == "function_call":
            yield _choice(choice, {key: {"name": value["name"], "arguments": ""}})
            for piece in cut(value["arguments"], width):
                yield _choice(choice, {key: {"arguments": piece}})
        elif isinstance(value, str):
            for piece in cut(value, width):
                yield _choice(choice, {key: piece})
        else:
            yield _choice(choice, {key: value})
    yield {**_choice(choice, {}), "finish_reason": choice["finish_reason"]}


def _choice(choice: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": choice["index"], "delta": delta, "logprobs": None, "finish_reason": None}


def _call(call: dict[str, Any], index: int, width: int) -> Iterator[dict[str, Any]]:
    kind = call["type"]
    written = "arguments" if kind == "function" else "input"
    start = {**call[kind], written: ""}
    yield {"index": index, "id": call["id"], "type": kind, kind: start}
    for piece in cut(call[kind][written], width):
        yield {"index": index, kind: {written: piece}}


def message_events(whole: dict[str, Any], width: int) -> list[tuple[str, bytes]]:
    usage = whole["usage"]
    ends = ("stop_reason", "stop_sequence", "container")
    start = {**whole, "content": [], "stop_reason": None, "stop_sequence": None}
    start["usage"] = {**usage, "output_tokens": 1}
    start["usage"].pop("server_tool_use", None)
    start.pop("container", None)
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(whole["content"]):
        events += [{**event, "index": index} for event in _block_events(block, width)]
    delta = {key: whole[key] for key in ends if key in whole}
    counted = {"output_tokens": usage["output_tokens"]}
    if "server_tool_use" in usage:
        counted["server_tool_use"] = usage["server_tool_use"]
    events.append({"type": "message_delta", "delta": delta, "usage": counted})
    events.append({"type": "message_stop"})
    return [(event["type"], json.dumps(event).encode()) for event in events]


def _block_events(block: dict[str, Any], width: int) -> Iterator[dict[str, Any]]:
    kind = block["type"]
    deltas: list[dict[str, Any]] = []
    start = block
    if kind == "text":
        start = {**block, "text": ""}
        if block.get("citations"):
            start["citations"] = []
            deltas = [{"type": "citations_delta", "citation": each} for each in block["citations"]]
        deltas += [{"type": "text_delta", "text": piece} for piece in cut(block["text"], width)]
    elif kind == "thinking":
        start = {**block, "thinking": "", "signature": ""}
        pieces = cut(block["thinking"], width)
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif kind in ("tool_use", "server_tool_use"):
        start = {**block, "input": {}}
        text = json.dumps(block["input"]) if block["input"] else ""
        deltas = [{"type": "input_json_delta", "partial_json": each} for each in cut(text, width)]
    yield {"type": "content_block_start", "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "delta": delta}
    yield {"type": "content_block_stop"}


def response_events(whole: dict[str, Any], width: int) -> list[tuple[str, bytes]]:
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(whole["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        events += [{**place, **event} for event in _item_events(item, width)]
    events.append({"type": f"response.{whole['status']}", "response": whole})
    numbered = [{**event, "sequence_number": at} for at, event in enumerate(events)]
    return [(event["type"], json.dumps(event).encode()) for event in numbered]


_WRITTEN = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
    "code_interpreter_call": ("code", "response.code_interpreter_call_code"),
}
_SAID = {
    "output_text": ("text", "response.output_text"),
    "refusal": ("refusal", "response.refusal"),
    "reasoning_text": ("text", "response.reasoning_text"),
    "summary_text": ("text", "response.reasoning_summary_text"),
}


def _item_events(item: dict[str, Any], width: int) -> Iterator[dict[str, Any]]:
    start = {**item, "status": "in_progress"} if "status" in item else dict(item)
    for key in ("content", "summary"):
        if key in item:
            start[key] = []
    written, stem = _WRITTEN.get(item["type"], ("", ""))
    if written:
        start[written] = ""
    yield {"type": "response.output_item.added", "item": start}
    if written:
        for piece in cut(item[written], width):
            yield {"type": f"{stem}.delta", "delta": piece}
        yield {"type": f"{stem}.done", written: item[written]}
    for key, place in (("content", "content_index"), ("summary", "summary_index")):
        for index, part in enumerate(item.get(key) or ()):
            yield from ({place: index, **event} for event in _part_events(part, width))
    yield {"type": "response.output_item.done", "item": item}


def _part_events(part: dict[str, Any], width: int) -> Iterator[dict[str, Any]]:
    said, stem = _SAID[part["type"]]
    summary = part["type"] == "summary_text"
    kind = "response.reasoning_summary_part" if summary else "response.content_part"
    lists = {key: [] for key in ("annotations", "logprobs") if key in part}
    yield {"type": f"{kind}.added", "part": {**part, said: "", **lists}}
    logprobs = part.get("logprobs", [])
    for index, piece in enumerate(cut(part[said], width)):
        told = {"logprobs": logprobs if index == 0 else []} if "logprobs" in part else {}
        yield {"type": f"{stem}.delta", "delta": piece, **told}
    for index, annotation in enumerate(part.get("annotations", ())):
        yield {"type": "response.output_text.annotation.added", "annotation_index": index,
               "annotation": annotation}  # fmt: skip
    yield {"type": f"{stem}.done", said: part[said]}
    yield {"type": f"{kind}.done", "part": part}


def gemini_events(whole: dict[str, Any]) -> list[tuple[str, bytes]]:
    """Events of ``streamGenerateContent``, one for each part of the only candidate."""
    (candidate,) = whole["candidates"]
    *parts, last = candidate["content"]["parts"]
    events = [{**whole, "candidates": [{"content": {"role": "model", "parts": [part]}}]}
              for part in parts]  # fmt: skip
    events.append({**whole, "candidates": [{**candidate, "content": {"parts": [last]}}]})
    return [("", json.dumps(event).encode()) for event in events]


def converse_events(whole: dict[str, Any], width: int) -> list[tuple[str, bytes]]:
    message = whole["output"]["message"]
    events: list[tuple[str, dict[str, Any]]] = [("messageStart", {"role": message["role"]})]
    for index, block in enumerate(message["content"]):
        at = {"contentBlockIndex": index}
        deltas: list[dict[str, Any]] = []
        if "toolUse" in block:
            start = {key: block["toolUse"][key] for key in ("toolUseId", "name")}
            events.append(("contentBlockStart", {"start": {"toolUse": start}, **at}))
            text = json.dumps(block["toolUse"]["input"])
            deltas = [{"toolUse": {"input": piece}} for piece in cut(text, width)]
        elif "text" in block:
            deltas = [{"text": piece} for piece in cut(block["text"], width)]
        elif "citationsContent" in block:
            cited = block["citationsContent"]
            deltas = [{"text": cited["content"][0]["text"]}, {"citation": cited["citations"][0]}]
        elif "reasoningText" in block["reasoningContent"]:
            thought = block["reasoningContent"]["reasoningText"]
            deltas = [{"reasoningContent": {"text": piece}}
                      for piece in cut(thought["text"], width)]  # fmt: skip
            deltas.append({"reasoningContent": {"signature": thought["signature"]}})
        else:
            deltas = [block]
        events += [("contentBlockDelta", {"delta": delta, **at}) for delta in deltas]
        events.append(("contentBlockStop", at))
    events.append(("messageStop", {"stopReason": whole["stopReason"]}))
    events.append(("metadata", {"usage": whole["usage"], "metrics": whole["metrics"]}))
    return [(name, json.dumps(data).encode()) for name, data in events]
