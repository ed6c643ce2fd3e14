"""Decompression of bodies in pieces of bounded size, so that a bomb takes no memory."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

_PIECE_BYTES = 256 * 1024
_MAX_MEMBERS = 100
"""Largest number of members of a gzip body."""


async def inflated(read: Callable[[], Awaitable[bytes]]) -> AsyncIterator[bytes]:
    """Yield a body in gzip or deflate, decompressed, in pieces of at most 256 KiB.

    Args:
        read: returns the next compressed bytes; empty at the end.

    Raises:
        zlib.error: the bytes are not valid, or gzip holds more than 100 members.
        EOFError: the compressed data is cut off.
    """
    stream: Any = None
    window, members = 0, 1
    while data := await read():
        if stream is None:
            is_wrapped = data[0] & 0x0F == zlib.DEFLATED or data[:1] == b"\x1f"
            window = zlib.MAX_WBITS | 32 if is_wrapped else -zlib.MAX_WBITS
            stream = zlib.decompressobj(window)
        is_full = False
        while data or is_full:
            if stream.eof:  # A gzip body may have several members.
                members += 1
                if members > _MAX_MEMBERS:
                    raise zlib.error
                stream = zlib.decompressobj(window)
            piece: bytes = stream.decompress(data, _PIECE_BYTES)
            data = stream.unconsumed_tail or stream.unused_data
            # zlib may hold more output than one piece, without further input.
            is_full = len(piece) == _PIECE_BYTES and not stream.eof
            if piece:
                yield piece
    if stream is not None and not stream.eof:
        raise EOFError
