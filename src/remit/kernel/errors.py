"""The base of every error that Remit raises on purpose."""

from __future__ import annotations

import traceback


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


class NotFoundError(RemitError):
    """Nothing has the id or name that a caller gave, or it belongs to another caller."""


class ConflictError(RemitError):
    """The present state of a thing does not allow what a caller asked of it."""


class ConfigError(RemitError):
    """``remit.toml``, an environment variable or a flag cannot be used as it stands."""


def let_go(error: BaseException | None) -> None:
    """Forget the local variables of where an error was raised and passed, once it is dealt with.

    A function that raises what it has a name for stays in memory with all that it knew, a whole
    body or answer, until a garbage collection; a server collects seldom.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
