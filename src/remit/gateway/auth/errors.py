"""Errors of authentication and of virtual keys."""

from __future__ import annotations

from remit.kernel.errors import RemitError

__all__ = [
    "AgentKeyError",
    "AuthUnavailableError",
    "AuthenticationError",
    "VirtualKeyError",
    "VirtualKeyNotFoundError",
]


class AuthenticationError(RemitError):
    """Nobody known asks. The message names no secret."""


class AuthUnavailableError(RemitError):
    """Whether a key is good cannot be told just now, so nobody is let in."""


class VirtualKeyError(RemitError):
    """A virtual key cannot be made or changed as asked: its name is taken, it has ended."""


class VirtualKeyNotFoundError(VirtualKeyError):
    """No virtual key has that name or id."""


class AgentKeyError(RemitError):
    """The secret that signs agent tokens is missing, damaged, or readable by others."""
