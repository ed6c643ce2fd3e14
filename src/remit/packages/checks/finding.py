"""What a check finds wrong."""

from __future__ import annotations

from typing import NamedTuple, Self

from remit.kernel.errors import RemitError

__all__ = ["Finding"]


class Finding(NamedTuple):
    """One thing that is wrong.

    Attributes:
        message: a sentence: what is wrong, and why.
        next_step: what to do about it.
    """

    message: str
    next_step: str = ""

    @classmethod
    def of(cls, error: RemitError, next_step: str = "") -> Self:
        """What an error says; ``next_step`` where it has none of its own."""
        return cls(error.message, error.next_step or next_step)
