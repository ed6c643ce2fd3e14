"""The error of a call that a dialect cannot express."""

from __future__ import annotations

from remit.kernel.errors import RemitError

__all__ = ["DialectError"]


class DialectError(RemitError):
    """A request body that is invalid, or that another dialect cannot express.

    Args:
        message: the fault; quotes nothing of the body.
        param: the field at fault, such as ``messages[1].content``; None for the whole body.
    """

    def __init__(self, message: str, *, param: str | None = None, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.param = param
