"""How making or installing a bootstrap fails."""

from __future__ import annotations

from remit.kernel.errors import RemitError

__all__ = ["BootstrapError"]


class BootstrapError(RemitError):
    """A bootstrap cannot be made, or not installed."""
