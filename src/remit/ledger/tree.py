"""The ledger's Merkle tree, read from its stored hashes.

The roots of complete subtrees of 256, 65,536, … leaves are stored, which C2SP tlog-tiles calls the
hashes of level 1 and above. Leaf hashes are computed from the records, at most a few hundred for a
proof, so an append costs one hash row in 256 entries. Leaf hashes of archived entries are stored
too, 256 in a row: level 0, keyed by the number of the tile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from remit.ledger.entry import entry_id
from remit.ledger.entry_reader import as_bytes
from remit.ledger.errors import LedgerFormatError
from remit.ledger.store import Execute, Store
from remit.ledger.tlog import (
    TILE_WIDTH,
    TlogError,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    read_tile,
    tree_root,
    unlisted_subtrees,
)


class LedgerTree:
    """The roots, proofs and tiles of a ledger's tree, for sizes that the caller gives.

    Later appends do not change the result for a size; erasures neither. Hashes are cached until a
    proof that does not need them. One thread uses an object. Errors of ``execute`` are raised.

    Args:
        execute: runs a statement; statements need not share a transaction.
        store: the store of the ledger.
    """

    def __init__(self, execute: Execute, store: Store) -> None:
        self._execute = execute
        self._record_sql = store.record_sql
        self._tiles: dict[tuple[int, int], list[bytes]] = {}

    def size(self) -> int:
        """Return the number of leaves, archived ones included: 1 more than the last number."""
        rows = self._execute("SELECT seq FROM entries ORDER BY seq DESC LIMIT 1", ())
        return int(rows[0][0]) + 1 if rows else 0

    def root(self, size: int) -> bytes:
        """Return the root of the first ``size`` leaves, 32 bytes.

        Args:
            size: number of leaves; 0 gives the root of an empty tree.

        Raises:
            LedgerFormatError: leaves or stored hashes are missing.
        """
        return self._range(0, size)

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """Return the inclusion proof of a leaf, from its sibling up (RFC 6962).

        Args:
            index: sequence number of the entry.
            size: number of entries of the tree.

        Raises:
            TlogError: a tree of that size has no such leaf.
            LedgerFormatError: leaves or stored hashes are missing.
        """
        self._look_up(size, index)
        return inclusion_proof(index, size, self._range)

    def consistency(self, old: int, new: int) -> list[bytes]:
        """Return the proof that the tree of ``new`` leaves extends that of ``old`` (RFC 6962).

        Args:
            old: number of entries of the older tree.
            new: number of entries of the newer tree.

        Raises:
            TlogError: ``old`` is greater than ``new``, or negative.
            LedgerFormatError: leaves or stored hashes are missing.
        """
        self._look_up(new, max(0, old - 1), old)
        return consistency_proof(old, new, self._range)

    def multiproof(self, leaves: Sequence[int], size: int) -> Iterator[bytes]:
        """Yield the roots of the largest subtrees without any of the leaves, left to right.

        With the leaves they lead to the tree's root.

        Args:
            leaves: sequence numbers of the entries, ascending.
            size: number of entries of the tree.

        Raises:
            LedgerFormatError: leaves or stored hashes are missing.
        """
        for start, end in unlisted_subtrees(leaves, 0, size):
            self._look_up(size, start)  # also forgets the tiles of the subtrees before
            yield self._range(start, end)

    def _look_up(self, size: int, *leaves: int) -> None:
        """Read all parts of a proof together: the tiles above the leaves, and the tree's edge."""
        wanted: dict[tuple[int, int], None] = {}
        level, places, edge = 0, leaves, size
        while edge:
            wanted.update(((level, place // TILE_WIDTH), None) for place in places)
            if edge % TILE_WIDTH:
                wanted[level, edge // TILE_WIDTH] = None
            level, edge = level + 1, edge // TILE_WIDTH
            places = tuple(place // TILE_WIDTH for place in places)
        kept = {tile: self._tiles[tile] for tile in wanted if tile in self._tiles}
        self._tiles = kept | self._read(tile for tile in wanted if tile not in kept)

    def tile(self, level: int, index: int) -> list[bytes]:
        """Return the existing hashes of a tile, left to right, at most 256; nothing is cached.

        A tile at the edge of the tree has fewer, and one beyond it none.

        Args:
            level: 0 for leaf hashes; a hash of a level covers 256 of the level below.
            index: number of the tile in its level, from 0.

        Raises:
            LedgerFormatError: a hash before an existing one is missing, or stored hashes are
                damaged.
        """
        return self._read([(level, index)])[level, index]

    def _read(self, tiles: Iterable[tuple[int, int]]) -> dict[tuple[int, int], list[bytes]]:
        """Return the hashes of tiles by level and index, read in a single statement."""
        found: dict[tuple[int, int], list[bytes]] = {tile: [] for tile in tiles}
        leaves = f"SELECT 0, seq, {self._record_sql} FROM entries WHERE 0 = ? AND seq"
        packed = f"SELECT -1, idx * {TILE_WIDTH}, hash FROM tree_hashes WHERE level = 0 AND idx = ?"
        above = "SELECT level, idx, hash FROM tree_hashes WHERE level = ? AND idx"
        # A limit, so that a plan made for any tile reads by the index.
        one = "SELECT * FROM ({0} >= ? AND {1} < ? ORDER BY {1} LIMIT 256) AS tile"
        sql = [
            one.format(above, "idx") if level else one.format(leaves, "seq") for level, _ in found
        ]
        given = [
            number
            for level, index in found
            for number in (level, index * TILE_WIDTH, (index + 1) * TILE_WIDTH)
        ]
        for level, index in found:
            if level == 0:
                sql.append(packed)
                given.append(index)
        rows = self._execute(" UNION ALL ".join(sql), given) if sql else []
        archived = set()
        for level, place, value in rows:
            if level < 0:
                archived.add(place // TILE_WIDTH)
                found[0, place // TILE_WIDTH][:] = split_tile(bytes(value))
        for level, place, value in rows:
            index, offset = divmod(place, TILE_WIDTH)
            # Entries in the database are hashed from their records.
            if level == 0 and index in archived:
                found[0, index][offset] = leaf_hash(as_bytes(value))
            elif level >= 0:
                tile = found[level, index]
                if offset != len(tile):
                    raise missing_hash(level, place - offset + len(tile))
                tile.append(bytes(value) if level else leaf_hash(as_bytes(value)))
        return found

    def _range(self, start: int, end: int) -> bytes:
        """Return MTH(D[start:end]) for a range that is a node of the tree."""
        level, width = 0, 1
        while width * TILE_WIDTH <= end - start:
            level, width = level + 1, width * TILE_WIDTH
        count = (end - start) // width
        hashes = self._hashes(level, start // width, start // width + count)
        if start + count * width < end:
            hashes.append(self._range(start + count * width, end))
        return tree_root(hashes)

    def _hashes(self, level: int, first: int, end: int) -> list[bytes]:
        found: list[bytes] = []
        while first < end:
            index, offset = divmod(first, TILE_WIDTH)
            if (level, index) not in self._tiles:
                self._tiles[level, index] = self.tile(level, index)
            part = self._tiles[level, index][offset : offset + end - first]
            if not part:
                raise missing_hash(level, first)
            found.extend(part)
            first += len(part)
        return found


def completed_roots(
    execute: Execute, index: int, hashes: Sequence[bytes]
) -> Iterator[tuple[int, int, bytes]]:
    """Yield level, index and root of each subtree that a tile of leaf hashes completes.

    Fewer than 256 hashes mean missing entries, which verification reports: they complete nothing.
    The caller stores each row before it takes the next.

    Args:
        execute: runs a statement, and reads the rows that were yielded before.
        index: number of the tile, from 0.
        hashes: its leaf hashes.
    """
    level = 1
    while len(hashes) == TILE_WIDTH:
        yield level, index, tree_root(hashes)
        if (index + 1) % TILE_WIDTH:
            return
        rows = execute(
            "SELECT hash FROM tree_hashes WHERE level = ? AND idx >= ? ORDER BY idx",
            (level, index - TILE_WIDTH + 1),
        )
        hashes = [bytes(row[0]) for row in rows]
        level, index = level + 1, index // TILE_WIDTH


def split_tile(hashes: bytes) -> list[bytes]:
    """Return the 256 leaf hashes of a stored row; raise LedgerFormatError for another length.

    Args:
        hashes: 8,192 bytes of the table ``tree_hashes``.
    """
    try:
        return read_tile(hashes)
    except TlogError as error:
        raise LedgerFormatError(
            f"The tree cannot be computed: {error.message}",
            next_step="Run `remit ledger verify` to see what is damaged.",
        ) from error


def missing_hash(level: int, index: int) -> LedgerFormatError:
    """Return the error about a missing entry, or a missing hash above level 0.

    Args:
        level: level of the hash; 0 for entries.
        index: sequence number of the entry, or number of the hash in its level.
    """
    what = entry_id(index) if level == 0 else f"the tree hash {index} of level {level}"
    return LedgerFormatError(
        f"The tree cannot be computed: {what} is missing.",
        next_step="Run `remit ledger verify` to see what is damaged.",
    )
