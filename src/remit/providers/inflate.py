"""Decompression of bodies in pieces of bounded size, so that a bomb takes no memory."""

from __future__ import annotations

import zlib
from typing import Any

_PIECE_BYTES = 256 * 1024
_MAX_MEMBERS = 100
"""Largest number of members of a gzip body."""


class Inflate:
    """The decompression of one body in gzip or deflate."""

    def __init__(self) -> None:
        self._window = 0  # The format, as zlib numbers it; 0 before the first bytes.
        self._stream: Any = None
        self._data = b""
        self._full = False
        self._members = 1

    def give(self, data: bytes) -> None:
        """Take a piece of the body. All bytes of the previous piece must have been taken."""
        if not self._window:
            plain = data[0] & 0x0F == zlib.DEFLATED or data[:1] == b"\x1f"
            self._window = zlib.MAX_WBITS | 32 if plain else -zlib.MAX_WBITS
            self._stream = zlib.decompressobj(self._window)
        self._data = data

    def take(self) -> bytes:
        """Return the next decompressed piece; empty if more compressed bytes are needed.

        Raises:
            zlib.error: the bytes are not valid, or gzip holds more than 100 members.
        """
        while self._data or self._full:
            if self._stream.eof:  # A gzip body may have several members.
                self._members += 1
                if self._members > _MAX_MEMBERS:
                    raise zlib.error
                self._stream = zlib.decompressobj(self._window)
            piece: bytes = self._stream.decompress(self._data, _PIECE_BYTES)
            self._data = self._stream.unconsumed_tail or self._stream.unused_data
            # zlib may hold more output than one piece, without further input.
            self._full = len(piece) == _PIECE_BYTES and not self._stream.eof
            if piece:
                return piece
        return b""

    def end(self) -> None:
        """Raise EOFError if the compressed data is cut off."""
        if self._stream is not None and not self._stream.eof:
            raise EOFError
