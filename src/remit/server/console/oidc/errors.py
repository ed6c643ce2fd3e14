"""Errors of a sign-in."""

from __future__ import annotations

from remit.kernel.errors import RemitError

AGAIN = "Sign in again."


class SignInError(RemitError):
    """A refused sign-in; the message names no person and no secret.

    Attributes:
        status: the HTTP status of the page that shows the error.
        is_known: True if the same failure was raised before.
    """

    def __init__(self, message: str, *, next_step: str = "", status: int = 403) -> None:
        super().__init__(message, next_step=next_step)
        self.status = status
        self.is_known = False

    def again(self) -> SignInError:
        """Return a copy to raise once more."""
        error = SignInError(self.message, next_step=self.next_step, status=self.status)
        error.is_known = True
        return error


def failing(problem: str, next_step: str = "Try again later, or ask who operates this server.",
) -> SignInError:  # fmt: skip
    """Return the error for a provider that does not do its part."""
    return SignInError(f"The sign-in provider {problem}.", next_step=next_step, status=502)


def rejected(message: str) -> SignInError:
    """Return the error for a browser that must begin again."""
    return SignInError(message, next_step=AGAIN, status=400)


__all__ = ["AGAIN", "SignInError", "failing", "rejected"]
