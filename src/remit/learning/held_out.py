"""Held-out prompts: no search of prompts reads them, and only they are replayed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remit.kernel.canonical import canonical_json, sha256_hex
from remit.ledger import LedgerReader

__all__ = ["held_out_sides", "is_held_out", "is_whole", "prompt_key"]

_HELD_OUT = 77  # Three in ten of the 256 values of the hash's first byte.


def prompt_key(prompt: Any) -> str:
    """Return the key that equal prompts share: SHA-256 (64 hex digits) of the canonical JSON.

    A single user message with text counts as that text, because a call may give either form.

    Args:
        prompt: a text, or a list of messages.
    """
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], dict):
        (message,) = prompt
        text = message.get("content")
        if message.keys() == {"role", "content"} and message["role"] == "user":
            prompt = text if isinstance(text, str) else prompt
    return sha256_hex(canonical_json(prompt))


def is_held_out(prompt: Any) -> bool:
    """Return True if a prompt is held out, each time that it is asked.

    Three in ten prompts are held out. A prompt is one of them if the first byte of the SHA-256 of
    ``remit held-out`` and the prompt's key, separated by a space, is below 77.

    Args:
        prompt: a text, or a list of messages, without erased parts.
    """
    return int(sha256_hex(f"remit held-out {prompt_key(prompt)}".encode())[:2], 16) < _HELD_OUT


def held_out_sides(ledger: LedgerReader, exchange_ids: Iterable[str]) -> dict[str, bool]:
    """Return for each exchange, in the given order, True if its prompt is held out.

    Missing exchanges, and exchanges with erased content, are left out.
    """
    ids = list(exchange_ids)
    known = {
        entry.id: is_held_out(prompt)
        for entry in ledger.read_many(ids)
        if is_whole(prompt := entry.metadata.get("prompt"))
        and is_whole(entry.metadata.get("response"))
    }
    return {one: known[one] for one in ids if one in known}


def is_whole(content: Any) -> bool:
    """Return True if a prompt or an answer is recorded and no part of it was erased.

    Text and objects that are not empty count as recorded. ``None`` and empty text do not.
    """
    parts = content if isinstance(content, list) else [content]
    return all(isinstance(one, str | dict) and one for one in parts or [""])
