"""Errors of proofs and signatures."""

from __future__ import annotations

from remit.kernel.errors import RemitError


class TlogError(RemitError):
    """Base of the errors of tlog."""


class NoteError(TlogError):
    """A signed note is malformed, or no trusted key signed it."""


class ProofError(TlogError):
    """A proof is malformed or does not hold."""
