"""gzip in one way of writing it: stored, not compressed.

No two versions of a compressor promise the same bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

__all__ = ["GZIP_MAGIC", "GZIP_PLAIN", "stored_gzip"]

# Constants of gzip (RFC 1952) and deflate (RFC 1951).
GZIP_MAGIC = b"\x1f\x8b"
GZIP_PLAIN = b"\x1f\x8b\x08\x00"
"""How a member begins that is deflated and has none of the optional fields."""

_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # no time, no name, unknown system
_STORED = 65535


def stored_gzip(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces as one gzip member of stored blocks, all full but the last."""
    yield _HEAD
    check, size, buffer = 0, 0, bytearray()
    for piece in pieces:
        check = zlib.crc32(piece, check)
        size += len(piece)
        buffer += piece
        while len(buffer) > _STORED:
            yield _stored(bytes(buffer[:_STORED]), last=False)
            del buffer[:_STORED]
    yield _stored(bytes(buffer), last=True)
    yield check.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little")


def _stored(data: bytes, *, last: bool) -> bytes:
    length = len(data)
    return (
        bytes([last])
        + length.to_bytes(2, "little")
        + (length ^ 0xFFFF).to_bytes(2, "little")
        + data
    )
