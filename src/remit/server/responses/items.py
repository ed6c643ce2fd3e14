"""Items of the Responses API, as their exact recorded JSON text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import parse_qs

from remit.kernel.json_splice import elements, remove_member, set_member, spans
from remit.kernel.json_text import dump, load
from remit.ledger import Erased
from remit.server.refusals import invalid

BYTES_PER_TOKEN = 3
"""Bytes of a token, estimated low so that ordinary text never has more tokens."""

_DEFAULT_LIMIT, _MAX_LIMIT = 20, 100
_MEDIA_BYTES = 12_000  # Size assumed for an image or document; its bytes do not show its tokens.


class ErasedItemsError(Exception):
    """An item was erased, so that a request which needs the item cannot be answered."""


def items_of(text: Any) -> list[bytes]:
    """Return the items of a recorded input as exact JSON texts; empty for ``None``.

    Args:
        text: the input as recorded: a list of JSON texts, or one JSON text (:func:`items_in`).
            Erased content is marked.

    Raises:
        ErasedItemsError: an item was erased.
        JsonTextError: the input is a text that is not a valid JSON list.
    """
    if text is None:
        return []
    if isinstance(text, Erased):
        raise ErasedItemsError
    if isinstance(text, bytes):
        return items_in(text)
    if any(isinstance(item, Erased) for item in text):
        raise ErasedItemsError
    return [item.strip() for item in text]


def items_in(text: bytes) -> list[bytes]:
    """Return the items of an input as sent; a JSON string becomes a user's message.

    Any other JSON has no items. The elements are not parsed.

    Args:
        text: JSON text of a request's ``input``.

    Raises:
        JsonTextError: the text begins as a list and is not a valid one.
    """
    text = text.strip()
    if text[:1] == b"[":
        return [item.strip() for item in elements(text)]
    if text[:1] == b'"':
        return [b'{"type":"message","role":"user","content":%s}' % text]
    return []


def output_of(answer: Any) -> list[bytes]:
    """Return the exact texts of the output items of a recorded ``response`` object.

    The result is empty if the object has no list ``output``.

    Args:
        answer: the exact JSON text of the object as bytes, or the marker of erased content. Any
            other value gives an empty list.

    Raises:
        ErasedItemsError: the object was erased.
        JsonTextError: the text is not valid JSON.
    """
    if isinstance(answer, Erased):
        raise ErasedItemsError
    if not isinstance(answer, bytes) or type(load(answer)) is not dict:
        return []
    place = spans(answer, ("output",)).get("output")
    text = answer[slice(*place)] if place is not None else b""
    return [item.strip() for item in elements(text)] if text[:1] == b"[" else []


def array(items: Iterable[bytes]) -> bytes:
    """Return the text of a JSON list of items. The items are not checked.

    Args:
        items: exact texts of the items.
    """
    return b"[" + b",".join(items) + b"]"


def type_of(item: bytes) -> str:
    """Return an item's type, which may be implied; empty if the item is not an object.

    Without a type, an item with a role is a ``message``, any other an ``item_reference``.

    Args:
        item: exact text of the item.

    Raises:
        JsonTextError: the text is not valid JSON.
    """
    value = load(item)
    if type(value) is not dict:
        return ""
    kind = value.get("type")
    if kind is None:
        kind = "message" if "role" in value else "item_reference"
    return kind if type(kind) is str else ""


def id_of(item: bytes) -> str:
    """Return an item's id; empty if it has none.

    Args:
        item: exact text of the item.

    Raises:
        JsonTextError: the text is not valid JSON.
    """
    value = load(item)
    found = value.get("id") if type(value) is dict else None
    return found if type(found) is str else ""


def portable(items: Sequence[bytes], *, same_provider: bool) -> list[bytes]:
    """Return the items of a turn that may be sent to a provider.

    Another provider than the turn's gets no reasoning items, which may be encrypted, and no ids.
    Without an id, an item is otherwise unchanged; the order is kept.

    Args:
        items: the items of the turn.
        same_provider: True if the provider answered that turn.

    Raises:
        JsonTextError: an item is not valid JSON.
    """
    if same_provider:
        return list(items)
    return [
        remove_member(item, ("id",)) if item[:1] == b"{" else item
        for item in items
        if type_of(item) != "reasoning"
    ]


def fitting(items: Sequence[bytes], room: int) -> list[bytes]:
    """Return the items without the oldest turns, so that the rest fits into ``room`` bytes.

    All items are returned if they fit, or if none is a message of the user. Else the rest begins
    with such a message, so that a tool call stays together with its result. Messages of system and
    developer are never left out, and neither is the last message of the user, even if they do not
    fit.

    Args:
        items: all items, oldest first.
        room: number of bytes; an item with an image or document counts as at most 12,000.

    Raises:
        JsonTextError: an item is not valid JSON.
    """
    sizes = [min(len(item), _MEDIA_BYTES) if b";base64," in item else len(item) for item in items]
    roles = [_role_of(item) for item in items]
    left, start = sum(sizes), 0
    begins = [at for at, role in enumerate(roles) if role == "user"]
    for at in begins:
        kept = sum(
            size
            for size, role in zip(sizes[:at], roles[:at], strict=True)
            if role in ("system", "developer")
        )
        if start < at and left > room:
            left = kept + sum(sizes[at:])
            start = at
    return [
        item for at, item in enumerate(items) if at >= start or roles[at] in ("system", "developer")
    ]


def _role_of(item: bytes) -> str:
    value = load(item)
    role = value.get("role") if type(value) is dict else None
    return role if type(role) is str else ""


def listed(item: bytes, identity: str) -> bytes:
    """Return an item in the form of lists: with an id, and a message with type, status and parts.

    The text of a message becomes a part. An item that is no object is returned unchanged.

    Args:
        item: exact text of the item.
        identity: the id if the item has none.

    Raises:
        JsonTextError: the text is not valid JSON.
    """
    value = load(item)
    if type(value) is not dict:
        return item
    if type(value.get("content")) is str and "role" in value:
        kind = "output_text" if value["role"] == "assistant" else "input_text"
        part: dict[str, Any] = {"type": kind, "text": value["content"]}
        if kind == "output_text":
            part["annotations"] = []
        item = set_member(item, ("content",), dump([part]))
    if "role" in value:
        for name, text in (("status", b'"completed"'), ("type", b'"message"')):
            if name not in value:
                item = set_member(item, (name,), text)
    return item if id_of(item) else set_member(item, ("id",), dump(identity))


def page(items: Sequence[bytes], query: str) -> bytes:
    """Return a page of a list as JSON, by ``limit``, ``order`` and ``after`` of a query.

    By default the page has twenty items, the latest first (``desc``). At most 100 items are on a
    page. The result has ``first_id``, ``last_id`` and ``has_more``; the ids are ``null`` for an
    empty page.

    Args:
        items: all items, oldest first, each with an id.
        query: query of the URL.

    Raises:
        HttpError: 400, a value of the query is invalid.
        JsonTextError: an item is not valid JSON.
    """
    asked = {name: values[-1] for name, values in parse_qs(query).items()}
    order, after = asked.get("order", "desc"), asked.get("after")
    limit = asked.get("limit", str(_DEFAULT_LIMIT))
    if order not in ("asc", "desc"):
        raise invalid("order", "order must be asc or desc.")
    if limit not in map(str, range(1, _MAX_LIMIT + 1)):
        raise invalid("limit", f"limit must be a number from 1 to {_MAX_LIMIT}.")
    inorder = list(items) if order == "asc" else list(reversed(items))
    if after is not None:
        ids = [id_of(item) for item in inorder]
        if after not in ids:
            raise invalid("after", "after must be the id of an item of this list.")
        inorder = inorder[ids.index(after) + 1 :]
    shown, more = inorder[: int(limit)], len(inorder) > int(limit)
    first, last = (id_of(shown[0]), id_of(shown[-1])) if shown else (None, None)
    return b'{"object":"list","data":%s,"first_id":%s,"last_id":%s,"has_more":%s}' % (
        array(shown),
        dump(first),
        dump(last),
        b"true" if more else b"false",
    )
