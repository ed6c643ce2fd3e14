"""Content values: what a record commits to without containing it (SPEC 3.4).

In a record a content value is represented by a commitment, an HMAC-SHA256 under a random nonce. The
value and its nonce are kept beside the record, where lawful erasure can delete both and leave
every hash and proof valid.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from remit.kernel.canonical import canonical_json
from remit.ledger.errors import LedgerFormatError

_HEX64 = re.compile(r"[0-9a-f]{64}")

NO_STEP = "0" * 64
"""c₀ of every message list: 32 zero bytes, in hex."""


class ContentText(str):
    """A text marked as content. It is a ``str`` in every other respect."""

    __slots__ = ()


class Content:
    """Any JSON value marked as content.

    ``encoded`` may hold the canonical encoding of the value, or of each message of a message
    list, when the caller has it already.
    """

    __slots__ = ("encoded", "value")

    def __init__(self, value: Any, encoded: bytes | list[bytes] | None = None) -> None:
        self.value = value
        self.encoded = encoded

    def __repr__(self) -> str:
        return f"Content({type(self.value).__name__})"


def content(value: Any) -> Any:
    """Mark ``value`` as content: personal, large, or derived from something that is.

    Use it for a metadata value whose key is not one of the configured content keys, and for
    a ``reason`` that quotes a user or a provider. A text stays a ``str``.
    """
    return ContentText(value) if isinstance(value, str) else Content(value)


@dataclass(frozen=True, slots=True)
class Erased:
    """Stands where content was.

    Attributes:
        erasure_id: the ``ERASURE`` entry that says who and why; ``None`` when the content is
            gone and no entry says so, which verification reports as a failure.
    """

    erasure_id: str | None = None

    def __str__(self) -> str:
        return f"[content erased under {self.erasure_id}]" if self.erasure_id else "[missing]"


@dataclass(frozen=True, slots=True)
class EncodedValue:
    """A content value ready to be stored: its JCS bytes and the digest that finds it."""

    encoded: bytes
    digest: bytes

    @classmethod
    def of(cls, encoded: bytes) -> EncodedValue:
        """From a value's JCS encoding."""
        return cls(encoded, hashlib.sha256(encoded).digest())


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A row's way of keeping a value: ``text`` or ``json``, with ``+zlib`` when large."""

    codec: str
    value: str | bytes

    @classmethod
    def encode(cls, encoded: bytes, compress_above: int) -> StoredValue:
        """From a value's JCS encoding; compressed when longer than ``compress_above`` bytes."""
        codec, text = "json", encoded
        if encoded[:1] == b'"' and b"\\u0000" not in encoded:
            codec, text = "text", orjson.loads(encoded).encode()
        if len(text) > compress_above:
            packed = zlib.compress(text, 1)
            if len(packed) < len(text):
                return cls(f"{codec}+zlib", packed)
        return cls(codec, text.decode())

    def decode(self) -> Any:
        """The value; raises :class:`LedgerFormatError` where the row cannot be read."""
        try:
            data = self._unpacked()
            return data.decode() if self._is_text else orjson.loads(data)
        except ValueError as error:
            raise self._unreadable(error) from error

    def encoded(self) -> bytes:
        """The bytes that the commitment covers, as they are stored: never read and encoded again,
        which would forgive white space and duplicate keys. Raises as :meth:`decode`."""
        try:
            data = self._unpacked()
            return orjson.dumps(data.decode()) if self._is_text else data
        except ValueError as error:
            raise self._unreadable(error) from error

    @property
    def _is_text(self) -> bool:
        return self.codec.startswith("text")

    def _unpacked(self) -> bytes:
        data = self.value.encode() if isinstance(self.value, str) else bytes(self.value)
        if self.codec in ("text", "json"):
            return data
        if self.codec not in ("text+zlib", "json+zlib"):
            raise ValueError("unknown codec")
        try:
            return zlib.decompress(data)
        except zlib.error as error:
            raise ValueError(str(error)) from error

    def _unreadable(self, error: ValueError) -> LedgerFormatError:
        return LedgerFormatError(
            f"A stored content value (codec {self.codec!r}) cannot be read: {error}."
        )


def commit(nonce: bytes, encoded: bytes) -> str:
    """HMAC-SHA256 of a value's JCS encoding under its nonce, as 64 hex digits."""
    return hmac.digest(nonce, encoded, "sha256").hex()


def next_step(parent: str, commitment: str) -> str:
    """cᵢ = SHA-256(cᵢ₋₁ ‖ commitmentᵢ), over the raw 32 bytes of each; hex in, hex out."""
    return hashlib.sha256(bytes.fromhex(parent) + bytes.fromhex(commitment)).hexdigest()


def is_message_list(value: Any) -> bool:
    """Whether a content value is committed to as a list of messages.

    It is when it is a non-empty list of objects that each have a text under ``role``.
    """
    return (
        isinstance(value, (list, tuple))
        and len(value) > 0
        and all(isinstance(item, dict) and isinstance(item.get("role"), str) for item in value)
    )


def encode_content(
    value: Any, known: bytes | list[bytes] | None
) -> list[EncodedValue] | EncodedValue:
    """The encoding of a content value: one, or one for each message of a list."""
    if is_message_list(value):
        parts = known if isinstance(known, list) else [canonical_json(item) for item in value]
        return [EncodedValue.of(part) for part in parts]
    return EncodedValue.of(known if isinstance(known, bytes) else canonical_json(value))


def texts_in(value: Any) -> Iterator[str]:
    """Every text in a content value, in order; object keys are none."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack.extend(reversed(item.values()))
        elif isinstance(item, list):
            stack.extend(reversed(item))


def is_commitment(value: Any) -> bool:
    """Whether a value is a well-formed commitment object."""
    if not isinstance(value, dict):
        return False
    if value.keys() == {"$content", "bytes"}:
        name, number = value["$content"], value["bytes"]
        digits = name[12:] if isinstance(name, str) and name.startswith("hmac-sha256:") else ""
    elif value.keys() == {"$messages", "count"}:
        digits, number = value["$messages"], value["count"]
    else:
        return False
    return (
        isinstance(digits, str)
        and _HEX64.fullmatch(digits) is not None
        and type(number) is int
        and number > 0
    )


def commitments_in(value: Any) -> list[dict[str, Any]]:
    """Every commitment object below ``value``, in order of appearance."""
    found: list[dict[str, Any]] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if "$content" in item or "$messages" in item:
                found.append(item)
            else:
                stack.extend(reversed(item.values()))
        elif isinstance(item, list):
            stack.extend(reversed(item))
    return found


def fill(value: Any, resolve: Callable[[dict[str, Any]], Any]) -> Any:
    """``value`` with every commitment object replaced by what ``resolve`` gives for it."""
    if isinstance(value, dict):
        if "$content" in value or "$messages" in value:
            return resolve(value)
        return {key: fill(item, resolve) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, resolve) for item in value]
    return value
