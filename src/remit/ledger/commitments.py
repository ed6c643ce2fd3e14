"""The commitments that this process computed last.

A history that is sent again is thus not hashed again.
"""

from __future__ import annotations

from remit.ledger.contents import commit

_MAX_COMMITMENTS = 2048
_known: dict[str, tuple[bytes, bytes]] = {}
"""Nonce and digest of values, keyed by commitment."""


def remembered_commit(nonce: bytes, digest: bytes, encoded: bytes) -> str:
    """Return the commitment to a value, and remember it.

    Args:
        nonce: the random bytes of the commitment.
        digest: the hash by which the value is found.
        encoded: the value.
    """
    if len(_known) >= _MAX_COMMITMENTS:
        _known.clear()
    commitment = commit(nonce, encoded)
    _known[commitment] = (nonce, digest)
    return commitment


def commits_to(commitment: str, nonce: bytes, digest: bytes, encoded: bytes) -> bool:
    """Return True if ``commitment`` is the one of a value.

    Args:
        commitment: the stored commitment.
        nonce: its stored random bytes.
        digest: the hash of the value.
        encoded: the value.
    """
    known = _known.get(commitment) == (nonce, digest)
    return known or remembered_commit(nonce, digest, encoded) == commitment


def forget_commitments() -> None:
    """Forget all commitments, because rows of content were deleted."""
    _known.clear()
