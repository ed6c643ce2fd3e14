"""Budgets: reserve an upper bound, then settle what was used."""

from remit.gateway.budget.accounts import Accounts
from remit.gateway.budget.audit import (
    BudgetAudit,
    Difference,
    audit_budgets,
    carried_accounts,
    check_budgets,
    check_usage,
)
from remit.gateway.budget.budgeter import TokenBudgeter
from remit.gateway.budget.errors import BudgetRefusedError
from remit.gateway.budget.holds import Hold
from remit.kernel.budget import (
    USD_NAMES,
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
    "USD_NAMES",
    "Accounts",
    "Amount",
    "BudgetAudit",
    "BudgetCheckResult",
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
    "carried_accounts",
    "check_budgets",
    "check_usage",
    "nano_of",
    "owners_of",
    "usd_of",
]
