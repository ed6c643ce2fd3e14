"""RFC 6962 trees, against published vectors, a naive tree, and any tree at all."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.ledger.tlog import (
    EMPTY_ROOT,
    ProofError,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    tree_root,
    verify_consistency,
    verify_inclusion,
)

_VECTORS = json.loads((Path(__file__).parents[2] / "oracles" / "rfc6962_vectors.json").read_text())
_PUBLISHED = [leaf_hash(bytes.fromhex(item)) for item in _VECTORS["leaves_hex"]]
_LEAVES = [leaf_hash(f"leaf {number}".encode()) for number in range(130)]


def naive(leaves: list[bytes]) -> bytes:
    """MTH as the RFC words it."""
    if len(leaves) < 2:
        return leaves[0] if leaves else hashlib.sha256(b"").digest()
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return hashlib.sha256(b"\x01" + naive(leaves[:k]) + naive(leaves[k:])).digest()


def ranges(leaves: list[bytes]):  # type: ignore[no-untyped-def]
    return lambda start, end: naive(leaves[start:end])


def test_published_vectors() -> None:
    assert EMPTY_ROOT.hex() == _VECTORS["empty_root_hex"]
    for size, root in enumerate(_VECTORS["roots_hex"], start=1):
        assert tree_root(_PUBLISHED[:size]).hex() == root
    for item in _VECTORS["inclusion"]:
        size = item["size"]
        path = inclusion_proof(item["index"], size, ranges(_PUBLISHED))
        assert [part.hex() for part in path] == item["path_hex"]
        verify_inclusion(
            _PUBLISHED[item["index"]], item["index"], size, path, tree_root(_PUBLISHED[:size])
        )
    for item in _VECTORS["consistency"]:
        old, new = item["old"], item["new"]
        path = consistency_proof(old, new, ranges(_PUBLISHED))
        assert [part.hex() for part in path] == item["path_hex"]
        verify_consistency(old, new, path, tree_root(_PUBLISHED[:old]), tree_root(_PUBLISHED[:new]))


@given(size=st.integers(1, 130), data=st.data())
def test_every_inclusion_proof_holds_and_no_other_leaf_place_or_bit_does(
    size: int, data: st.DataObject
) -> None:
    leaves = _LEAVES[:size]
    root = tree_root(leaves)
    assert root == naive(leaves)
    index = data.draw(st.integers(0, size - 1))
    path = inclusion_proof(index, size, ranges(leaves))
    verify_inclusion(leaves[index], index, size, path, root)
    wrong = data.draw(st.integers(0, size - 1).filter(lambda other: other != index)
                      if size > 1 else st.just(-1))  # fmt: skip
    with pytest.raises(ProofError):
        verify_inclusion(leaves[index], wrong, size, path, root)
    with pytest.raises(ProofError):
        verify_inclusion(_LEAVES[(index + 1) % 130], index, size, path, root)
    bad = data.draw(st.sampled_from([
        [*path, root], path[:-1] if path else [root],
        [bytes([path[0][0] ^ 1]) + path[0][1:], *path[1:]] if path else [root],
    ]))  # fmt: skip
    with pytest.raises(ProofError):
        verify_inclusion(leaves[index], index, size, bad, root)


@given(old=st.integers(0, 130), more=st.integers(0, 60), data=st.data())
def test_every_growth_is_consistent_and_no_rewriting_is(
    old: int, more: int, data: st.DataObject
) -> None:
    new = min(old + more, 130)
    path = consistency_proof(old, new, ranges(_LEAVES[:new]))
    verify_consistency(old, new, path, naive(_LEAVES[:old]), naive(_LEAVES[:new]))
    if not 0 < old < new:
        return
    changed = list(_LEAVES[:new])
    changed[data.draw(st.integers(0, old - 1))] = leaf_hash(b"changed")
    with pytest.raises(ProofError):
        verify_consistency(
            old, new, consistency_proof(old, new, ranges(changed)), naive(_LEAVES[:old]),
            naive(changed),
        )  # fmt: skip
    for bad in ([*path, path[0]], path[:-1], [path[-1], *path[1:]] if len(path) > 1 else []):
        with pytest.raises(ProofError):
            verify_consistency(old, new, bad, naive(_LEAVES[:old]), naive(_LEAVES[:new]))


def test_sizes_that_make_no_sense() -> None:
    for index, size in ((0, 0), (1, 1), (-1, 5)):
        with pytest.raises(ProofError):
            inclusion_proof(index, size, ranges(_LEAVES))
        with pytest.raises(ProofError):
            verify_inclusion(_LEAVES[0], index, size, [], EMPTY_ROOT)
    with pytest.raises(ProofError):
        consistency_proof(2, 1, ranges(_LEAVES))
    with pytest.raises(ProofError, match="fork"):
        verify_consistency(3, 3, [], naive(_LEAVES[:3]), naive(_LEAVES[1:4]))
    with pytest.raises(ProofError):
        verify_consistency(0, 3, [], b"\0" * 32, naive(_LEAVES[:3]))
    with pytest.raises(ProofError):
        verify_consistency(2, 1, [], EMPTY_ROOT, EMPTY_ROOT)
