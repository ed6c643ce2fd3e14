"""Proofs of real ledgers, checked by code that nobody here wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from remit.ledger import LedgerClient, LedgerEntry, LedgerError
from remit.ledger.tlog import (
    ProofError,
    SignedCheckpoint,
    Signer,
    TlogError,
    TlogProof,
    read_tile,
    verify_consistency,
)
from remit.ledger.tree import LedgerTree
from tests.support.soak import sample
from tests.support.stores import SIGNER

_ORACLES = Path(__file__).parent.parent / "oracles"
_PYTHON = Path(sys.prefix) / "oracles" / "bin" / "python"
needs_oracles = pytest.mark.skipif(
    not _PYTHON.exists(),
    reason="other people's verifiers are not installed: `make test` installs them",
)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 entries, past two complete subtrees, checkpoints at odd sizes."""
    directory = tmp_path_factory.mktemp("log")
    with LedgerClient(directory / "ledger.db", signer=SIGNER) as client:
        for number in range(600):
            client.write(LedgerEntry("NOTE", "S", "D", "r", metadata={"n": number}))
            if number + 1 in (1, 7, 255, 256, 257, 511, 512, 513):
                client.checkpoint()
        client.checkpoint()
        client.export(directory / "tiles", format="tiles")
    (directory / "key").write_text(str(SIGNER.verifier_key))
    return directory


