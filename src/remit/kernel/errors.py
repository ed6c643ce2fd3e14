"""The base of every error that Remit raises on purpose."""

from __future__ import annotations

import traceback


def excerpt(text: object, most: int = 200) -> str:
    """Return the beginning of a text that somebody else wrote, for a message, prompt or reason.

    Args:
        text: what a model, a tool, a client or a server wrote.
        most: characters that are shown; ``…`` stands for the others.
    """
    shown = str(text)
    return shown if len(shown) <= most else f"{shown[:most]}…"


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


def let_go(error: BaseException | None) -> None:
    """Forget the local variables of where an error was raised and passed, once it is dealt with.

    A function that raises what it has a name for stays in memory with all that it knew, a whole
    body or answer, until a garbage collection; a server collects seldom.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
