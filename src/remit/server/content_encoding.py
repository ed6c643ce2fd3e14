"""Decoding of request bodies in the content codings gzip, deflate, br and zstd (RFC 9110, 8.4).

A body expands piece by piece. Each piece is checked against the largest allowed body and the memory
of the process before the next one is made, so a compressed bomb takes no memory.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping

import brotli

from remit.providers import inflated
from remit.server.asgi import Receive, read_body, too_long
from remit.server.in_flight_limits import Share
from remit.server.refusals import HttpError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_CODINGS = ("gzip", "x-gzip", "deflate", "br", "zstd")
_PIECE_BYTES = 256 * 1024
_ZSTD_OPTIONS: dict[int, int] = {
    zstd.DecompressionParameter.window_log_max: 23
}  # 8 MB, the limit of RFC 9659
_DECODING_ERRORS = (zlib.error, brotli.error, zstd.ZstdError, EOFError)


def coding_of(header: bytes | None) -> str:
    """Return the content coding that a ``content-encoding`` header names; empty for none.

    Case and blanks do not matter; each ``identity`` of the list counts as none.

    Args:
        header: value of the header; ``None`` if it is missing.

    Raises:
        HttpError: 415, Remit does not decode this coding, or the header names several.
    """
    listed = [one.strip() for one in (header or b"").decode("latin-1").lower().split(",")]
    coding = ", ".join(one for one in listed if one not in ("", "identity"))
    if coding and coding not in _CODINGS:
        named = f"The content-encoding {coding[:40]!r} is not supported"
        said = f"{named}; send gzip, deflate, br, zstd or none."
        accepted = [(b"accept-encoding", b"gzip, deflate, br, zstd")]
        raise HttpError(415, "unsupported_encoding", said, headers=accepted, close=True)
    return coding


async def decoded(body: bytes, coding: str, most: int, share: Share | None) -> bytes:
    """Return the decoded bytes of a body, decoded in pieces between which the event loop runs.

    Args:
        body: the whole body as it was received.
        coding: a result of :func:`coding_of`; if empty, the body is returned unchanged.
        most: the largest allowed decoded size, in bytes.
        share: counts the decoded bytes until the caller ends it; ``None`` to count none.

    Raises:
        HttpError: 400, the body is not valid in its coding or is cut; 413, the decoded body is too
            long; 429 or 503, there is no room for it now.
    """
    if not coding:
        return body
    pieces, size = list[bytes](), 0
    try:
        async for piece in _decoded_pieces(body, coding):
            size += len(piece)
            if size > most:
                raise too_long(most)
            if share is not None:
                share.take(len(piece), small=0 if pieces else _PIECE_BYTES)
            pieces.append(piece)
            await asyncio.sleep(0)  # A large body does not hold the event loop.
    except _DECODING_ERRORS as error:
        said = f"The body is not valid {coding}; send it whole, or without content-encoding."
        raise HttpError(400, "invalid_request", said, close=True) from error
    return b"".join(pieces)


async def read_decoded(
    receive: Receive,
    headers: Mapping[bytes, bytes],
    most: int,
    timeout_s: float,
    share: Share | None,
) -> bytes:
    """Return the whole body of a request, decoded.

    The coding is checked before anything is read. A body without a coding is returned as it came.

    Args:
        receive: the ASGI function of the request.
        headers: headers of the request, names in lower case.
        most: the largest allowed size before and after decoding, in bytes.
        timeout_s: the longest wait for the first part, and then for all others together, in
            seconds.
        share: counts the bytes until the caller ends it; ``None`` to count none.

    Raises:
        HttpError: 415, the coding is not supported; 413, the body is too long; 408, it did not
            arrive in time; 400, it is not valid in its coding; 429 or 503, there is no room for it;
            499, the client disconnected.
    """
    coding = coding_of(headers.get(b"content-encoding"))
    body = await read_body(receive, headers.get(b"content-length"), most, timeout_s, share)
    return await decoded(body, coding, most, share)


async def _decoded_pieces(body: bytes, coding: str) -> AsyncIterator[bytes]:
    """Yield the decoded body in pieces of at most 256 KiB.

    Raises:
        EOFError: the body is cut. The library of the coding raises its own error for wrong bytes.
    """
    if coding in ("br", "zstd"):
        for piece in (_from_brotli if coding == "br" else _from_zstd)(body):
            yield piece
        return
    unread = [body] if body else []

    async def read() -> bytes:
        return unread.pop() if unread else b""

    async for piece in inflated(read):
        yield piece


def _from_brotli(body: bytes) -> Iterator[bytes]:
    stream = brotli.Decompressor()
    piece = stream.process(body, output_buffer_limit=_PIECE_BYTES)
    while piece:
        yield piece
        piece = stream.process(b"", output_buffer_limit=_PIECE_BYTES)
    if not stream.is_finished():
        raise EOFError


def _from_zstd(body: bytes) -> Iterator[bytes]:
    while body:
        frame = zstd.ZstdDecompressor(options=_ZSTD_OPTIONS)
        yield frame.decompress(body, _PIECE_BYTES)
        while not frame.eof:
            if frame.needs_input:
                raise EOFError
            yield frame.decompress(b"", _PIECE_BYTES)
        body = frame.unused_data
