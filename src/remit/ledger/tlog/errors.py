"""Errors of proofs and signatures."""

from __future__ import annotations

from remit.kernel.errors import RemitError


class TlogError(RemitError):
    """Base of the errors of tlog."""


class KeyFormatError(TlogError):
    """A verifier key or a private key cannot be read."""


class NoteError(TlogError):
    """A signed note is malformed, or no trusted key signed it."""


class CheckpointError(NoteError):
    """A checkpoint is malformed, of another log, or does not fit the tree."""


class ProofError(TlogError):
    """A proof is malformed or does not hold."""


class TileError(TlogError):
    """A tile or an entry bundle is malformed."""
