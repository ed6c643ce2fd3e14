"""What can go wrong when a journey is asked for."""

from __future__ import annotations

from remit.kernel.errors import RemitError

__all__ = ["JourneyNotFoundError"]


class JourneyNotFoundError(RemitError):
    """The ledger has no such session, turn or work order."""
