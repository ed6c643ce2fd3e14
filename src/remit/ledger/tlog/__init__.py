"""Transparency-log formats: RFC 6962 trees, and C2SP notes, checkpoints, proofs and tiles.

Pure functions and values over bytes. The package uses no database and no network, and does not know
the meaning of a leaf. Every fault raises :class:`TlogError`.

Start reading in ``checkpoint``; ``merkle`` computes roots and proofs.
"""

from remit.ledger.tlog.checkpoint import (
    Checkpoint as Checkpoint,
    SignedCheckpoint as SignedCheckpoint,
    TlogProof as TlogProof,
)
from remit.ledger.tlog.errors import (
    NoteError as NoteError,
    ProofError as ProofError,
    TlogError as TlogError,
)
from remit.ledger.tlog.merkle import (
    EMPTY_ROOT as EMPTY_ROOT,
    consistency_proof as consistency_proof,
    inclusion_proof as inclusion_proof,
    leaf_hash as leaf_hash,
    node_hash as node_hash,
    split_point as split_point,
    tree_root as tree_root,
    unlisted_subtrees as unlisted_subtrees,
    verify_consistency as verify_consistency,
    verify_inclusion as verify_inclusion,
)
from remit.ledger.tlog.note import (
    COSIGNATURE as COSIGNATURE,
    Note as Note,
    NoteSignature as NoteSignature,
    Signer as Signer,
    VerifierKey as VerifierKey,
)
from remit.ledger.tlog.tiles import (
    TILE_WIDTH as TILE_WIDTH,
    bundle as bundle,
    bundle_path as bundle_path,
    read_bundle as read_bundle,
    read_tile as read_tile,
    tile_path as tile_path,
)

# Earlier names, until 1.0.
CheckpointError = NoteError
KeyFormatError = TlogError
TileError = TlogError
