"""Content values: data outside a record, to which the record commits.

In a record, a content value is represented by a commitment, an HMAC-SHA256 under a random nonce.
The value and its nonce are stored separately from the record. Lawful erasure deletes both and
leaves every hash and proof valid.

The HMAC covers the value's RFC 8785 encoding or, marked ``"form": "exact"``, an unchanged JSON
text. Exact texts are used for bodies from the wire, and for values that RFC 8785 cannot carry.
"""

from __future__ import annotations

import codecs
import hashlib
import hmac
import json
import re
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import orjson
from msgspec import Struct

from remit.kernel.canonical import MAX_SAFE_INTEGER, NotCanonicalError, canonical_json
from remit.kernel.errors import InvalidInputError
from remit.kernel.json_text import load_exact
from remit.ledger.errors import LedgerFormatError

EXACT = "exact"
"""The ``form`` of a commitment over exact JSON text."""

MAX_INFLATED_BYTES = 1 << 28
"""The longest value that is stored compressed, and that is read back: 256 MiB."""

_sha256 = hashlib.sha256
_HEX64 = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES = 65_536  # Longer texts are hashed without a copy.
_MAX_DEPTH = 200  # The greatest nesting of RFC 8785 values.

_INNER, _OUTER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))
_INNER_REST, _OUTER_REST = b"\x36" * 32, b"\x5c" * 32

NO_STEP = "0" * 64
"""c₀ of every message list: 32 zero bytes, in hex."""


class ContentText(str):
    """A text marked as content; in every other respect a ``str``.

    The ledger stores it apart from the record, so that it can be erased. Operations on it, such as
    slicing, return an unmarked ``str``.
    """

    __slots__ = ()


class Content(Struct, eq=False, gc=False):
    """A JSON value marked as content, to be stored apart from the record; see :func:`content`.

    Attributes:
        value: the value.
        encoded: the known canonical encoding of the value, or of each message of a message list, as
            bytes or as :class:`EncodedValue`; ``None`` if unknown. :meth:`exact` and
            :meth:`exact_list` give the JSON text itself in place of the value.
        form: ``exact`` for a value given as text; else empty.
    """

    value: Any
    encoded: bytes | EncodedValue | Sequence[bytes | EncodedValue] | None = None
    form: str = ""

    @classmethod
    def exact(cls, text: bytes) -> Self:
        """Return a value given as its JSON text, which is recorded byte for byte.

        The caller guarantees that ``text`` is valid JSON in UTF-8; it is not parsed. Surrounding
        white space, escapes of lone surrogates, any number and duplicate keys are kept. A text that
        is empty, not UTF-8 or has a NUL character is refused with InvalidInputError on write.
        """
        return cls(None, bytes(text), EXACT)

    @classmethod
    def exact_list(cls, texts: Sequence[bytes | EncodedValue]) -> Self:
        """Return a list given as the JSON text, or the encoded value, of each element.

        The commitment has the form of a message list. An empty list becomes the exact text ``[]``.
        The texts are not parsed; a bad one is refused on write, as by :meth:`exact`.
        """
        return cls(None, list(texts), EXACT) if texts else cls.exact(b"[]")

    def __repr__(self) -> str:
        return f"Content({self.form or type(self.value).__name__})"


def content(value: Any) -> Any:
    """Return ``value`` marked as content: personal, large, or derived from such data.

    Content is stored apart from the record, which only commits to it, so it can be erased. Use the
    mark for a metadata value whose key is not a configured content key, and for a ``reason`` that
    quotes a user or a provider. A text stays a ``str``; any other value becomes a :class:`Content`.
    The value is not checked here. ``None``, too, becomes content.
    """
    return ContentText(value) if isinstance(value, str) else Content(value)


@dataclass(frozen=True, slots=True)
class Erased:
    """The immutable marker of a reader for missing content; ``str`` gives a notice.

    Attributes:
        erasure_id: the ``ERASURE`` entry that accounts for it; ``None``, a fault, if none does.
    """

    erasure_id: str | None = None

    def __repr__(self) -> str:
        return f"[content erased under {self.erasure_id}]" if self.erasure_id else "[missing]"


ExactText = bytes | list[bytes | Erased] | Erased
"""Content as bytes: one value, or each message of a list."""


