"""Transparency-log formats: RFC 6962 trees, and C2SP notes, checkpoints, proofs and tiles.

Pure functions and values over bytes. The package uses no database and no network, and does not know
the meaning of a leaf. Every fault raises :class:`TlogError`.

Start reading in ``checkpoint``; ``merkle`` computes roots and proofs.
"""

from remit.ledger.tlog.checkpoint import Checkpoint, SignedCheckpoint, TlogProof
from remit.ledger.tlog.errors import NoteError, ProofError, TlogError
from remit.ledger.tlog.merkle import (
    EMPTY_ROOT,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    node_hash,
    split_point,
    tree_root,
    unlisted_subtrees,
    verify_consistency,
    verify_inclusion,
)
from remit.ledger.tlog.note import COSIGNATURE, Note, NoteSignature, Signer, VerifierKey
from remit.ledger.tlog.tiles import (
    TILE_WIDTH,
    bundle,
    bundle_path,
    read_bundle,
    read_tile,
    tile_path,
)

__all__ = [
    "COSIGNATURE",
    "EMPTY_ROOT",
    "TILE_WIDTH",
    "Checkpoint",
    "Note",
    "NoteError",
    "NoteSignature",
    "ProofError",
    "SignedCheckpoint",
    "Signer",
    "TlogError",
    "TlogProof",
    "VerifierKey",
    "bundle",
    "bundle_path",
    "consistency_proof",
    "inclusion_proof",
    "leaf_hash",
    "node_hash",
    "read_bundle",
    "read_tile",
    "split_point",
    "tile_path",
    "tree_root",
    "unlisted_subtrees",
    "verify_consistency",
    "verify_inclusion",
]

# Earlier names, until 1.0.
CheckpointError = NoteError
KeyFormatError = TlogError
TileError = TlogError
