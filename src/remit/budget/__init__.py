"""Budgets: reserve an upper bound, then settle what was used (SPEC 5)."""

from remit.budget.book import Book, Hold
from remit.budget.budgeter import TokenBudgeter
from remit.budget.errors import BudgetError, BudgetRefusedError
from remit.budget.rebuilding import BudgetAudit, Difference, audit_budgets
from remit.budget.values import (
    Amount,
    BudgetCheckResult,
    BudgetLimits,
    BudgetScope,
    BudgetStatus,
    DebitResult,
    TokenUsage,
    nano_of,
    owners_of,
    usd_of,
)

__all__ = [
    "Amount",
    "Book",
    "BudgetAudit",
    "BudgetCheckResult",
    "BudgetError",
    "BudgetLimits",
    "BudgetRefusedError",
    "BudgetScope",
    "BudgetStatus",
    "DebitResult",
    "Difference",
    "Hold",
    "TokenBudgeter",
    "TokenUsage",
    "audit_budgets",
    "nano_of",
    "owners_of",
    "usd_of",
]