class EncodedValue(Struct, frozen=True, gc=False):
    """A content value ready to be stored; immutable.

    Attributes:
        encoded: the bytes of the commitment: the JCS encoding, or the exact JSON text.
        digest: SHA-256 of these bytes, which finds an equal value again.
        is_exact: True for an exact JSON text.
    """

    encoded: bytes
    digest: bytes
    is_exact: bool = False

    @classmethod
    def of(cls, encoded: bytes, is_exact: bool = False) -> EncodedValue:
        """Return a value with its SHA-256; the bytes are not checked.

        Args:
            encoded: the JCS encoding, or the exact JSON text.
            is_exact: True for an exact JSON text.
        """
        return cls(encoded, _sha256(encoded).digest(), is_exact)


Encoded = tuple[EncodedValue | list[EncodedValue], str]
"""An encoded content value, or one for each message of a list; and the form."""


class StoredValue(NamedTuple):
    """A content value in the form of its row, from :meth:`encode` or the table; immutable.

    Attributes:
        codec: form of the value: ``text``, ``json`` or ``exact``; with ``+zlib`` if compressed. A
            ``text`` is stored without quotes and escapes.
        value: the text, or the compressed bytes.
    """

    codec: str
    value: str | bytes

    @classmethod
    def encode(cls, value: EncodedValue, compress_above: int) -> StoredValue:
        """Return the stored form of a value, compressed if longer than ``compress_above`` bytes.

        A JSON string without NUL becomes the codec ``text``, other JSON ``json``, an exact text
        ``exact``; ``+zlib`` follows if compressed.

        Args:
            value: the value.
            compress_above: the size in bytes. A value that compression does not shorten, or above
                :data:`MAX_INFLATED_BYTES`, stays as it is.

        Raises:
            InvalidInputError: an exact text is empty, holds a NUL character, or is not UTF-8.
        """
        codec, data = "json", value.encoded
        if value.is_exact:
            codec = EXACT
            if not data or b"\x00" in data:
                raise InvalidInputError("An exact JSON text is empty, or contains a NUL character.")
        elif data[:1] == b'"' and b"\\u0000" not in data:
            codec = "text"
        plain: bytes | memoryview = data
        if codec == "text":  # A text without escapes is its own encoding between the quotes.
            is_plain = b"\\" not in data
            plain = memoryview(data)[1:-1] if is_plain else orjson.loads(data).encode()
        try:
            if compress_above < len(plain) <= MAX_INFLATED_BYTES:
                _check_utf8(plain)
                packed = zlib.compress(plain, 1)
                if len(packed) < len(plain):
                    return cls(f"{codec}+zlib", packed)
            return cls(codec, str(plain, "utf-8"))
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"An exact JSON text is not UTF-8: {error}.") from error

    def decode(self) -> Any:
        """Return the value as Python objects; raise LedgerFormatError if the row cannot be read.

        Unreadable are an unknown codec, damaged bytes, invalid JSON, and more than 256 MiB.
        """
        try:
            data = self._unpacked()
            if self._is_text:
                return data.decode()
            return load_exact(data) if self.is_exact else orjson.loads(data)
        except ValueError as error:
            raise self._unreadable(error) from error

    def encoded(self) -> bytes:
        """Return the bytes that the commitment covers.

        Stored JSON is not parsed and encoded again, which would forgive white space and duplicate
        keys. A stored text is encoded as a JSON string.

        Raises:
            LedgerFormatError: the row cannot be read.
        """
        try:
            data = self._unpacked()
            return orjson.dumps(data.decode()) if self._is_text else data
        except ValueError as error:
            raise self._unreadable(error) from error

    def is_of(self, encoded: bytes) -> bool:
        r"""Return True if the codec is the right one for an RFC 8785 encoding.

        An encoding that begins with a quote is not parsed: without ``\u0000`` it must be stored as
        ``text``, with it as ``json``. Any other must be JSON, stored as ``json``, that is the same
        bytes when parsed and written again. Compression is ignored; ``exact`` counts as ``json``.

        Args:
            encoded: the encoding of the value.
        """
        if self._is_text or encoded[:1] == b'"':
            return self._is_text == (encoded[:1] == b'"' and b"\\u0000" not in encoded)
        try:
            value = orjson.loads(encoded)
            return (
                orjson.dumps(value, option=orjson.OPT_SORT_KEYS) == encoded
                or canonical_json(value) == encoded
            )
        except (ValueError, NotCanonicalError):
            return False

    @property
    def is_packed(self) -> bool:
        """True if the value is stored compressed, as bytes."""
        return self.codec.endswith("+zlib")

    @property
    def is_exact(self) -> bool:
        """True if the value was stored as an exact JSON text."""
        return self.codec.startswith(EXACT)

    @property
    def _is_text(self) -> bool:
        return self.codec.startswith("text")

    def _unpacked(self) -> bytes:
        data = self.value.encode() if isinstance(self.value, str) else bytes(self.value)
        if self.codec in ("text", "json", "exact"):
            return data
        if self.codec not in ("text+zlib", "json+zlib", "exact+zlib"):
            raise ValueError("unknown codec")
        packed = zlib.decompressobj()
        try:
            plain = packed.decompress(data, MAX_INFLATED_BYTES + 1)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if len(plain) > MAX_INFLATED_BYTES:
            raise ValueError(f"it expands to more than {MAX_INFLATED_BYTES:,} bytes")
        if not packed.eof or packed.unused_data:
            raise ValueError("it is cut off, or has trailing bytes")
        return plain

    def _unreadable(self, error: Exception) -> LedgerFormatError:
        return LedgerFormatError(
            f"A stored content value (codec {self.codec!r}) cannot be read: {error}."
        )


