"""ustar in one way of writing it: a header follows from name, size and mode alone.

So a reader makes each header anew and compares: there is nothing in it to be understood in two
ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from remit.packages.errors import PackError
from remit.packages.gzipping import stored_gzip

__all__ = ["BLOCK", "checksum", "header", "name_in", "stored_targz"]

# Constants of ustar (POSIX.1-1988).
BLOCK = 512
"""Bytes of a header; content is filled up to a multiple of it."""

_NAME = 100
_PREFIX = 155
_USTAR = b"ustar\x0000"
_END = bytes(2 * BLOCK)
_MODE = 0o644


def stored_targz(items: Iterable[tuple[str, bytes, int]]) -> Iterator[bytes]:
    """A ``.tar.gz`` of plain files, piece by piece: same items, same bytes, on any machine.

    Args:
        items: path, content and mode (as ``0o755``) of each file, in the order of the archive.

    Raises:
        PackError: ``path_too_long``: no ustar header can hold a path.
    """
    return stored_gzip(_members(items))


def _members(items: Iterable[tuple[str, bytes, int]]) -> Iterator[bytes]:
    for name, data, mode in items:
        yield header(name, len(data), mode) + data + bytes(-len(data) % BLOCK)
    yield _END


def header(name: str, size: int, mode: int = _MODE) -> bytes:
    """The one ustar header of a plain file with that name, size in bytes, and mode.

    Raises:
        PackError: ``path_too_long``.
    """
    raw, prefix = name.encode(), b""
    if len(raw) > _NAME:
        cut = raw.rfind(b"/", 0, _PREFIX + 1)  # the longest prefix, as most programs do
        if cut < 0 or len(raw) - cut - 1 > _NAME:
            raise PackError(
                "path_too_long",
                f"The path {name!a} does not fit into an archive's header.",
                next_step="Give the file or its folders shorter names.",
            )
        prefix, raw = raw[:cut], raw[cut + 1 :]
    block = b"".join(
        (
            raw.ljust(_NAME, b"\0"),
            b"%07o\0" % mode,
            b"0000000\0",  # user
            b"0000000\0",  # group
            b"%011o\0" % size,
            b"00000000000\0",  # time
            b"        ",  # the checksum counts as spaces
            b"0",
            bytes(_NAME),
            _USTAR,
            bytes(64),  # names of user and group
            b"0000000\0",  # device
            b"0000000\0",
            prefix.ljust(_PREFIX, b"\0"),
            bytes(12),
        )
    )
    return block[:148] + checksum(block) + b"\0 " + block[156:]


def name_in(block: bytes) -> bytes:
    """The whole path in a header, prefix and all, as it came."""
    raw = block[:_NAME].split(b"\0")[0]
    if block[257:263] == _USTAR[:6] and (prefix := block[345:500].split(b"\0")[0]):
        raw = prefix + b"/" + raw
    return raw


def checksum(block: bytes) -> bytes:
    """A header's checksum as octal digits, counted without the one it has."""
    return b"%06o" % (sum(block[:148]) + 8 * ord(" ") + sum(block[156:]))
