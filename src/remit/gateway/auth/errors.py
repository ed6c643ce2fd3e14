"""Errors of authentication and of virtual keys."""

from __future__ import annotations

from remit.kernel.errors import RemitError


class AuthenticationError(RemitError):
    """The caller is unknown. The message contains no secret."""


class AuthUnavailableError(RemitError):
    """Keys cannot be checked at the moment, so every caller is refused."""
