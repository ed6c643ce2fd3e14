"""The commitments that this process computed last.

A history that is sent again is thus not hashed again.
"""

from __future__ import annotations

from remit.ledger.contents import commit

_MAX_COMMITMENTS = 2048
_known: dict[str, tuple[bytes, bytes]] = {}
"""Nonce and digest of values, keyed by commitment."""


def remembered_commit(nonce: bytes, digest: bytes, encoded: bytes) -> str:
    """Return the commitment to a value, and remember its nonce and digest in this process.

    At most 2,048 commitments are remembered; the next one first empties the memory.

    Args:
        nonce: the random bytes of the commitment.
        digest: the hash by which the value is found.
        encoded: the value's bytes.

    Returns:
        The HMAC in 64 hex digits.
    """
    if len(_known) >= _MAX_COMMITMENTS:
        _known.clear()
    commitment = commit(nonce, encoded)
    _known[commitment] = (nonce, digest)
    return commitment


def commits_to(commitment: str, nonce: bytes, digest: bytes, encoded: bytes) -> bool:
    """Return True if ``commitment`` commits to a value.

    A commitment that is remembered with this nonce and digest is not computed again. Otherwise the
    right commitment is computed and remembered.

    Args:
        commitment: the stored commitment.
        nonce: its stored random bytes.
        digest: the SHA-256 of the value, which the caller computed.
        encoded: the value's bytes.
    """
    known = _known.get(commitment) == (nonce, digest)
    return known or remembered_commit(nonce, digest, encoded) == commitment


def forget_commitments() -> None:
    """Forget all commitments, because rows of content were deleted."""
    _known.clear()
