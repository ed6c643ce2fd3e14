"""Tenants: ledgers, keys and budgets of their own in one installation."""
