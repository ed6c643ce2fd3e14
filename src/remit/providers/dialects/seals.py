"""Signatures and encrypted reasoning of one provider, carried through a client of another dialect.

A provider accepts only its own. They are marked with their owner for the client; a value that comes
back without a mark belongs to the provider of the client's dialect.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import orjson

from remit.providers.dialects.tool_calls import json_text

_MARKS = {
    "data": "remit-anthropic-redacted:",
    "encrypted": "remit-openai-reasoning:",
    "thought_signature": "remit-google-signature:",
    "details": "remit-openrouter-details:",
    "signature": "remit-anthropic-signature:",
}
"""The member of a thinking block that holds a seal → the mark for clients of other dialects."""
_MARK = "remit-"
_MARK_IN_BASE64 = "cmVtaXQt"


def is_marked(seal: Any) -> bool:
    """Return True if Remit marked a ``signature`` or ``encrypted_content`` as another's."""
    return isinstance(seal, str) and seal.startswith(_MARK)


def thought_seal(call: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the block that carries the signature of a tool call of Gemini's, if it has one.

    The block stands before the call. Gemini 3 refuses a conversation whose calls lost theirs
    (https://ai.google.dev/gemini-api/docs/thought-signatures).
    """
    extra = call.get("extra_content")
    google = extra.get("google") if isinstance(extra, dict) else None
    signature = google.get("thought_signature") if isinstance(google, dict) else None
    if not isinstance(signature, str) or not signature:
        return None
    return {"type": "thinking", "thinking": "", "thought_signature": signature}


def google_extra(signature: str) -> dict[str, Any]:
    """Return the ``extra_content`` of a tool call with Gemini's signature."""
    return {"google": {"thought_signature": signature}}


def seal_of(block: Mapping[str, Any], own: str) -> str | None:
    """Return the seal of a thinking block for a client; None if nothing is sealed.

    Args:
        block: the block.
        own: the member whose seals belong to providers of the client's dialect: ``signature`` or
            ``encrypted``. These are not marked.
    """
    for name, mark in _MARKS.items():
        if not (value := block.get(name)):
            continue
        if name == own:
            return str(value)
        if name == "encrypted":
            value = f"{block.get('item_id', '')}:{value}"
        elif name == "details":
            value = base64.b64encode(json_text(value).encode()).decode()
        return f"{mark}{value}"
    return None


def read_seal(seal: str, own: str) -> dict[str, Any]:
    """Return the members of a thinking block that a seal stands for; empty for no seal.

    Args:
        seal: the seal, as the client sent it.
        own: as for :func:`seal_of`.
    """
    for name, mark in _MARKS.items():
        if name == own or not seal.startswith(mark):
            continue
        value = seal[len(mark) :]
        if name == "encrypted":
            item, _, value = value.partition(":")
            return {"encrypted": value, "item_id": item}
        if name == "details":
            return _read_details(value)
        return {"type": "redacted_thinking", "data": value} if name == "data" else {name: value}
    return {own: seal} if seal else {}


def gemini_seal(block: Mapping[str, Any]) -> dict[str, str]:
    """Return ``thoughtSignature`` of a part for a client of Gemini's, if the block is sealed.

    The field is base64, so the marked seal of another provider is encoded.
    """
    seal = seal_of(block, "thought_signature")
    if seal is None:
        return {}
    marked = is_marked(seal)
    return {"thoughtSignature": base64.b64encode(seal.encode()).decode() if marked else seal}


def read_gemini_seal(seal: str) -> dict[str, Any]:
    """Return the members of a thinking block that a ``thoughtSignature`` stands for.

    Clients write base64 in either of its alphabets.
    """
    plain = seal.replace("-", "+").replace("_", "/")
    if not plain.startswith(_MARK_IN_BASE64):
        return read_seal(seal, "thought_signature")
    try:
        marked = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return {}
    return read_seal(marked, "thought_signature") if is_marked(marked) else {}


def is_marked_gemini(seal: Any) -> bool:
    """Return True if Remit marked a ``thoughtSignature`` as another provider's."""
    return isinstance(seal, str) and seal.startswith(_MARK_IN_BASE64)


def _read_details(sealed: str) -> dict[str, Any]:
    """Return OpenRouter's ``reasoning_details`` of a seal; without them if it was altered."""
    try:
        details = orjson.loads(base64.b64decode(sealed, validate=True))
    except (binascii.Error, ValueError):
        return {"raw": True}
    return {"raw": True, "details": details} if isinstance(details, list) else {"raw": True}
