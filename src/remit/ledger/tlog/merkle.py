"""Merkle trees by RFC 6962, section 2.1: SHA-256, leaves 0x00, nodes 0x01."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from remit.ledger.tlog.errors import TlogError

EMPTY_ROOT = hashlib.sha256(b"").digest()
"""The root of the tree without leaves."""

RangeHash = Callable[[int, int], bytes]
"""MTH(D[start:end]), 32 bytes; called only for ranges that are nodes of the tree."""


def leaf_hash(record: bytes) -> bytes:
    """Return SHA-256(0x00 || record), 32 bytes.

    Args:
        record: canonical bytes of a record.
    """
    return hashlib.sha256(b"\x00" + record).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return SHA-256(0x01 || left || right), 32 bytes.

    Args:
        left: hash of the left child, 32 bytes.
        right: hash of the right child, 32 bytes.
    """
    return hashlib.sha256(b"\x01" + left + right).digest()


def split_point(size: int) -> int:
    """Return the largest power of two smaller than ``size`` (``size`` > 1)."""
    return 1 << ((size - 1).bit_length() - 1)


def tree_root(hashes: Sequence[bytes]) -> bytes:
    """Return the RFC 6962 root (MTH) over hashes, 32 bytes.

    Args:
        hashes: leaf hashes, or the roots of complete subtrees of one height, left to right. Without
            any, the root is that of the empty tree.
    """
    if not hashes:
        return EMPTY_ROOT
    level, sha256 = list(hashes), hashlib.sha256
    while len(level) > 1:
        # node_hash, without a call for each: the ledger takes one root for every 256 entries.
        pairs = zip(level[::2], level[1::2], strict=False)
        paired = [sha256(b"\x01" + left + right).digest() for left, right in pairs]
        if len(level) % 2:
            paired.append(level[-1])  # an odd last node goes up as it is
        level = paired
    return level[0]


def inclusion_proof(index: int, size: int, range_hash: RangeHash) -> list[bytes]:
    """Return PATH(index, D[size]) of RFC 6962, 2.1.1: from the leaf's sibling to the root's child.

    The list is empty for a tree of one leaf.

    Args:
        index: index of the leaf, from 0.
        size: number of leaves.
        range_hash: returns the root over the leaves from a start to before an end; its errors are
            raised.

    Raises:
        TlogError: a tree of that size has no such leaf.
    """
    if not 0 <= index < size:
        raise TlogError(f"A tree of {size} leaves has no leaf {index}.")
    path: list[bytes] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + split_point(end - start)
        if index < middle:
            path.append(range_hash(middle, end))
            end = middle
        else:
            path.append(range_hash(start, middle))
            start = middle
    return path[::-1]


def consistency_proof(old: int, new: int, range_hash: RangeHash) -> list[bytes]:
    """Return PROOF(old, D[new]) of RFC 6962, 2.1.2; empty for equal sizes and from the empty tree.

    Args:
        old: number of leaves of the older tree.
        new: number of leaves of the newer tree.
        range_hash: returns the root over the leaves from a start to before an end; its errors are
            raised.

    Raises:
        TlogError: ``old`` is greater than ``new``, or negative.
    """
    if not 0 <= old <= new:
        raise TlogError(f"A tree of {new} leaves does not extend one of {old}.")
    if old in (0, new):
        return []
    path: list[bytes] = []
    start, end = 0, new
    is_branch = True  # whether the old tree is still a complete branch of its own
    while old != end:
        middle = start + split_point(end - start)
        if old <= middle:
            path.append(range_hash(middle, end))
            end = middle
        else:
            path.append(range_hash(start, middle))
            start, is_branch = middle, False
    if not is_branch:
        path.append(range_hash(start, end))
    return path[::-1]


def unlisted_subtrees(leaves: Sequence[int], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield, from left to right, the largest subtrees without any of the listed leaves.

    The root of a tree follows from its listed leaves and the roots of these subtrees, which are
    also called the multiproof of the leaves.

    Args:
        leaves: the leaves' indexes, ascending; none gives the whole range.
        start: the first leaf of the tree, or of a node of it.
        end: the leaf after the last one.

    Yields:
        The first leaf of a subtree, and the leaf after its last.
    """
    place = bisect_left(leaves, start)
    if place == len(leaves) or leaves[place] >= end:
        if start < end:
            yield start, end
    elif end - start > 1:
        middle = start + split_point(end - start)
        yield from unlisted_subtrees(leaves, start, middle)
        yield from unlisted_subtrees(leaves, middle, end)


def verify_inclusion(
    leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes
) -> None:
    """Raise TlogError unless a leaf is in the tree (RFC 9162, 2.1.3.2).

    The error says whether the index is outside the tree, the proof is too long or too short, or
    leads to another root.

    Args:
        leaf: hash of the leaf.
        index: index of the leaf, from 0.
        size: number of leaves.
        path: hashes from the leaf's sibling up.
        root: root of the tree.
    """
    if not 0 <= index < size:
        raise TlogError(f"A tree of {size} leaves has no leaf {index}.")
    node, last, current = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            raise TlogError("The inclusion proof is too long.")
        if node & 1 or node == last:
            current = node_hash(sibling, current)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            current = node_hash(current, sibling)
        node, last = node >> 1, last >> 1
    if last:
        raise TlogError("The inclusion proof is too short.")
    if current != root:
        raise TlogError("The inclusion proof does not lead to the root of the checkpoint.")


def verify_consistency(
    old: int, new: int, path: Sequence[bytes], old_root: bytes, new_root: bytes
) -> None:
    """Raise TlogError unless the tree of ``new`` leaves extends that of ``old`` leaves (RFC 9162,
    2.1.4.2).

    The proof must be empty for equal sizes, whose roots must be equal. From the empty tree, the
    proof must be empty too, ``old_root`` SHA-256 of nothing, and ``new_root`` is not checked.

    Args:
        old: number of leaves of the older tree; greater than ``new`` or negative is refused.
        new: number of leaves of the newer tree.
        path: the proof.
        old_root: root of the older tree.
        new_root: root of the newer tree.
    """
    if not 0 <= old <= new:
        raise TlogError(f"A tree of {new} leaves does not extend one of {old}.")
    if old in (0, new):
        if path:
            raise TlogError("The consistency proof should be empty.")
        if old == 0 and old_root != EMPTY_ROOT:
            raise TlogError("The root of the empty tree is not SHA-256 of nothing.")
        if old == new and old_root != new_root:
            raise TlogError("Two trees of one size have different roots: a fork.")
        return
    steps = list(path)
    if old & (old - 1) == 0:
        steps.insert(0, old_root)
    if not steps:
        raise TlogError("The consistency proof is empty.")
    node, last = old - 1, new - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    old_hash = new_hash = steps[0]
    for sibling in steps[1:]:
        if last == 0:
            raise TlogError("The consistency proof is too long.")
        if node & 1 or node == last:
            old_hash = node_hash(sibling, old_hash)
            new_hash = node_hash(sibling, new_hash)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            new_hash = node_hash(new_hash, sibling)
        node, last = node >> 1, last >> 1
    if last:
        raise TlogError("The consistency proof is too short.")
    if old_hash != old_root:
        raise TlogError("The consistency proof does not lead to the older root.")
    if new_hash != new_root:
        raise TlogError("The consistency proof does not lead to the newer root: a fork.")