def _check_utf8(data: bytes | memoryview) -> None:
    """Raise UnicodeDecodeError unless the bytes are UTF-8. A long text is not decoded at once."""
    decode = codecs.getincrementaldecoder("utf-8")().decode
    for at in range(0, len(data), _CHUNK_BYTES):
        decode(data[at : at + _CHUNK_BYTES])
    decode(b"", True)


def commit(nonce: bytes, encoded: bytes) -> str:
    """Return the commitment to a value: the HMAC-SHA256 of its encoding, in 64 hex digits.

    Args:
        nonce: the key of the HMAC, 32 random bytes; the length is not checked.
        encoded: the bytes that the commitment covers.
    """
    if len(nonce) != 32 or len(encoded) > _CHUNK_BYTES:
        return hmac.digest(nonce, encoded, "sha256").hex()
    # RFC 2104 for a key of half a block: OpenSSL's takes half as long again for a short text.
    inner = _sha256(nonce.translate(_INNER) + _INNER_REST + encoded).digest()
    return _sha256(nonce.translate(_OUTER) + _OUTER_REST + inner).hexdigest()


def next_step(parent: str, commitment: str) -> str:
    """Return cᵢ = SHA-256(cᵢ₋₁ ‖ commitmentᵢ), over the raw 32 bytes of each; all in hex.

    Args:
        parent: the hash of the list so far, 64 hex digits.
        commitment: commitment of the next message, 64 hex digits.

    Raises:
        ValueError: an argument is not hexadecimal. Lengths are not checked.
    """
    return hashlib.sha256(bytes.fromhex(parent) + bytes.fromhex(commitment)).hexdigest()


def is_message_list(value: Any) -> bool:
    """Return True if a content value is committed to as a list of messages.

    Such a value is a non-empty list or tuple of dicts that each have a text under ``role``.
    """
    if not isinstance(value, (list, tuple)):
        return False
    for item in value:
        if not (isinstance(item, dict) and isinstance(item.get("role"), str)):
            return False
    return len(value) > 0


def encode_content(content: Content) -> Encoded:
    """Return the encoded form of a content value.

    A value that RFC 8785 cannot carry is encoded as its exact JSON text; in a list of messages,
    each message by itself. An encoding that the content brings along is returned unchecked.

    Args:
        content: the value, or its known encoding.

    Returns:
        One encoded value, or one for each message of a list; and the form: ``exact`` if any part is
        an exact text, else empty.

    Raises:
        NotCanonicalError: the value has no JSON text (NaN, a key that is no text, deep nesting).
    """
    value, known, form = content.value, content.encoded, content.form
    if isinstance(known, EncodedValue):
        return known, form
    if form == EXACT:
        if isinstance(known, bytes):
            return EncodedValue(known, _sha256(known).digest(), True), form
        texts: list[EncodedValue] = []
        for text in known or ():
            if not isinstance(text, EncodedValue):
                text = EncodedValue(text, _sha256(text).digest(), True)
            texts.append(text)
        return texts, form
    if type(value) is not str and is_message_list(value):
        if isinstance(known, list):
            return [EncodedValue.of(part) for part in known], ""
        parts = [_encode(item) for item in value]
        return parts, EXACT if any(part.is_exact for part in parts) else ""
    part = EncodedValue.of(known) if isinstance(known, bytes) else _encode(value)
    return part, EXACT if part.is_exact else ""


