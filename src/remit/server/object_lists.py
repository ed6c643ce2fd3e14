"""Lists of objects at a provider, of which a caller sees its own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode

import orjson

from remit.gateway import owner_of
from remit.kernel.json_splice import elements, spans
from remit.kernel.json_text import JsonTextError, load
from remit.providers.wire import Endpoint
from remit.server.asgi import Scope, Send, reply_json, reply_raw
from remit.server.provider_objects import ProviderDoor

_MAX_PAGES = 100
_PAGE = 20
_LIMIT = re.compile(r"[0-9]{1,9}")


async def list_own(
    door: ProviderDoor,
    endpoint: Endpoint,
    kind: str,
    scope: Scope,
    send: Send,
    shown: Callable[[bytes], bytes] = bytes,
) -> None:
    """Answer with the caller's own objects in a provider's list, in the provider's order.

    At most 100 pages of the provider are read to fill one page of the answer, whose ``has_more``
    and ids of the ends are set anew. With ``before_id`` one page is read. A list with ``next_page``
    is not cut to the limit, and keeps that member. The provider's error, or an answer that is no
    list, is sent unchanged. Nothing is recorded.

    Args:
        door: reads the provider's pages, and knows the owners.
        endpoint: endpoint of the list.
        kind: kind of the objects.
        scope: the ASGI request, whose query limits the page (``limit``; 20 without a valid one) and
            says where it begins.
        send: takes the answer.
        shown: changes the text of each object in the answer.

    Raises:
        HttpError: as :meth:`ProviderDoor.caller`, :meth:`ProviderDoor.provider_for` and
            :meth:`ProviderDoor.fetch`.
        LedgerError: the ledger cannot be read.
    """
    caller = await door.caller(scope)
    provider_id = door.provider_for(endpoint)
    own = await asyncio.to_thread(door.objects.of_owner, kind, owner_of(caller.identity))
    query = _query(scope)
    limit = query.get("limit", "")
    wanted = int(limit) if _LIMIT.fullmatch(limit) else _PAGE
    after = "after_id" if endpoint.dialect == "anthropic" else "after"
    found: list[tuple[str, bytes]] = []
    more, value = True, dict[str, Any]()
    for _ in range(_MAX_PAGES):
        path = f"{endpoint.path}?{urlencode(query)}" if query else endpoint.path
        status, headers, raw = await door.fetch(provider_id, path, caller)
        listed = _listed(raw) if status == 200 else None
        if listed is None:
            await reply_raw(send, status, headers, raw)
            return
        value, items = listed
        found += [(name, text) for name, text in items if own.get(name) == provider_id]
        if "next_page" in value:  # A page of such a list cannot be cut: its mark is its end.
            more, after = bool(value["next_page"]), "page"
            if not more or found:
                break
            query[after] = str(value["next_page"])
            continue
        more = value.get("has_more") is True and bool(items)
        if not more or len(found) >= wanted or "before_id" in query:
            break
        query[after] = items[-1][0]
    listing = {name: orjson.dumps(item) for name, item in value.items() if name != "data"}
    if after != "page":
        more = more or len(found) > wanted
        found = found[:wanted]
        for name, at in (("first_id", 0), ("last_id", -1)):
            listing[name] = orjson.dumps(found[at][0] if found else None)
    if after != "page" or "has_more" in listing:
        listing["has_more"] = b"true" if more and found else b"false"
    listing["data"] = b"[" + b",".join(shown(text) for _, text in found) + b"]"
    body = b",".join(orjson.dumps(name) + b":" + text for name, text in listing.items())
    await reply_json(send, b"{" + body + b"}")


def _query(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))


def _listed(raw: bytes) -> tuple[dict[str, Any], list[tuple[str, bytes]]] | None:
    """Return a list's members and its items as (id, exact text); ``None`` if it is not a list."""
    try:
        value = load(raw)
    except JsonTextError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("data"), list):
        return None
    start, end = spans(raw, ("data",))["data"]
    texts = elements(raw[start:end])
    return value, [
        (item["id"], text)
        for item, text in zip(value["data"], texts, strict=True)
        if isinstance(item, dict) and isinstance(item.get("id"), str)
    ]
