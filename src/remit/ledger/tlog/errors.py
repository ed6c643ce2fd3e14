"""The error of proofs, signed notes, keys and tiles."""

from __future__ import annotations

from remit.kernel.errors import RemitError


class TlogError(RemitError):
    """A note, key, proof or tile is malformed, or its signature or hash does not hold."""


# Earlier names, until 1.0.
NoteError = ProofError = TlogError