def _oracle(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(_PYTHON), str(_ORACLES / f"{name}_oracle.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def _prove(log: Path, seq: int) -> tuple[Path, Path]:
    with LedgerClient(log / "ledger.db", signer=SIGNER) as client:
        proof, record = log / f"{seq}.tlog-proof", log / f"{seq}.record"
        proof.write_text(client.prove(f"LED-{seq:08x}"))
        record.write_bytes(client.read_record(f"LED-{seq:08x}"))
    return proof, record


@needs_oracles
@pytest.mark.soak
@pytest.mark.parametrize("seq", sample([255, 599], 1))
def test_sigstore_verifies_a_proof_and_refuses_one_changed_bit(log: Path, seq: int) -> None:
    proof, record = _prove(log, seq)
    good = _oracle("sigstore", proof, record, log / "key")
    assert (good.returncode, good.stdout.strip()) == (0, "verified"), good.stderr
    forged = bytearray(record.read_bytes())
    forged[len(forged) // 2] ^= 1
    bad = log / "forged"
    bad.write_bytes(bytes(forged))
    refused = _oracle("sigstore", proof, bad, log / "key")
    assert refused.returncode == 1
    assert refused.stderr.startswith("not verified: ")


@needs_oracles
def test_pymerkle_computes_the_same_roots_and_proofs(log: Path) -> None:
    records = log / "records"
    files = sorted((log / "tiles" / "tile" / "entries").rglob("*"))
    records.write_bytes(b"".join(path.read_bytes() for path in files if path.is_file()))
    with LedgerClient(log / "ledger.db", signer=SIGNER) as client:
        tree = LedgerTree(client.select, client._store)
        sizes = [1, 2, 255, 256, 257, 512, 513, 600]
        pairs = [(0, 1), (0, 600), (255, 256), (256, 257), (300, 600), (599, 600)]
        growths = [(1, 2), (255, 257), (256, 600), (257, 600), (512, 513), (300, 599)]
        answer = _oracle(
            "pymerkle", records, *sizes,
            *(part for i, s in pairs for part in ("--inclusion", f"{i}:{s}")),
            *(part for a, b in growths for part in ("--consistency", f"{a}:{b}")),
        )  # fmt: skip
        assert answer.returncode == 0, answer.stderr
        theirs = json.loads(answer.stdout)
        for size in sizes:
            assert theirs["roots"][str(size)] == tree.root(size).hex()
        for index, size in pairs:
            ours = [part.hex() for part in tree.inclusion(index, size)]
            assert theirs["inclusion"][f"{index}:{size}"] == ours
        for old, new in growths:
            ours = [part.hex() for part in client.checkpoints.prove_consistency(old, new)]
            assert theirs["consistency"][f"{old}:{new}"] == ours


@needs_oracles
def test_aics_tlog_reads_the_tiles_and_refuses_a_truncated_one(log: Path) -> None:
    proof, record = _prove(log, 300)
    good = _oracle("aics", log / "tiles", log / "key", "--proof", proof, record)
    assert (good.returncode, good.stdout.strip()) == (0, "verified"), good.stderr
    tile = log / "tiles" / "tile" / "0" / "001"
    whole = tile.read_bytes()
    try:
        tile.write_bytes(whole[:-1])
        assert _oracle("aics", log / "tiles", log / "key").returncode == 1
        with pytest.raises(TlogError, match="fetch it again"):
            read_tile(tile.read_bytes())
        tile.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        assert _oracle("aics", log / "tiles", log / "key").returncode == 1
    finally:
        tile.write_bytes(whole)


def test_every_place_in_every_checkpoint(log: Path) -> None:
    with LedgerClient(log / "ledger.db", signer=SIGNER) as client:
        tree = LedgerTree(client.select, client._store)
        for size in (1, 2, 7, 255, 256, 257, 511, 512, 513, 600):
            root = tree.root(size)
            for index in {0, 1, 6, 254, 255, 256, 300, 511, 512, 599, size - 1}:
                if index < size:
                    from remit.ledger.tlog import leaf_hash, verify_inclusion

                    leaf = leaf_hash(client.read_record(f"LED-{index:08x}"))
                    verify_inclusion(leaf, index, size, tree.inclusion(index, size), root)
            for old in (0, 1, 7, 255, 256, 257, 512):
                if old <= size:
                    path = tree.consistency(old, size)
                    verify_consistency(old, size, path, tree.root(old), root)
        with pytest.raises(ProofError, match="not 601"):
            client.checkpoints.prove_consistency(5, 601)


def test_a_proof_leads_to_the_smallest_checkpoint_and_survives_growth(log: Path) -> None:
    with LedgerClient(log / "ledger.db", signer=SIGNER) as client:
        proof = TlogProof.parse(client.prove("LED-00000003"))
        assert proof.signed.checkpoint.size == 7
        assert proof.verify(client.read_record("LED-00000003"), SIGNER.verifier_key).size == 7
        other = Signer.generate(SIGNER.name)
        with pytest.raises(LedgerError, match="no entry"):
            client.prove("LED-00009999")
    with LedgerClient(log / "ledger.db", verifier_key=other.verifier_key) as client:
        assert client.verify().checkpoint == "failed"


def test_a_proof_for_another_log(log: Path, tmp_path: Path) -> None:
    stranger = Signer.generate("example.com/other")
    with LedgerClient(tmp_path / "ledger.db", signer=stranger) as client:
        client.write(LedgerEntry("NOTE", "S", "D", "r"))
        text = client.prove("LED-00000000")
        record = client.read_record("LED-00000000")
    with pytest.raises(Exception, match=r"not of 'example\.com/log'"):
        TlogProof.parse(text).verify(record, SIGNER.verifier_key)


def test_tiles_grow_and_refuse_another_logs_directory(tmp_path: Path) -> None:
    with LedgerClient(tmp_path / "ledger.db", signer=SIGNER) as client:
        for size in (1, 255, 256, 300):
            while client.count() < size:
                client.write(LedgerEntry("N", "S", "D", "r", metadata={"n": client.count()}))
            assert client.export(tmp_path / "tiles", format="tiles") == size
        head = SignedCheckpoint.parse((tmp_path / "tiles" / "checkpoint").read_bytes())
        assert head.verify(SIGNER.verifier_key).size == 300
        assert (tmp_path / "tiles" / "tile" / "1" / "000.p" / "1").exists()
        assert len((tmp_path / "tiles" / "tile" / "0" / "001.p" / "44").read_bytes()) == 44 * 32
    other = Signer.generate("example.com/other")
    with LedgerClient(tmp_path / "other.db", signer=other) as client:
        client.write(LedgerEntry("N", "S", "D", "r"))
        with pytest.raises(LedgerError, match="another log"):
            client.export(tmp_path / "tiles", format="tiles")
