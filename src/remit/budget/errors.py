"""Errors of budgets."""

from remit.errors import RemitError

__all__ = ["BudgetError", "BudgetRefusedError"]


class BudgetError(RemitError):
    """Base of what goes wrong with a budget."""


class BudgetRefusedError(BudgetError):
    """A reservation would go over a limit.

    Attributes:
        code: ``BUDGET_EXHAUSTED``, ``TURN_LIMIT`` or ``NOT_ALLOCATED``.
        remaining: tokens left on the scope that refused; ``None`` where it has no token limit.
    """

    def __init__(self, code: str, message: str, remaining: int | None) -> None:
        super().__init__(message)
        self.code = code
        self.remaining = remaining
