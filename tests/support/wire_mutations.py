"""JSON texts and event streams with one thing wrong: by a seed, the same each time."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from remit.providers.sse import SseParser
from tests.support.wire_corpus import WireExchange

__all__ = ["ODD", "mutated", "odd_stream", "paths"]

ODD: tuple[bytes, ...] = (
    b"null", b"true", b"false", b"0", b"-0", b"-0.0", b"-1", b"1.5", b"1e999", b"-1e999",
    b"9223372036854775808", b"123456789012345678901234567890", b"1" * 400, b'""', b'"x"',
    b'"\\ud800"', b'"\\u0000"', b'"\xf0\x9f\x98\x80 \\ud83d\\ude00"', b'"' + b"y" * 3000 + b'"',
    b"[]", b"{}", b"[[]]", b"[null]", b"[0]", b'["x"]', b"[{}]", b'{"type":"text"}',
    b'{"type":null}', b'{"\\ud800":1}', b'{"a":{"b":[1,{"c":null}]}}', b"[" * 60 + b"]" * 60,
    b'[{"type":"text","text":5}]', b'{"message":"no"}', b'{"type":"error"}', b" \n\t[ ] \r\n",
)  # fmt: skip
"""Values of every type and size that any field may turn out to have."""

_MARK = "@@remit-mutation@@"
_MARKED = json.dumps(_MARK).encode()


def paths(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Of every value within ``value``, outermost first."""
    inner: Any = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        inner = enumerate(value)
    for name, each in inner:
        yield (*at, name)
        yield from paths(each, (*at, name))


def mutated(
    text: bytes, seed: int, path: Sequence[str | int] | None = None
) -> tuple[tuple[str | int, ...], bytes]:
    """A text with one value replaced, left out, given twice or renamed.

    Returns:
        Where it was changed, and the text.
    """
    chance = random.Random(seed)
    value = json.loads(text)
    if path is None:
        path = chance.choice(list(paths(value)) or [()])
    if not path:
        return (), chance.choice(ODD)
    holder = value
    for name in path[:-1]:
        holder = holder[name]
    last = path[-1]
    how = chance.random()
    if how < 0.1:
        del holder[last]
        return tuple(path), _dumped(value)
    new = chance.choice(ODD)
    if how < 0.2 and isinstance(holder, dict):  # twice: the second counts
        text = json.dumps(str(last)).encode()
        old = _dumped(holder[last])
        holder[last] = _MARK
        first, second = (new, old) if how < 0.15 else (old, new)
        twice = first + b"," + text + b" :" + second
        return tuple(path), _dumped(value).replace(_MARKED, twice)
    if how < 0.25 and isinstance(holder, dict):
        holder[f"{last}_"] = holder.pop(last)
        return tuple(path), _dumped(value)
    holder[last] = _MARK
    return tuple(path), _dumped(value).replace(_MARKED, new)


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode().replace(b"Infinity", b"1e999")


def odd_stream(exchange: WireExchange, seed: int) -> tuple[str, bytes]:
    """A stream with one thing wrong."""
    chance = random.Random(seed)
    parsed = SseParser().feed(exchange.answer)
    events = [event.raw for event in parsed]
    at = chance.randrange(len(events))
    how = chance.choice(_WAYS)
    event = events[at]
    if how in ("data", "data 2", "data 3"):
        start, name = event.partition(b"data:")[:2]
        path: object = ""
        text = parsed[at].data
        if text.startswith(b"{"):
            path, text = mutated(text, seed)
        else:
            text = chance.choice(ODD)
        events[at] = start + name + text.replace(b"\n", b"").replace(b"\r", b"") + b"\n\n"
        return f"{how} {path}", b"".join(events)
    if how == "left out":
        del events[at]
    elif how == "twice":
        events.insert(at, event)
    elif how == "swapped":
        events[at - 1], events[at] = event, events[at - 1]
    elif how == "no end":
        del events[at + 1 :]
    elif how == "cut":
        events[at:] = [event[: chance.randrange(len(event))]]
    elif how == "error":
        events.insert(at, chance.choice(_ERRORS))
    elif how == "more":
        events.insert(at, chance.choice(_EVENTS))
    elif how == "after":
        events += [chance.choice(_EVENTS), event]
    elif how == "CRLF":
        return how, b"".join(events).replace(b"\n", b"\r\n")
    elif how == "CR":
        return how, b"".join(events).replace(b"\n", b"\r")
    elif how == "BOM":
        return how, b"\xef\xbb\xbf" + b"".join(events)
    elif how == "no names":
        return how, b"".join(part.partition(b"data:")[1] + part.partition(b"data:")[2]
                             for part in events)  # fmt: skip
    elif how == "lines":
        events[at] = event.replace(b'","', b'"\ndata: ,"', 1)
    return how, b"".join(events)


_WAYS = ("data", "data 2", "data 3", "left out", "twice", "swapped", "no end", "cut", "error",
         "more", "after", "CRLF", "CR", "BOM", "no names", "lines")  # fmt: skip
_ERRORS = (
    b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"no"}}\n\n',
    b'data: {"error":{"message":"no","type":"server_error","code":null}}\n\n',
    b'event: error\ndata: {"type":"error","code":"x","message":"no","param":null}\n\n',
    b'event: response.failed\ndata: {"type":"response.failed","response":{"error":null}}\n\n',
    b'data: {"error":"text"}\n\n', b'event: error\ndata: no\n\n', b'event: error\ndata: {}\n\n',
    b'data: {"error":{"code":400,"message":{"a":["\\ud800"]}}}\n\n',
)  # fmt: skip
_EVENTS = (
    b": keep-alive\n\n", b"\n", b"event: ping\ndata: {\"type\":\"ping\"}\n\n", b"data:\n\n",
    b"event: vendor\ndata: {\"type\":\"vendor.new\",\"x\":[1]}\n\n", b"data: [1]\n\n",
    b"id: 5\nretry: 10\ndata: {}\n\n", b"data: <html>\n\n", b"data: \xff\n\n", b"data: null\n\n",
    b'data: "\\ud800"\n\n', b"data: " + b"[" * 3000 + b"]" * 3000 + b"\n\n", b"data: [DONE]\n\n",
    b"x" * 100_000 + b"\n\n", b'data: {"choices":[],"usage":{}}\n\n', b"data: 1e999\n\n",
    b'data: {"choices":[{"delta":{"content":"\\ud800"}}]}\n\n',
)  # fmt: skip
