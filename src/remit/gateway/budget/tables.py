"""The tables of budgets, beside the ledger's own (documented in ``docs/ledger-format.md``)."""

from __future__ import annotations

import contextlib

from remit.ledger import LedgerClient, LedgerError, Transaction

__all__ = ["create_tables"]

_COUNTS = (
    "spent_tokens", "reserved_tokens", "turns", "spent_nano", "reserved_nano", "unpriced_calls",
    "minute", "minute_requests", "minute_tokens", "closed",
)  # fmt: skip
_LIMITS = ("token_limit", "turn_limit", "nano_limit", "requests_per_minute", "tokens_per_minute")
_TABLES = (
    f"""CREATE TABLE IF NOT EXISTS budgets (
        scope TEXT NOT NULL PRIMARY KEY,
        {", ".join(f"{name} BIGINT" for name in _LIMITS)},
        {", ".join(f"{name} BIGINT NOT NULL DEFAULT 0" for name in _COUNTS)}
    )""",
    """CREATE TABLE IF NOT EXISTS holds (
        reservation_id TEXT NOT NULL PRIMARY KEY,
        hold TEXT NOT NULL
    )""",
)
_FIRST = {"token_limit", "turn_limit", "spent_tokens", "reserved_tokens", "turns"}
"""What the table had when it counted tokens only."""


def create_tables(ledger: LedgerClient) -> None:
    """Make the tables where they are not there, and bring older ones up to date."""
    ledger.transact(_create)
    if _is_current(ledger):
        return
    with contextlib.suppress(LedgerError):  # another process was first
        ledger.transact(_extend)
    if not _is_current(ledger):
        raise LedgerError(
            f"The budgets of {ledger.location} cannot be brought up to date.",
            next_step="Check that the database's user may alter tables.",
        )


def _is_current(ledger: LedgerClient) -> bool:
    try:
        ledger.select("SELECT closed FROM budgets WHERE scope = ''")
    except LedgerError:
        return False
    return True


def _create(tx: Transaction) -> None:
    for statement in _TABLES:
        tx.execute(statement)


def _extend(tx: Transaction) -> None:
    for name in _LIMITS:
        if name not in _FIRST:
            tx.execute(f"ALTER TABLE budgets ADD COLUMN {name} BIGINT")
    for name in _COUNTS:
        if name not in _FIRST:
            tx.execute(f"ALTER TABLE budgets ADD COLUMN {name} BIGINT NOT NULL DEFAULT 0")
    # Holds of then named one account a row. Whoever held them has ended with the old version:
    # what was spent is in the ledger, so they are let go.
    tx.execute("UPDATE budgets SET reserved_tokens = 0")
    tx.execute("DROP TABLE IF EXISTS reservations")
