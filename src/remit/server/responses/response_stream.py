"""A recorded ``response`` object as a stream of server-sent events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remit.kernel.json_text import dump, load

_ENDS = {"completed": "completed", "incomplete": "incomplete"}
_CALLS = {
    "function_call": ("arguments", "function_call_arguments"),
    "custom_tool_call": ("input", "custom_tool_call_input"),
}
_PARTS = {
    "output_text": ("text", "output_text"),
    "refusal": ("refusal", "refusal"),
    "reasoning_text": ("text", "reasoning_text"),
    "summary_text": ("text", "reasoning_summary_text"),
}


def stream_of(text: bytes, after: int = -1) -> bytes:
    """Return the server-sent events of a response as wire bytes; the last event holds ``text``.

    The last event is ``response.completed``, ``response.incomplete`` or ``response.failed``, by the
    status (``error`` if that is no text), and is sent in any case. A ``text`` with line breaks is
    written anew, because an event's data is one line.

    Args:
        text: exact text of a ``response`` object.
        after: last sequence number that the client has; -1 for none.

    Raises:
        JsonTextError: the text is not valid JSON.
    """
    value = load(text)
    wire: list[bytes] = []
    number = -1
    for number, event in enumerate(_events(value)):
        if number > after:
            wire.append(_sse(event["type"], dump({**event, "sequence_number": number})))
    status = value.get("status")
    name = f"response.{_ENDS.get(status, 'failed')}" if isinstance(status, str) else "error"
    # Data of an event is one line.
    said = dump(value) if b"\n" in text or b"\r" in text else text
    last = b'{"type":"%s","sequence_number":%d,"response":%s}' % (name.encode(), number + 1, said)
    return b"".join([*wire, _sse(name, last)])


def _sse(name: str, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)


def _events(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all events except the last."""
    begun = {**value, "status": "in_progress", "output": [], "usage": None}
    begun |= {"incomplete_details": None, "error": None}
    begun.pop("completed_at", None)
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    output = value.get("output")
    for index, item in enumerate(output if type(output) is list else []):
        if type(item) is dict:
            yield from _item_events(index, item)


def _item_events(index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    at = {"output_index": index}
    begun = {**item, "status": "in_progress"} if "status" in item else {**item}
    call = _CALLS.get(str(item.get("type")))
    lists = [name for name in ("summary", "content") if type(item.get(name)) is list]
    begun |= {name: [] for name in lists}
    if call is not None:
        begun[call[0]] = ""
    yield {"type": "response.output_item.added", **at, "item": begun}
    at["item_id"] = item.get("id", "")
    if call is not None:
        name, said = call[1], item.get(call[0])
        yield {"type": f"response.{name}.delta", **at, "delta": said}
        named = {"name": item.get("name")} if name == "function_call_arguments" else {}
        yield {"type": f"response.{name}.done", **at, **named, call[0]: said}
    for name in lists:
        for number, part in enumerate(item[name]):
            if type(part) is dict:
                yield from _part_events(name, {**at, f"{name}_index": number}, part)
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _part_events(where: str, at: dict[str, Any], part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    family = "reasoning_summary_part" if where == "summary" else "content_part"
    field, name = _PARTS.get(str(part.get("type")), ("", ""))
    begun = {**part, field: ""} if field else part
    if "annotations" in begun:
        begun = {**begun, "annotations": []}
    yield {"type": f"response.{family}.added", **at, "part": begun}
    if field:
        more = {"logprobs": part.get("logprobs") or []} if name == "output_text" else {}
        said = part.get(field)
        yield {"type": f"response.{name}.delta", **at, "delta": said, **more}
        cited = part.get("annotations")
        for number, annotation in enumerate(cited if type(cited) is list else []):
            yield {
                "type": "response.output_text.annotation.added", **at,
                "annotation_index": number, "annotation": annotation,
            }  # fmt: skip
        yield {"type": f"response.{name}.done", **at, field: said, **more}
    yield {"type": f"response.{family}.done", **at, "part": part}
