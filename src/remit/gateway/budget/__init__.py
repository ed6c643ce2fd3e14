"""Budgets: reserve an upper bound before a call, then settle the usage that was billed.

The package owns the tables ``budgets``, ``holds`` and ``raised_bounds``, and their audit.
:mod:`remit.gateway.billing` computes upper bounds and bills.

Invariants: a reservation is checked and taken under the ledger's write lock; a refused reservation
holds nothing; the accounts equal the sums of the ledger's entries.

Start reading in :mod:`remit.gateway.budget.budgeter`.
"""

from remit.gateway.budget.account import (
    BudgetRefusedError as BudgetRefusedError,
    Hold as Hold,
    TokenUsage as TokenUsage,
)
from remit.gateway.budget.audit import (
    BudgetAudit as BudgetAudit,
    Difference as Difference,
    audit_budgets as audit_budgets,
    carried_accounts as carried_accounts,
    check_holds as check_holds,
)
from remit.gateway.budget.budgeter import DebitResult as DebitResult, TokenBudgeter as TokenBudgeter
from remit.gateway.budget.projection import MONEY as MONEY, OWNERS as OWNERS
from remit.gateway.budget.reservations import Accounts as Accounts
from remit.kernel.budget_values import (
    USD_NAMES as USD_NAMES,
    Amount as Amount,
    BudgetCheckResult as BudgetCheckResult,
    BudgetLimits as BudgetLimits,
    BudgetScope as BudgetScope,
    BudgetStatus as BudgetStatus,
    nano_of as nano_of,
    owners_of as owners_of,
    usd_of as usd_of,
)
