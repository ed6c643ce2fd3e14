"""What can be wrong with a price table."""

from __future__ import annotations

from remit.kernel.errors import RemitError

__all__ = ["PriceError"]


class PriceError(RemitError):
    """A price table cannot be used; the message names the key."""
