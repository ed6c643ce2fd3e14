"""Compute RFC 6962 roots and proofs with pymerkle and print them as JSON.

Usage: ``python pymerkle_oracle.py RECORDS [SIZE...] [--inclusion I:S]... [--consistency A:B]...``

RECORDS holds records behind a big-endian uint16 length each (tlog-tiles entry bundles, any number
one after another). Every hash printed is pymerkle's, and every proof has passed pymerkle's own
``verify``. Only the shape is converted, from pymerkle's conventions to those of RFC 6962:

- Leaves count from one; here, as in the RFC, from zero.
- An inclusion path starts with the leaf hash itself: dropped.
- A consistency path marks (``subset``) the hashes that make up the old tree and always holds all of
  them. The RFC leaves the old root out when it is a node of the new tree: then it is the only
  hash marked, and dropped.
- Where the old tree ends at the edge of a subtree, pymerkle starts from the first new leaf and
  spells out the subtree to the right; the RFC has one hash for it, and after the hash on its left.
  These leading, unmarked hashes are folded into one with pymerkle's ``hash_pair``.
"""

from __future__ import annotations

import argparse
import json
from functools import reduce
from pathlib import Path

from pymerkle import InmemoryTree


def read_records(data: bytes) -> list[bytes]:
    records, at = [], 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if end > len(data) or at + 2 > len(data):
            raise ValueError("the last record is cut short")
        records.append(data[at + 2 : end])
        at = end
    return records


def inclusion(tree: InmemoryTree, index: int, size: int) -> list[str]:
    proof = tree.prove_inclusion(index + 1, size)
    proof.verify(tree.get_leaf(index + 1), tree.get_root(size), index + 1, size, "sha256")
    return [digest.hex() for digest in proof.path[1:]]


def consistency(tree: InmemoryTree, old: int, new: int) -> list[str]:
    proof = tree.prove_consistency(old, new)
    proof.verify(tree.get_root(old), tree.get_root(new), old, new, "sha256")
    first = proof.subset.index(1)
    path = [proof.path[first]] if sum(proof.subset) > 1 else []
    if first:
        path.append(reduce(tree.hash_pair, proof.path[:first]))
    return [digest.hex() for digest in path + proof.path[first + 1 :]]


def pair(text: str) -> tuple[int, int]:
    left, right = text.split(":")
    return int(left), int(right)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("records", type=Path)
    parser.add_argument("sizes", type=int, nargs="*", metavar="SIZE")
    parser.add_argument("--inclusion", type=pair, action="append", default=[], metavar="I:S")
    parser.add_argument("--consistency", type=pair, action="append", default=[], metavar="A:B")
    args = parser.parse_intermixed_args()
    tree = InmemoryTree.init_from_entries(read_records(args.records.read_bytes()), "sha256")
    answer = {
        "roots": {str(size): tree.get_root(size).hex() for size in args.sizes},
        "inclusion": {f"{i}:{size}": inclusion(tree, i, size) for i, size in args.inclusion},
        "consistency": {f"{a}:{b}": consistency(tree, a, b) for a, b in args.consistency},
    }
    print(json.dumps(answer, indent=2))
