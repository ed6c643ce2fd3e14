"""Quotes of erased texts in other values.

Erased values and searched values are read in the same way. Names are no quotes: of members, of
tools, and of the protocol, such as an id, a model or a type.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any

from remit.kernel.json_text import load_exact
from remit.ledger.contents import StoredValue

# A value that quotes an erased text of at least this length is erased with it.
_QUOTE_CHARS = 16
_MEMBER = re.compile(r"[A-Za-z_$][\w.$-]*", re.ASCII)
_WORD = re.compile(r"[\w.$:/@+=-]+", re.ASCII)
# Members whose words are names of the protocol in every dialect.
_PROTOCOL = frozenset(
    {"allowedFunctionNames", "allowed_tools", "call_id", "finishReason", "finish_reason", "include",
     "item_id", "media_type", "mimeType", "model", "modelVersion", "object",
     "previous_response_id", "responseId", "response_id", "stopReason", "stop_reason",
     "system_fingerprint", "toolUseId", "tool_call_id", "tool_use_id", "type"}
)  # fmt: skip
# Members of an object whose name is no person's: a tool, its call, or the form of an answer.
_NAMED = frozenset({"arguments", "inputSchema", "input_schema", "parameters", "schema"})
_DATA = frozenset({"args", "arguments", "input"})  # Objects of a tool's caller, in no dialect.
_STREAM = re.compile(r"\ufeff?(data|event|id|retry|):")
_LINE = re.compile(r"\r\n|\n|\r")

_Place = tuple[Any, ...]


def quotable(value: StoredValue) -> set[str]:
    """Return the texts of a value whose quotes in other values are erased too.

    Texts in JSON within a text count, and so do the joined texts of a stream's events. Names and
    texts of fewer than 16 characters are left out.

    Args:
        value: the stored value that is erased.

    Raises:
        LedgerFormatError: the value cannot be read.
    """
    return {text for text, _ in _texts(value) if len(text) >= _QUOTE_CHARS}


def quotes(value: StoredValue, texts: Collection[str]) -> bool:
    """Return True if a text that :func:`quotable` reads in a value contains one of ``texts``.

    Case and blanks count.

    Args:
        value: a stored value.
        texts: the texts, of :func:`quotable`.

    Raises:
        LedgerFormatError: the value cannot be read.
    """
    phrases = [text for text in texts if not _WORD.fullmatch(text)]
    return any(
        text in candidate
        for candidate, has_names in _texts(value)
        for text in (phrases if has_names else texts)
    )


def _texts(value: StoredValue) -> Iterator[tuple[str, bool]]:
    """Yield the texts of a stored value, and of JSON and event streams within texts.

    Each has True if it contains names, because its parts follow.
    """
    pending: list[tuple[str | None, Any]] = [("", value.decode())]
    while pending:
        for _, text in _placed(*pending.pop()):
            inner: Any = None
            is_read = False
            if text.lstrip()[:1] in ("{", "[", '"'):
                inner = _json(text)
                is_read = inner is not None
            elif _STREAM.match(text):
                inner, is_read = _joined(text)
            yield text, is_read
            if inner:
                pending.append((None, inner))


def _json(text: str) -> Any:
    """Return the value of a JSON text; ``None`` if it is none."""
    try:
        return load_exact(text.encode("utf-8", "replace"))
    except ValueError:
        return None


def _placed(name: str | None, value: Any) -> Iterator[tuple[_Place, str]]:
    """Yield the texts of a JSON value that are no names, each with its place.

    Args:
        name: name of the value's member; ``None`` for a person's data, in which only members have
            names.
        value: the value.
    """
    stack: list[tuple[str | None, _Place, Any, bool]] = [(name, (), value, False)]
    while stack:
        owner, indexes, item, is_name = stack.pop()
        if isinstance(item, str):
            if not (is_name and _WORD.fullmatch(item)):
                yield (owner, *indexes), item
        elif isinstance(item, list):
            stack.extend((owner, indexes, one, is_name) for one in reversed(item))
        elif isinstance(item, dict):
            yield from (((), key) for key in item if not _MEMBER.fullmatch(key))
            own = (inner for key, inner in item.items() if key.endswith("index"))
            indexes = (*indexes, *(inner for inner in own if isinstance(inner, int)))
            names = _names_of(owner, item)
            for key, inner in reversed(item.items()):
                is_data = owner is None or (key in _DATA and isinstance(inner, dict))
                stack.append((None if is_data else key, indexes, inner, key in names))


def _names_of(owner: str | None, item: dict[str, Any]) -> Collection[str]:
    """Return the members of an object whose words are names."""
    if owner is None:
        return ()
    kinds = [str(kind).lower() for kind in (owner, item.get("type"), item.get("role"))]
    names = {"required"} if "properties" in item else set[str]()  # It lists members.
    if item.keys() & _NAMED or any("tool" in kind or "function" in kind for kind in kinds):
        names |= {"id", "name"}
    elif item.keys() & {"object", "type"}:
        names.add("id")
    return names | _PROTOCOL


def _joined(stream: str) -> tuple[list[str], bool]:
    """Return the texts of an event stream, those of equal places joined; and True if all its data
    are JSON.

    A provider splits an answer anywhere, so a quoted text is in no single event.
    """
    joined: dict[_Place, list[str]] = defaultdict(list)
    is_read = True
    for line in _LINE.split(stream.removeprefix("\ufeff")):
        field, _, data = line.partition(":")
        if field == "data" and data.strip() != "[DONE]":
            event = _json(data)
            is_read = is_read and event is not None
            for place, text in _placed("", event):
                joined[place].append(text)
    return ["".join(texts) for texts in joined.values()], is_read
