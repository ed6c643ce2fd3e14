"""Identities, and the port that tells them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from remit.errors import RemitError

__all__ = ["AuthProvider", "AuthenticationError", "Identity", "LocalOperator"]


class AuthenticationError(RemitError):
    """Nobody known asks. The message names no secret."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Someone who may call.

    Attributes:
        name: who, for people to read.
        role: ``admin``, ``operator``, ``agent`` or ``auditor``.
        key_id: the virtual key's id; empty without one.
    """

    name: str
    role: str
    key_id: str = ""


class AuthProvider(Protocol):
    """Tells who a token belongs to."""

    def authenticate(self, token: str | None) -> Identity:
        """The identity behind ``token``, else :class:`AuthenticationError`."""
        ...


class LocalOperator:
    """Whoever runs this process is its operator: the shell and the Python API (SPEC 4.2)."""

    def authenticate(self, token: str | None) -> Identity:
        """The local operator, whatever the token."""
        return Identity("local operator", "operator")
