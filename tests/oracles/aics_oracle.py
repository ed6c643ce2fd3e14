"""Audit tlog-tiles: ``python aics_oracle.py TILES_DIR VKEY [--proof PROOF RECORD]``.

aics-tlog's own: the verifier key, the signed note and the checkpoint (``verify_checkpoint``, with
the origin equal to the name of the key); every tile of every level up to the signed root and every
entry bundle down from its level 0 tile (``audit_tiles``); the root once more from the records alone
(``MerkleTree``). With a C2SP tlog-proof: its checkpoint, the inclusion of the record by RFC 9162,
and that root, path and record are those of the directory.
This script's own: splitting the tlog-proof file, which aics-tlog has no reader for.

aics-tlog asks for Python >= 3.12; its code runs on 3.11 too (``pip --ignore-requires-python``).
Partial tiles of sizes other than the checkpoint's are not looked at.
"""

from __future__ import annotations

import argparse
import base64
import re
import sys
from pathlib import Path

import aics_tlog as aics

PROOF = re.compile(r"c2sp\.org/tlog-proof@v1\n(?:extra .+\n)?index (\d+)\n((?:\S+\n)*)\n((?s:.+))")


def tree_head(note: str, key: aics.VKey) -> tuple[int, bytes]:
    result = aics.verify_checkpoint(aics.parse_note(note), key, expected_origin=key.name)
    if not result.ok or result.size is None or result.root is None:
        raise ValueError(result.error or "the checkpoint is not accepted")
    return result.size, result.root


def check_proof(proof: str, record: bytes, key: aics.VKey, tiles: aics.VerifiedTileReader) -> None:
    if (match := PROOF.fullmatch(proof)) is None or str(int(match[1])) != match[1]:
        raise ValueError("not a tlog-proof")
    index, lines = int(match[1]), match[2].split()
    path = [base64.b64decode(line) for line in lines]
    if [base64.b64encode(digest).decode() for digest in path] != lines:
        raise ValueError("the path is not in canonical base64")
    size, root = tree_head(match[3], key)
    if not aics.verify_leaf_inclusion(record, index, size, path, root):
        raise ValueError("the path does not lead from the record to the root")
    if aics.tree_root_from_tiles(tiles, size, tiles.size) != root:
        raise ValueError("the directory has another root at this size")
    if aics.inclusion_proof_from_tiles(tiles, index, size, tiles.size) != path:
        raise ValueError("the directory yields another path")
    if tiles.entry(index) != record:
        raise ValueError("the directory has another record at this index")


def audit(directory: Path, vkey: Path, proof: list[Path] | None) -> None:
    key = aics.read_vkey_file(vkey.read_text())
    size, root = tree_head((directory / "checkpoint").read_bytes().decode(), key)
    reader = aics.FileSystemTileReader(directory)
    aics.audit_tiles(reader, size, root)
    tiles = aics.VerifiedTileReader(reader, size, root)
    if aics.MerkleTree(tiles.entry(index) for index in range(size)).root() != root:
        raise ValueError("the records do not hash to the root")
    if proof is not None:
        check_proof(proof[0].read_bytes().decode(), proof[1].read_bytes(), key, tiles)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("tiles_dir", type=Path)
    parser.add_argument("vkey", type=Path)
    parser.add_argument("--proof", type=Path, nargs=2, metavar=("PROOF", "RECORD"))
    args = parser.parse_args()
    try:
        audit(args.tiles_dir, args.vkey, args.proof)
    except (ValueError, aics.TileMissingError) as problem:
        sys.exit(f"not verified: {problem}")
    print("verified")