def _encode(value: Any) -> EncodedValue:
    try:
        encoded = orjson.dumps(value) if type(value) is str else canonical_json(value)
        return EncodedValue(encoded, _sha256(encoded).digest())
    except (TypeError, NotCanonicalError):  # the former of orjson: a lone surrogate
        if (text := _json_text(value)) is None:
            raise
        # UTF-8 refuses only lone surrogates; backslashreplace writes JSON's escape for them.
        return EncodedValue.of(text.encode("utf-8", "backslashreplace"), True)


def _json_text(value: Any) -> str | None:
    """Return the JSON text of a value that RFC 8785 cannot carry; ``None`` if it has none."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                if not all(isinstance(key, str) for key in item):
                    return None
                below.extend(item.values())
            elif isinstance(item, (list, tuple)):
                below.extend(item)
        if not below:
            break
        level = below
    else:
        return None
    try:
        return json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
        )
    except (TypeError, ValueError):  # a foreign type, NaN, more digits than Python writes
        return None


def is_canonical(encoded: bytes) -> bool:
    """Return True if a JSON text is its own RFC 8785 encoding.

    Args:
        encoded: the JSON text in UTF-8; invalid JSON gives False.
    """
    try:
        return canonical_json(orjson.loads(encoded)) == encoded
    except (ValueError, NotCanonicalError):
        return False


def is_given_exact(commitment: str, items: Collection[dict[str, Any]], is_canonical: bool) -> bool:
    """Return True if an export gives a value as ``json``, not as ``jcs``.

    True if a commitment of the record has form ``exact``. A value that the record does not name
    itself, such as a message of a list, is given exact unless it is an RFC 8785 encoding.

    Args:
        commitment: the value's commitment, 64 hex digits.
        items: the commitment objects in the record that shows it first.
        is_canonical: True if the value is an RFC 8785 encoding.
    """
    own = [item for item in items if item.get("$content") == f"hmac-sha256:{commitment}"]
    return any(item.get("form") == EXACT for item in own) if own else not is_canonical


def is_commitment(value: Any) -> bool:
    """Return True if a value is a well-formed commitment object; other objects and types give
    False.

    ``$content`` (``hmac-sha256:`` and 64 hex digits) goes with a positive ``bytes``, ``$messages``
    (64 hex digits) with a positive ``count`` below 2**53; ``form`` may be ``exact``, no more.
    """
    if not isinstance(value, dict):
        return False
    digits: Any
    if "$content" in value:
        name, number = value["$content"], value.get("bytes")
        digits = name[12:] if isinstance(name, str) and name.startswith("hmac-sha256:") else ""
    else:
        digits, number = value.get("$messages"), value.get("count")
    return (
        (len(value) == 2 or (len(value) == 3 and value.get("form") == EXACT))
        and isinstance(digits, str)
        and _HEX64.fullmatch(digits) is not None
        and type(number) is int
        and 0 < number <= MAX_SAFE_INTEGER
    )


def commitments_in(value: Any) -> list[dict[str, Any]]:
    """Return every commitment object in ``value``, itself included, in order of appearance.

    An object with ``$content`` or ``$messages`` counts. Such objects are not checked and not
    searched.

    Args:
        value: parsed JSON.
    """
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
    """Return a copy of ``value`` with each commitment object replaced, at any depth.

    A commitment object has a member ``$content`` or ``$messages``: it stands for content that is
    stored apart. ``value`` is not changed, and no object or list of it is shared.

    Args:
        value: a JSON value, such as the metadata of a record.
        resolve: returns what takes the place of a commitment object; may return any value, which is
            not searched again. Its errors are raised.
    """
    if isinstance(value, dict):
        if "$content" in value or "$messages" in value:
            return resolve(value)
        return {key: fill(item, resolve) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, resolve) for item in value]
    return value
