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

from remit.providers.dialects.arguments import json_text

__all__ = [
    "encrypted_of",
    "google_extra",
    "is_marked",
    "read_encrypted",
    "read_signature",
    "signature_of",
    "thought_seal",
]

_OPENAI = "remit-openai-reasoning:"
_SIGNATURE = "remit-anthropic-signature:"
_REDACTED = "remit-anthropic-redacted:"
_GOOGLE = "remit-google-signature:"
_DETAILS = "remit-openrouter-details:"
_MARK = "remit-"


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


def signature_of(block: Mapping[str, Any]) -> str:
    """Return the ``signature`` of a thinking block for a client of the Messages API."""
    if isinstance(block.get("encrypted"), str):
        return f"{_OPENAI}{block.get('item_id', '')}:{block['encrypted']}"
    if "thought_signature" in block:
        return f"{_GOOGLE}{block['thought_signature']}"
    if "details" in block:
        return _sealed_details(block["details"])
    return str(block.get("signature") or "")


def read_signature(signature: str) -> dict[str, Any]:
    """Return the keys of a thinking block that its ``signature`` stands for."""
    if signature.startswith(_OPENAI):
        item, _, sealed = signature[len(_OPENAI) :].partition(":")
        return {"encrypted": sealed, "item_id": item}
    if signature.startswith(_GOOGLE):
        return {"thought_signature": signature[len(_GOOGLE) :]}
    if signature.startswith(_DETAILS):
        return _read_details(signature)
    return {"signature": signature} if signature else {"raw": True}


def encrypted_of(block: Mapping[str, Any]) -> str | None:
    """Return the ``encrypted_content`` for a client of Responses; None if nothing is sealed."""
    if block["type"] == "redacted_thinking":
        return f"{_REDACTED}{block.get('data', '')}"
    if isinstance(block.get("encrypted"), str):
        return str(block["encrypted"])
    if "thought_signature" in block:
        return f"{_GOOGLE}{block['thought_signature']}"
    if "details" in block:
        return _sealed_details(block["details"])
    signature = block.get("signature")
    return f"{_SIGNATURE}{signature}" if signature else None


def read_encrypted(block: dict[str, Any], sealed: str | None, item_id: Any) -> dict[str, Any]:
    """Return a thinking block with the keys that its ``encrypted_content`` stands for."""
    if not sealed:
        return block
    if sealed.startswith(_REDACTED):
        return {"type": "redacted_thinking", "data": sealed[len(_REDACTED) :]}
    if sealed.startswith(_GOOGLE):
        return {**block, "thought_signature": sealed[len(_GOOGLE) :]}
    if sealed.startswith(_SIGNATURE):
        return {**block, "signature": sealed[len(_SIGNATURE) :]}
    if sealed.startswith(_DETAILS):
        return {**block, **_read_details(sealed)}
    block = {**block, "encrypted": sealed}
    return {**block, "item_id": item_id} if isinstance(item_id, str) else block


def _sealed_details(details: Any) -> str:
    return _DETAILS + base64.b64encode(json_text(details).encode()).decode()


def _read_details(sealed: str) -> dict[str, Any]:
    """Return OpenRouter's ``reasoning_details`` of a seal; without them if it was altered."""
    try:
        details = orjson.loads(base64.b64decode(sealed[len(_DETAILS) :], validate=True))
    except (binascii.Error, ValueError):
        return {"raw": True}
    return {"raw": True, "details": details} if isinstance(details, list) else {"raw": True}
