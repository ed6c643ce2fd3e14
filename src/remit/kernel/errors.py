"""The base of every error that Remit raises on purpose (SPEC 13)."""

from __future__ import annotations


class RemitError(Exception):
    """What went wrong, and what to do next.

    Args:
        message: what happened and why, one or two sentences, nothing secret.
        next_step: what the reader can do about it; empty when there is nothing.
    """

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.message} {self.next_step}".rstrip()


class InvalidInputError(RemitError, ValueError):
    """A caller passed a value that its documentation excludes."""


class ConfigError(RemitError):
    """``remit.toml``, an environment variable or a flag cannot be used as it stands."""
