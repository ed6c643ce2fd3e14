"""The base of every error that Remit raises on purpose."""

from __future__ import annotations

import copyreg
import traceback
from collections.abc import Iterable
from typing import Any


def excerpt(text: object, most: int = 200, end: int = 0) -> str:
    """Return the beginning of a foreign text, for a message, prompt or reason.

    A text of at most ``most + end`` characters is returned whole. A longer one is cut to its first
    ``most`` characters, ``…``, and its last ``end`` characters; ``…`` is not counted.

    Args:
        text: a text of a model, a tool, a client or a server; other objects are converted by
            ``str``. Line breaks and control characters stay.
        most: maximum number of characters from the beginning.
        end: number of characters from the end of a longer text.
    """
    shown = str(text)
    if len(shown) <= most + end:
        return shown
    return f"{shown[:most]}…{shown[-end:] if end else ''}"


class RemitError(Exception):
    """An error that Remit raises on purpose: its cause and the next step for the reader.

    ``str`` gives both texts.

    Args:
        message: the event and its cause in one or two sentences, without secrets.
        next_step: the reader's next action; empty if there is none.
    """

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.message} {self.next_step}".rstrip()

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses take other arguments than the message, so a copy is not made by a call.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class InvalidInputError(RemitError, ValueError):
    """A caller passed a value that its documentation excludes. A subclass of ValueError."""


class NotFoundError(RemitError):
    """No object has the given id or name, or the object belongs to another caller.

    The message does not say which of the two applies.
    """


class ConflictError(RemitError):
    """The present state of an object does not allow the requested change."""


class ConfigError(RemitError):
    """``remit.toml``, an environment variable or a flag has a value that cannot be used."""


def let_go(error: BaseException | None) -> None:
    """Clear the local variables of all frames that an error and its causes passed through.

    An error has one cause here: the explicit one, else the error that was handled when it was
    raised. A function that raises an error bound to a local name stays in memory, with its request
    body or answer, until a garbage collection; a server collects seldom. Frames that still run are
    left alone; the tracebacks stay.

    Args:
        error: the error; ``None`` does nothing.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word most like an unknown word, in the spelling of ``known``.

    Case does not matter. If no known word is similar (ratio 0.6), the only one that begins with
    ``word`` is returned; otherwise an empty text.

    Args:
        word: the unknown word.
        known: the known words.
    """
    import difflib

    names = {name.lower(): name for name in known}
    begun = [name for name in names if word and name.startswith(word.lower())]
    found = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    return names[found[0]] if found else names[begun[0]] if len(begun) == 1 else ""
