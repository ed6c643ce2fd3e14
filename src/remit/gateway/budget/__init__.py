"""Budgets: reserve an upper bound before a call, then settle the usage that was billed.

The package owns the tables ``budgets``, ``holds`` and ``raised_bounds``, and their audit.
:mod:`remit.gateway.billing` computes upper bounds and bills.

Invariants: a reservation is checked and taken under the ledger's write lock; a refused reservation
holds nothing; the accounts equal the sums of the ledger's entries.

Start reading in :mod:`remit.gateway.budget.budgeter`.
"""

from remit.gateway.budget.account import BudgetRefusedError, Hold, TokenUsage
from remit.gateway.budget.audit import (
    BudgetAudit,
    Difference,
    audit_budgets,
    carried_accounts,
    check_holds,
)
from remit.gateway.budget.budgeter import DebitResult, TokenBudgeter
from remit.gateway.budget.projection import MONEY, OWNERS
from remit.gateway.budget.reservations import Accounts
from remit.kernel.budget_values import (
    USD_NAMES,
    Amount,
    BudgetCheckResult,
    BudgetLimits,
    BudgetScope,
    BudgetStatus,
    nano_of,
    owners_of,
    usd_of,
)

__all__ = [
    "MONEY",
    "OWNERS",
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
    "check_holds",
    "nano_of",
    "owners_of",
    "usd_of",
]
