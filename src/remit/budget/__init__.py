"""Budgets: reserve an upper bound, then settle what was used (SPEC 5)."""

from remit.budget.budgeter import TokenBudgeter
from remit.budget.errors import BudgetError, BudgetRefusedError
from remit.budget.values import (
    BudgetCheckResult,
    BudgetScope,
    BudgetStatus,
    DebitResult,
    TokenUsage,
)

__all__ = [
    "BudgetCheckResult",
    "BudgetError",
    "BudgetRefusedError",
    "BudgetScope",
    "BudgetStatus",
    "DebitResult",
    "TokenBudgeter",
    "TokenUsage",
]
