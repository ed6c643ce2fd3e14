"""A call that a dialect cannot say."""

from __future__ import annotations

from remit.kernel.errors import RemitError

__all__ = ["DialectError"]


class DialectError(RemitError):
    """A request body that is no valid one, or one that another dialect cannot carry.

    Args:
        message: what is wrong, in words that quote nothing of the body.
        param: where, as ``messages[1].content``; ``None`` for all of the body.
    """

    def __init__(self, message: str, *, param: str | None = None, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.param = param
