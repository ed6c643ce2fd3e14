"""Why somebody could not sign in."""

from __future__ import annotations

from remit.kernel.errors import RemitError


class SignInError(RemitError):
    """Nobody was signed in; the texts name no person and nothing secret.

    Args:
        status: of the page that says so.
    """

    def __init__(self, message: str, *, next_step: str = "", status: int = 403) -> None:
        super().__init__(message, next_step=next_step)
        self.status = status
        self.is_known = False  # it was raised before

    def again(self) -> SignInError:
        """The same, to be raised once more."""
        error = SignInError(self.message, next_step=self.next_step, status=self.status)
        error.is_known = True
        return error


def failing(what: str, next_step: str = "Try again later, or ask who operates this server.",
) -> SignInError:  # fmt: skip
    """The provider does not do its part."""
    return SignInError(f"The sign-in provider {what}.", next_step=next_step, status=502)


__all__ = ["SignInError", "failing"]
