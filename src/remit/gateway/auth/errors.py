"""Errors of authentication and of virtual keys."""

from __future__ import annotations

from remit.kernel.errors import RemitError


class AuthenticationError(RemitError):
    """The caller is unknown. The message names no secret."""


class AuthUnavailableError(RemitError):
    """Keys cannot be checked at the moment, so every caller is refused."""


class VirtualKeyError(RemitError):
    """A virtual key cannot be made or changed as asked: its name is taken, it has ended."""


class VirtualKeyNotFoundError(VirtualKeyError):
    """No virtual key has that name or id."""


class AgentKeyError(RemitError):
    """The secret that signs agent tokens is missing, damaged, or readable by others."""
