"""How holding a distribution against its RECORD fails."""

from __future__ import annotations

from remit.kernel.errors import RemitError

__all__ = ["DistributionError"]


class DistributionError(RemitError):
    """The distribution is not whole, so nothing is made of it."""
