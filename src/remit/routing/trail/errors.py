"""What can go wrong with the trail."""

from __future__ import annotations

from remit.kernel.errors import InvalidInputError, RemitError

__all__ = [
    "DuplicateThoughtError",
    "ThoughtLineError",
    "ThoughtNotFoundError",
    "TrailDamagedError",
    "TrailError",
]


class TrailError(RemitError):
    """Base of what goes wrong with thought records."""


class ThoughtNotFoundError(TrailError, KeyError):
    """No thought record has that id."""


class DuplicateThoughtError(TrailError, InvalidInputError):
    """There is a thought record with that id already."""


class TrailDamagedError(TrailError):
    """A thought cannot be read: its row and its ledger entry do not fit together."""


class ThoughtLineError(TrailError, InvalidInputError):
    """A line of an export cannot be read, or not into this trail.

    Attributes:
        line: its number, from 1.
    """

    def __init__(self, line: int, message: str, *, next_step: str = "") -> None:
        super().__init__(f"Line {line}: {message}", next_step=next_step)
        self.line = line
