"""The list of all operations."""

from __future__ import annotations

from remit.operations.budgets import CheckBudgets, ListBudgets, SetBudget, ShowBudget
from remit.operations.keys import CreateKey, ListKeys, RevokeKey, RotateKey, SetKey, ShowKey
from remit.operations.operation import Operation
from remit.operations.owners import OWNER_OPERATIONS

OPERATIONS: tuple[type[Operation], ...] = (
    ListKeys, ShowKey, CreateKey, SetKey, RotateKey, RevokeKey,
    *OWNER_OPERATIONS,
    ShowBudget, ListBudgets, SetBudget, CheckBudgets,
)  # fmt: skip
"""Every operation, in the order in which routes are matched."""
