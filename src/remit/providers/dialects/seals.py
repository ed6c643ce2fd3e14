"""What one provider sealed, carried through a client of another dialect and back.

A provider takes back only its own signatures and encrypted reasoning. Towards a client they are
marked with whose they are; what comes back without the mark is the dialect's own provider's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["encrypted_of", "read_encrypted", "read_signature", "signature_of"]

_OPENAI = "remit-openai-reasoning:"
_SIGNATURE = "remit-anthropic-signature:"
_REDACTED = "remit-anthropic-redacted:"


def signature_of(block: Mapping[str, Any]) -> str:
    """What a client of the Messages API keeps as the ``signature`` of a thinking block."""
    if isinstance(block.get("encrypted"), str):
        return f"{_OPENAI}{block.get('item_id', '')}:{block['encrypted']}"
    return str(block.get("signature") or "")


def read_signature(signature: str) -> dict[str, Any]:
    """The keys of a thinking block that its ``signature`` stands for."""
    if signature.startswith(_OPENAI):
        item, _, sealed = signature[len(_OPENAI) :].partition(":")
        return {"encrypted": sealed, "item_id": item}
    return {"signature": signature} if signature else {"raw": True}


def encrypted_of(block: Mapping[str, Any]) -> str | None:
    """What a client of Responses keeps as ``encrypted_content``; ``None`` for nothing sealed."""
    if block["type"] == "redacted_thinking":
        return f"{_REDACTED}{block.get('data', '')}"
    if isinstance(block.get("encrypted"), str):
        return str(block["encrypted"])
    signature = block.get("signature")
    return f"{_SIGNATURE}{signature}" if signature else None


def read_encrypted(block: dict[str, Any], sealed: str | None, item_id: Any) -> dict[str, Any]:
    """``block`` (thinking) with what its ``encrypted_content`` stands for."""
    if not sealed:
        return block
    if sealed.startswith(_REDACTED):
        return {"type": "redacted_thinking", "data": sealed[len(_REDACTED) :]}
    if sealed.startswith(_SIGNATURE):
        return {**block, "signature": sealed[len(_SIGNATURE) :]}
    block = {**block, "encrypted": sealed}
    return {**block, "item_id": item_id} if isinstance(item_id, str) else block
