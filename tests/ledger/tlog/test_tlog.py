"""Notes, keys, checkpoints, proofs, tiles: what is read, and what is refused."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from remit.ledger.tlog import (
    COSIGNATURE,
    EMPTY_ROOT,
    Checkpoint,
    Note,
    NoteError,
    ProofError,
    SignedCheckpoint,
    Signer,
    TlogError,
    TlogProof,
    VerifierKey,
    bundle,
    bundle_path,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    read_bundle,
    read_tile,
    tile_path,
    tree_root,
    verify_consistency,
    verify_inclusion,
)

SIGNER = Signer.generate("example.com/log")
WITNESS = Signer.generate("witness.example/w1", COSIGNATURE)
HEAD = Checkpoint("example.com/log", 3, b"\x07" * 32)


def test_the_published_go_checksum_database_note() -> None:
    """A real signed tree head of another log, by its real key (golang.org/x/mod/sumdb/note)."""
    key = VerifierKey.parse("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")
    note = (
        "If you think cryptography is the answer to your problem,\n"
        "then you don't know what your problem is.\n"
        "\n"
        "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdng"
        "otpRZb6KE6RyyBwJnAM=\n"
    )
    assert Note.parse(note).verify([key]) == [key]
    with pytest.raises(NoteError, match="does not hold"):
        Note.parse(note.replace("answer", "Answer")).verify([key])


def test_keys_go_round_and_are_checked() -> None:
    text = str(SIGNER.verifier_key)
    assert VerifierKey.parse(text + "\n") == SIGNER.verifier_key
    assert Signer.from_pem(SIGNER.name, SIGNER.to_pem()).verifier_key == SIGNER.verifier_key
    name, digits, encoded = text.split("+", 2)
    for wrong in (
        "", "x", f"{name}+{digits}", f"{name}+00000000+{encoded}", f"other+{digits}+{encoded}",
        f"{name}+{digits}+{encoded[:-4]}", f"{name}+{digits}+!!!!", f" +{digits}+{encoded}",
        f"{name}+{digits}+" + base64.b64encode(b"\x09" + b"k" * 32).decode(),
    ):  # fmt: skip
        with pytest.raises(TlogError):
            VerifierKey.parse(wrong)
    for name in ("", "a b", "a+b", "a\nb"):
        with pytest.raises(TlogError):
            Signer.generate(name)
    for pem in (b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"):
        with pytest.raises(TlogError):
            Signer.from_pem("x", pem)


def test_a_checkpoint_goes_round() -> None:
    signed = HEAD.sign(SIGNER)
    again = SignedCheckpoint.parse(str(signed))
    assert again.verify(SIGNER.verifier_key) == HEAD
    cosigned = again.with_signatures([again.cosign(WITNESS, 1_700_000_000)])
    ((_, time),) = SignedCheckpoint.parse(str(cosigned)).cosignatures([WITNESS.verifier_key])
    assert time == 1_700_000_000
    assert str(cosigned.with_signatures([again.cosign(WITNESS, 5)])) == str(cosigned)
    with pytest.raises(NoteError, match="cannot cosign"):
        signed.cosign(SIGNER)
    with pytest.raises(NoteError, match="cannot sign for"):
        HEAD.sign(Signer.generate("example.com/other"))


@pytest.mark.parametrize(
    "text",
    [
        "", "\n", "a\n", "a\n1\n", "a\nx\nAAAA\n", "a\n01\n" + "A" * 43 + "=\n",
        "a\n-1\n" + "A" * 43 + "=\n", "a\n1\n" + "A" * 40 + "\n", "\n1\n" + "A" * 43 + "=\n",
        "a\n1\n" + "A" * 42 + "B=\n", f"a\n{2**63}\n" + "A" * 43 + "=\n", "a\n1\n" + "A" * 43 + "=",
        "a\n\u0661\n" + "A" * 43 + "=\n", "a\n" + "9" * 5000 + "\n" + "A" * 43 + "=\n",
    ],
)  # fmt: skip
def test_what_is_no_checkpoint(text: str) -> None:
    with pytest.raises(NoteError):
        Checkpoint.parse(text)


@given(st.binary(max_size=300) | st.text(max_size=300))
def test_nothing_but_our_own_errors_comes_out_of_any_input(data: bytes | str) -> None:
    for read in (Note.parse, SignedCheckpoint.parse, TlogProof.parse):
        with pytest.raises(TlogError):
            read(data)
    for tail in ("\n\n— a AAAAAAA=\n", "\n\n— ", "\n\n\n"):
        text = (data if isinstance(data, str) else data.decode("latin-1")) + tail
        try:
            SignedCheckpoint.parse(text)
        except TlogError:
            continue


@given(st.data())
def test_one_flipped_bit_of_a_signed_checkpoint_is_refused(data: st.DataObject) -> None:
    whole = bytearray(str(HEAD.sign(SIGNER)).encode())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(TlogError):
        SignedCheckpoint.parse(bytes(whole)).verify(SIGNER.verifier_key)


def test_a_proof_goes_round_and_names_what_is_wrong() -> None:
    record = b"the record"
    from remit.ledger.tlog import node_hash

    sibling = leaf_hash(b"another")
    head = Checkpoint(SIGNER.name, 2, node_hash(leaf_hash(record), sibling))
    proof = TlogProof(0, (sibling,), head.sign(SIGNER), b"extra")
    text = str(proof)
    assert TlogProof.parse(text) == proof
    assert TlogProof.parse(text).verify(record, SIGNER.verifier_key) == head
    with pytest.raises(ProofError, match="does not lead"):
        proof.verify(b"another record", SIGNER.verifier_key)
    with pytest.raises(NoteError, match="not of"):
        proof.verify(record, Signer.generate("example.com/other").verifier_key)
    with pytest.raises(NoteError, match="not signed by"):
        proof.verify(record, Signer.generate(SIGNER.name).verifier_key)
    for old, new in (
        ("tlog-proof@v1", "tlog-proof@v2"), ("index 0", "index 00"), ("index 0", "index -0"),
        ("index 0", "indices 0"), ("extra ", "extra !"), ("index 0\n", "index 0\nAAAA\n"),
        ("index 0\n", "index 0\n" + "A" * 43 + "=\n" * 1 + ("A" * 43 + "=\n") * 64),
        ("\n\nexample", "\nexample"),
    ):  # fmt: skip
        with pytest.raises(TlogError):
            TlogProof.parse(text.replace(old, new, 1)).verify(record, SIGNER.verifier_key)
    with pytest.raises(ProofError):
        TlogProof(1, (sibling,), head.sign(SIGNER)).verify(record, SIGNER.verifier_key)


def test_tiles_are_named_and_read_as_specified() -> None:
    assert tile_path(0, 0) == "tile/0/000"
    assert tile_path(1, 1_234_067) == "tile/1/x001/x234/067"
    assert tile_path(2, 999, 17) == "tile/2/999.p/17"
    assert bundle_path(1_000, 1) == "tile/entries/x001/000.p/1"
    for width in (0, 257):
        with pytest.raises(TlogError):
            tile_path(0, 0, width)
    records = [b"", b"a", b"b" * 65_535]
    packed = bundle(records)
    assert read_bundle(packed, 3) == records
    for cut in (1, 2, len(packed) - 1):
        with pytest.raises(TlogError):
            read_bundle(packed[:cut], 3)
    with pytest.raises(TlogError, match="not 256"):
        read_bundle(packed)
    with pytest.raises(TlogError):
        bundle([b"x" * 65_536])
    assert read_tile(b"h" * 64, 2) == [b"h" * 32] * 2
    with pytest.raises(TlogError, match="fetch it again"):
        read_tile(b"h" * 63, 2)


# -- RFC 6962 trees, against published vectors, a naive tree, and any tree at all ----------------


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
def test_growth_is_consistent_and_no_rewriting_is(old: int, more: int, data: st.DataObject) -> None:
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
