"""Compressed bodies, decompressed in pieces of bounded size: a bomb takes no memory."""

from __future__ import annotations

import zlib
from typing import Any

_PIECE_BYTES = 256 * 1024
_MEMBERS = 100  # of one gzip body


class Inflate:
    """Decompresses one body in gzip or deflate."""

    def __init__(self) -> None:
        self._window = 0  # zlib's name for the format; 0: nothing has come
        self._stream: Any = None
        self._data = b""
        self._full = False
        self._members = 1

    def give(self, data: bytes) -> None:
        """Take a piece of the body; all of the one before must have been taken."""
        if not self._window:
            plain = data[0] & 0x0F == zlib.DEFLATED or data[:1] == b"\x1f"
            self._window = zlib.MAX_WBITS | 32 if plain else -zlib.MAX_WBITS
            self._stream = zlib.decompressobj(self._window)
        self._data = data

    def take(self) -> bytes:
        """The next decompressed piece; empty where more has to come."""
        while self._data or self._full:
            if self._stream.eof:  # gzip may hold several members
                self._members += 1
                if self._members > _MEMBERS:
                    raise zlib.error
                self._stream = zlib.decompressobj(self._window)
            piece: bytes = self._stream.decompress(self._data, _PIECE_BYTES)
            self._data = self._stream.unconsumed_tail or self._stream.unused_data
            # zlib may hold more than it was let to give, with nothing left to feed it.
            self._full = len(piece) == _PIECE_BYTES and not self._stream.eof
            if piece:
                return piece
        return b""

    def end(self) -> None:
        """Raises :class:`EOFError` where the compressed data is cut."""
        if self._stream is not None and not self._stream.eof:
            raise EOFError
