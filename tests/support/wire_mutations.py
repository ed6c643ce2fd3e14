"""JSON texts with one thing wrong: by a seed, the same each time."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["ODD", "mutated", "paths"]

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
        old = json.dumps(holder[last]).encode()
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
    return json.dumps(value).encode()
