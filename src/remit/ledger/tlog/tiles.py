"""Tiles and entry bundles (C2SP tlog-tiles): a log as a directory of static files."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

from remit.ledger.tlog.errors import TlogError
from remit.ledger.tlog.merkle import tree_root

TILE_WIDTH = 256
"""Hashes in a full tile, entries in a full bundle."""

_HASH_BYTES = 32
_MAX_ENTRY = 65_535


def tile_levels(hashes: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Yield the hashes of each level of tiles above a level, the lowest first.

    A hash is the root of 256 hashes of the level below. Fewer than 256 hashes at the end of a level
    give none, and a level without hashes is not yielded.

    Args:
        hashes: the hashes of any level, such as all leaf hashes.
    """
    while len(hashes) >= TILE_WIDTH:
        hashes = above = [
            tree_root(hashes[start : start + TILE_WIDTH])
            for start in range(0, len(hashes) - TILE_WIDTH + 1, TILE_WIDTH)
        ]
        yield above


def tile_path(level: int, index: int, width: int = TILE_WIDTH) -> str:
    """Return ``tile/<level>/<index>[.p/<width>]``; the index is written in groups of three digits.

    Args:
        level: level of the tile; 0 for leaf hashes.
        index: number of the tile in its level.
        width: number of hashes, 1 to 256; below 256 for a partial tile.

    Raises:
        TlogError: the width is out of range.
    """
    return f"tile/{level}/{_index_path(index)}{_partial(width)}"


def bundle_path(index: int, width: int = TILE_WIDTH) -> str:
    """Return ``tile/entries/<index>[.p/<width>]``; the index is written in groups of three digits.

    Args:
        index: number of the bundle.
        width: number of records, 1 to 256; below 256 for a partial bundle.

    Raises:
        TlogError: the width is out of range.
    """
    return f"tile/entries/{_index_path(index)}{_partial(width)}"


def bundle(records: Iterable[bytes]) -> bytes:
    """Return records, each after its length as a big-endian 16-bit number.

    Args:
        records: the records of an entry bundle, at most 256; the number is not checked.

    Raises:
        TlogError: a record is longer than 65,535 bytes.
    """
    parts = []
    for record in records:
        if len(record) > _MAX_ENTRY:
            raise TlogError(f"A record of {len(record):,} bytes does not fit into a bundle.")
        parts.append(struct.pack(">H", len(record)) + record)
    return b"".join(parts)


def read_bundle(data: bytes, width: int = TILE_WIDTH) -> list[bytes]:
    """Return the ``width`` records of a bundle.

    Args:
        data: the bundle.
        width: expected number of records.

    Raises:
        TlogError: the bundle is cut off, or has another number of records.
    """
    records = []
    position = 0
    while position < len(data):
        end = position + 2
        if end > len(data):
            raise TlogError("The entry bundle is cut off.")
        (length,) = struct.unpack(">H", data[position:end])
        if end + length > len(data):
            raise TlogError("The entry bundle is cut off.")
        records.append(data[end : end + length])
        position = end + length
    if len(records) != width:
        raise TlogError(f"The entry bundle contains {len(records)} records, not {width}.")
    return records


def read_tile(data: bytes, width: int = TILE_WIDTH) -> list[bytes]:
    """Return the ``width`` hashes of a tile, 32 bytes each.

    Args:
        data: the tile.
        width: expected number of hashes.

    Raises:
        TlogError: the tile has another length.
    """
    if len(data) != width * _HASH_BYTES:
        raise TlogError(
            f"The tile is {len(data)} bytes long; {width} hashes are {width * _HASH_BYTES}.",
            next_step="The tile was cut off or mixed up in transit: fetch it again.",
        )
    return [data[start : start + _HASH_BYTES] for start in range(0, len(data), _HASH_BYTES)]


def _index_path(index: int) -> str:
    groups = [f"{index % 1000:03d}"]
    while index := index // 1000:
        groups.append(f"x{index % 1000:03d}")
    return "/".join(reversed(groups))


def _partial(width: int) -> str:
    if not 1 <= width <= TILE_WIDTH:
        raise TlogError(f"A tile is never {width} wide.")
    return "" if width == TILE_WIDTH else f".p/{width}"
