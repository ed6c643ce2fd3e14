"""Errors of budgets."""

from remit.kernel.errors import RemitError

__all__ = ["BudgetError", "BudgetRefusedError"]


class BudgetError(RemitError):
    """Base of the errors of budgets."""


class BudgetRefusedError(BudgetError):
    """A reservation would go over a limit.

    Attributes:
        code: ``BUDGET_EXHAUSTED``, ``TURN_LIMIT``, ``RATE_LIMITED``, ``NOT_ALLOCATED``,
            ``UNPRICED`` (a limit in US dollars, and no price) or ``UNBOUNDED`` (a limit, and no
            bound to what the call may use).
        remaining: tokens left on the scope that refused; ``None`` where it has no token limit.
        retry_after_s: when to try again, in seconds; ``None`` when waiting does not help.
    """

    def __init__(
        self,
        code: str,
        message: str,
        remaining: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.remaining = remaining
        self.retry_after_s = retry_after_s
